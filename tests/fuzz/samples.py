"""Valid files, which the fuzzer then breaks."""

import atexit
import json
import shutil
import struct
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

from regard import AttentionMap, attend, causal, documents, key_indices, lengths, window
from regard.attention import Additive, Score, SoftCap
from regard.attention.combined_weights import JoinedWeights, MergedWeights
from regard.attention.weights import DenseWeights, Weights
from regard.cli import main
from regard.interop.gpt2 import Gpt2Checkpoint, write_gpt2
from regard.interop.gpt2_tokenizer import END_TOKEN, EndToken, from_gpt2
from regard.interop.gpt2_tokenizer import Gpt2Vocabulary as Vocabulary
from regard.models.gpt import Gpt, GptConfig
from regard.serve.served_models import ModelPool
from regard.serve.settings import ServeSettings
from regard.text import KINDS, learn_tokenizer, learn_tokenizer_pair, learn_word_vocabulary
from regard.text.learn import learn_lm_tokenizer
from regard.text.pieces import list_byte_characters
from regard.text.tokenizer_pair import TokenizerPair
from tests.serve.running import Client, running

from .requests import LIMITS

TSV = b"source\ttarget\nein Hund\ta dog\nzwei Katzen\ttwo cats\n\n"
CSV = b'source,target\nein Hund,a dog\n"zwei, drei","two, ""three"""\n'
JSONL = b'{"source": "ein Hund", "target": "a dog"}\n{"source": "x", "target": null, "id": 1.5}\n'
TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de" datatype="plaintext"/><body>
<!-- a comment --><tu><tuv xml:lang="de"><seg>ein <bpt i="1">&lt;b&gt;</bpt>Hund</seg></tuv>
<tuv xml:lang="en-GB"><seg>a dog</seg></tuv></tu></body></tmx>
"""
PO = rb"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c
msgctxt "menu"
msgid "dog"
msgstr "Hund\t\x41"

#, fuzzy
msgid "cat"
msgstr "Katze"

msgid "%d cat"
msgid_plural "%d cats"
msgstr[0] "%d Katze"
msgstr[1] "%d "
"Katzen"
#~ msgid "old"
#~ msgstr "alt"
"""
LABELS = b"text\tlabel\nwho is she\thuman\nwhere is it\tplace|thing\n\nhow many\tnumber\n"
BIO = b"-DOCSTART- -X- O O\n\nmr NN B-PER\nann NN I-PER\nsleeps VB O\n\nin IN O\nrome NN B-LOC\n"
TEXT = "the cat sees the dog\n\na bird sings, l'été\n".encode() * 3
TABLES = {
    "g2p": b"cat\tk ae t\ndog\td ao g\n\n",
    "sigmorphon2023": b"Hund\tN;NOM;PL\tHunde\nKatze\tN;DAT;PL\tKatzen\n",
    "unimorph": b"Hund\tHunde\tN;NOM;PL\nKatze\tKatzen\tN;DAT;PL\n",
}
VECTORS = b"3 2\ncat 0.1 0.2\ndog -1e-3 4\nbird 0 1\n"
LINKS = b"0-0 1-1\n0-1 1?0\n\n"


def compile_catalog() -> bytes:
    """Return an MO file with a header, an entry and a plural."""
    entries = [
        (b"", b"Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n"),
        (b"menu\4dog", b"Hund"),
        (b"%d cat\0%d cats", b"%d Katze\0%d Katzen"),
    ]
    start, strings, tables = 28 + 16 * len(entries), b"", [b"", b""]
    for entry in entries:
        for side, text in enumerate(entry):
            tables[side] += struct.pack("<2I", len(text), start + len(strings))
            strings += text + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    return header + tables[0] + tables[1] + strings


MO = compile_catalog()
FILES = {
    "tsv": TSV,
    "csv": CSV,
    "jsonl": JSONL,
    "tmx": TMX,
    "po": PO,
    "mo": MO,
}

RECIPES = (
    b"""[data]
train = "pairs.tsv"
validation_share = 0.3
on_empty = "skip"
max_tokens = 30

[text]
source_tokenizer = "characters"
target_tokenizer = "bpe"
vocab_size = 270
lowercase = true

[model]
name = "bahdanau"
hidden = 8
embedding = 8
dropout = 0.1

[training]
steps = 1
batch_tokens = 60
learning_rate = 0.01
validate_every = 1
seed = 3
""",
    b"""[data]
train = "lines.txt"
documents = "line"

[text]
tokenizer = "words"
min_frequency = 1

[model]
name = "gpt"
width = 8
heads = 2
layers = 1
context_length = 8

[training]
steps = 1
batch_tokens = 60
segment_length = 8
label_smoothing = 0.1
schedule = "cosine"
""",
    b"""[data]
train = "labels.tsv"
columns = ["text", "label"]
validation_share = 0.4

[model]
name = "attentive-classifier"
hidden = 8
embedding = 8

[training]
steps = 1
batch_tokens = 60
""",
    b"""[data]
train = "names.bio"
validation_share = 0.4

[model]
name = "attentive-tagger"
hidden = 8
embedding = 8
char_encoder = "none"

[training]
steps = 1
batch_tokens = 60
""",
    b"""[data]
train = "inflection.tsv"
format = "unimorph"
validation_share = 0.3
on_empty = "skip"

[text]
source_normal_form = "nfd"

[model]
name = "hard-monotonic"
hidden = 8
embedding = 8

[training]
steps = 1
batch_tokens = 60
""",
)
DATA = {
    "pairs.tsv": "".join(f"{a} {b}\t{b} {a}\n" for a in "abcd" for b in "abc").encode(),
    "lines.txt": TEXT,
    "labels.tsv": b"text\tlabel\n"
    + "".join(f"who is {name}\thuman\nwhere is {name}\tplace\n" for name in "abcdef").encode(),
    "names.bio": b"mr B-PER\nann I-PER\nsleeps O\n\nin O\nrome B-LOC\n\n" * 6,
    "inflection.tsv": "".join(f"{lemma}\t{lemma}e\tN;PL\n" for lemma in ("Hund", "Tag", "Zug", "Arm", "Fuß")).encode(),
}
"""The data of each recipe."""
RUN_NAMES = ("pairs", "text", "label", "tag", "inflection")
RUNS: dict[str, Path] = {}
SERVER = ExitStack()
"""Stops the server when it is closed."""
atexit.register(SERVER.close)
"""Trained runs by name; filled by `get_run` where a test has not set them."""


@cache
def make_folder() -> Path:
    """Return a folder for what takes long to make; it is removed when the process ends."""
    folder = Path(mkdtemp(prefix="regard-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def prepare() -> None:
    """Make everything that is not made at once, before limits apply."""
    for name in RUN_NAMES:
        get_run(name)
    for make in (list_weights, list_maps, list_tokenizers, get_vocabulary_file, get_gpt2_folder, start_server):
        make()


def get_run(name: str) -> Path:
    """Return the folder of a tiny run, by its name in `RUN_NAMES`."""
    if name not in RUNS:
        index = RUN_NAMES.index(name)
        folder = make_folder() / name
        folder.mkdir(exist_ok=True)  # a training that was interrupted goes on
        for file, content in DATA.items():
            (folder / file).write_bytes(content)
        (folder / "recipe.toml").write_bytes(RECIPES[index])
        recipe, run = str(folder / "recipe.toml"), str(folder / "run")
        assert main(["train", recipe, "--out", run, "--quiet", "--device", "cpu"]) == 0
        RUNS[name] = folder / "run"
    return RUNS[name]


@cache
def start_server() -> Client:
    """Serve the tiny runs on the loopback; return a client of the server."""
    pool = ModelPool(runs={name: get_run(name) for name in RUN_NAMES})
    pool.load("cpu", ServeSettings(max_tokens=int(LIMITS["max_tokens"])))
    SERVER.callback(pool.stop, 5)
    return SERVER.enter_context(running(pool, **LIMITS))


@cache
def list_weights() -> list[Weights]:
    """Return weights of every kind that can be saved."""
    torch.manual_seed(1)
    query, keys = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4)
    rules = (
        None,
        causal() & ~lengths(torch.tensor([2, 3])),
        documents(torch.arange(5) // 2),
        torch.rand(2, 1, 3, 5) < 0.6,
        window(1, 2) | causal(strict=True),
        key_indices(torch.tensor([[[0, 4], [1, -1], [2, 2]]])),
    )
    names = ("scaled_dot", "gaussian", "epanechnikov", "hard", "exact", "boxcar", "uniform", "dot")
    kept: list[Weights] = []
    for name in names:
        for rule in rules:
            bias = torch.randn(2, 3, 5) if rule is None else None
            kept.append(attend(query, keys, keys, name, visible=rule, bias=bias, path="tiled", return_weights=True)[1])
    for normalizer in ("sparsemax", "entmax15", "none"):
        kept.append(attend(query, keys, keys, normalizer=normalizer, path="tiled", return_weights=True)[1])
    capped: tuple[Score, ...] = (SoftCap("scaled_dot", 2.0), SoftCap("gaussian", 2.0), Additive(4, 4, hidden=3))
    for score in capped:
        kept.append(attend(query, keys, keys, score, path="tiled", return_weights=True)[1])
    kept.append(attend(query, keys, keys, sink=torch.randn(2), path="tiled", return_weights=True)[1])
    kept.append(kept[0].mean())
    kept.append(kept[1].materialize())
    kept.append(MergedWeights(kept[1], 0))
    steps = [DenseWeights(torch.rand(2, 1, 3 + step)) for step in range(3)]
    kept.append(JoinedWeights(steps, [0, 0, 1]))
    return kept


@cache
def list_maps() -> list[bytes]:
    """Return the JSON of attention maps."""
    weights = np.full((2, 2, 3, 2), 0.5, np.float32)
    rows, columns = ("a", "b", "c"), ("x", "y")
    alternatives = ((("a", 0.5), ("b", 0.25)), (), (("c", 1.0),))
    dense = AttentionMap(rows, columns, weights, "title", "words", frozenset({(0, 1)}), alternatives)
    return [json.dumps(each.record()).encode() for each in (dense, dense.keep_top(1))]


@cache
def list_tokenizers() -> list[bytes]:
    """Return the tokenizer.json of pairs of each kind, and of words."""
    texts = ["a small cat", "l'été 12\n☃"]
    files = []
    for kind in KINDS:
        files.append(learn_tokenizer_pair(texts, texts[::-1], kind=kind, shared_vocab=True)[0].to_json().encode())
        tokenizer = learn_lm_tokenizer(kind, texts)
        files.append(TokenizerPair(learn_tokenizer(kind, texts), tokenizer).to_json().encode())
    return files


@cache
def get_vocabulary_file() -> bytes:
    """Return the tokenizer.json of a classifier."""
    return learn_word_vocabulary([["a", "cat"], ["a", "dog"]], ["x", "y"], unlabeled={"b": 2}).to_json().encode()


@cache
def get_gpt2_folder() -> dict[str, bytes]:
    """Return the files of a tiny GPT-2 folder."""
    entries = [*list_byte_characters(), "ab", "Ġa", END_TOKEN]
    merges = [("a", "b"), ("Ġ", "a")]
    end = EndToken(len(entries) - 1, END_TOKEN)
    folder = make_folder() / "gpt2"
    tokenizer = from_gpt2(Vocabulary(entries, merges), end, folder)
    config = GptConfig(vocab_size=tokenizer.size, width=4, heads=2, layers=1, context_length=4, mute=(0, 1, 2))
    parameters = {name: tensor.detach() for name, tensor in Gpt(config).state_dict().items()}
    parameters["embedding.weight"][2] = parameters["embedding.weight"][3]
    write_gpt2(folder, Gpt2Checkpoint(config, parameters, tokenizer, end))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["vocab.json"] = json.dumps({entry: number for number, entry in enumerate(entries)}).encode()
    files["merges.txt"] = "#version: 0.2\na b\nĠ a\n".encode()
    names = [f"transformer.{name}" for name in ("wte.weight", "wpe.weight")]
    files["index.json"] = json.dumps({"weight_map": dict.fromkeys(names, "part.safetensors")}).encode()
    return files
