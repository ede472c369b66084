"""What is fuzzed: one function for each kind of input, in one table."""

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from math import prod
from pathlib import Path

from safetensors.torch import load, save, save_file
from torch import Tensor

from regard import AttentionMap, RegardError, Weights
from regard.alignment import read_pharaoh
from regard.attention.archive import FORMAT, describe_weights
from regard.card import CARD_CHECKSUM, format_card
from regard.compare.seeds import SeedPlan
from regard.data.documents import read_documents
from regard.data.formats import read_pairs, read_parallel
from regard.data.formats.columns import TABLE_FORMATS
from regard.data.formats.pairs import read_rows
from regard.data.formats.vectors import read_vectors
from regard.data.labeled import read_labeled
from regard.data.tagged import read_tagged
from regard.interop.gpt2 import read_gpt2
from regard.run import SEEDS_FILE, get_member
from regard.text import TokenizerPair, WordVocabulary

from . import samples
from .mutations import mutate_bytes, mutate_json, mutate_tensors, mutate_toml
from .requests import READY, check, draw_case, send
from .runner import CaseRandom, Target, run_command

MANY = 10_000  # items to read at most


def make_format_target(name: str) -> Target:
    """Return a target that reads pairs of one format."""

    def target(rng: CaseRandom) -> None:
        path = rng.folder / f"data.{name}"
        path.write_bytes(mutate_bytes(rng, samples.FILES[name]))
        columns = rng.choice((None, None, None, ("1", "2"), ("source", "target"), ("de", "en"), ("a.b", "target")))
        for pair in islice(read_pairs(path, columns=columns, on_empty=rng.choice(("error", "skip"))), MANY):
            f"{pair.source}{pair.target}".encode()

    return target


def fuzz_columns(rng: CaseRandom) -> None:
    """Read a table of which several columns are joined."""
    name = rng.choice(sorted(samples.TABLES))
    path = rng.folder / "data.tsv"
    path.write_bytes(mutate_bytes(rng, samples.TABLES[name]))
    columns = rng.choice((TABLE_FORMATS[name].columns, ("1+3:tokens", "2:letters"), ("1:words+2", "3"), ("1+1", "9")))
    list(islice(read_pairs(path, format=name, columns=columns, on_empty=rng.choice(("error", "skip"))), MANY))
    list(read_rows(path, name))


def fuzz_json_lines(rng: CaseRandom) -> None:
    lines = samples.JSONL.splitlines()
    index = rng.randrange(len(lines))
    lines[index] = mutate_json(rng, lines[index])
    path = rng.folder / "data.jsonl"
    path.write_bytes(b"\n".join(lines))
    if rng.random() < 0.5:
        list(islice(read_pairs(path, on_empty="skip"), MANY))
    else:
        list(islice(read_labeled(path, columns=("source", "target"), on_empty="skip"), MANY))


def fuzz_gzip(rng: CaseRandom) -> None:
    name = rng.choice(sorted(samples.FILES))
    path = rng.folder / f"data.{name}.gz"
    inner = mutate_bytes(rng, samples.FILES[name]) if rng.random() < 0.5 else samples.FILES[name]
    zipped = gzip.compress(inner, mtime=0)
    path.write_bytes(mutate_bytes(rng, zipped) if rng.random() < 0.7 else zipped)
    list(islice(read_pairs(path), MANY))


def fuzz_lines(rng: CaseRandom) -> None:
    source, target = rng.folder / "a.de", rng.folder / "a.en"
    source.write_bytes(mutate_bytes(rng, samples.TEXT))
    target.write_bytes(mutate_bytes(rng, samples.TEXT) if rng.random() < 0.3 else source.read_bytes())
    list(islice(read_parallel(source, target, on_empty="skip"), MANY))


def fuzz_documents(rng: CaseRandom) -> None:
    path = rng.folder / rng.choice(("text.txt", "text.txt.gz"))
    content = mutate_bytes(rng, samples.TEXT)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    for chunk in islice(read_documents(path, rng.choice(("file", "line", "paragraph"))), MANY):
        chunk.text.encode()


def fuzz_labels(rng: CaseRandom) -> None:
    path = rng.folder / rng.choice(("data.tsv", "data.csv"))
    path.write_bytes(mutate_bytes(rng, samples.LABELS))
    columns, on_empty = rng.choice((None, ("text", "label"), (1, 2))), rng.choice(("error", "skip"))
    list(islice(read_labeled(path, columns=columns, context=rng.randint(0, 2), on_empty=on_empty), MANY))


def fuzz_tags(rng: CaseRandom) -> None:
    path = rng.folder / "data.bio"
    path.write_bytes(mutate_bytes(rng, samples.BIO))
    list(islice(read_tagged(path, columns=rng.choice((None, (1, 2), ("1", "3"), (9, 1)))), MANY))


def fuzz_vectors(rng: CaseRandom) -> None:
    path = rng.folder / rng.choice(("vectors.txt", "vectors.vec.gz"))
    content = mutate_bytes(rng, rng.choice((samples.VECTORS, samples.VECTORS.partition(b"\n")[2])))
    path.write_bytes(gzip.compress(content, mtime=0)[: rng.choice((None, 30))] if path.suffix == ".gz" else content)
    read_vectors(path)


def fuzz_links(rng: CaseRandom) -> None:
    (rng.folder / "links").write_bytes(mutate_bytes(rng, samples.LINKS))
    read_pharaoh(rng.folder / "links", base=rng.randint(0, 1))


def fuzz_map(rng: CaseRandom) -> None:
    path = rng.folder / "map.json"
    path.write_bytes(mutate_json(rng, rng.choice(samples.list_maps())))
    attention_map = AttentionMap.load(path)
    attention_map.draw().encode()
    attention_map.to_html().encode()
    attention_map.to_svg(rng.choice(("matrix", "lines", "heads"))).encode()
    json.dumps(attention_map.record())


def fuzz_weights(rng: CaseRandom) -> None:
    path = rng.folder / "weights.safetensors"
    tensors: dict[str, Tensor] = {}
    record = describe_weights(rng.choice(samples.list_weights()), tensors)
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    description = json.dumps(record).encode()
    kind = rng.random()
    if kind < 0.6:
        description = mutate_json(rng, description)
    if kind > 0.4:
        tensors = mutate_tensors(rng, tensors)
    save_file(tensors, path, {"format": FORMAT, "weights": description.decode(errors="replace")})
    if rng.random() < 0.1:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    use_weights(Weights.load(path))


def use_weights(weights: Weights) -> None:
    """Call everything that weights offer."""
    calls: list[Callable[[], object]] = [
        lambda: weights.top(2),
        weights.received,
        weights.entropy,
        weights.argmax,
        lambda: weights.mean().dense(),
        lambda: weights[..., 0, :1] if min(weights.shape[-2:]) else None,
        lambda: weights.detach(),
    ]
    if prod(weights.shape) < 10**6:
        calls.append(weights.dense)
    for call in calls:
        with suppress(RegardError):
            call()


def fuzz_tokenizer(rng: CaseRandom) -> None:
    path = rng.folder / "tokenizer.json"
    if rng.random() < 0.3:
        path.write_bytes(mutate_json(rng, samples.get_vocabulary_file()))
        vocabulary = WordVocabulary.load(path)
        vocabulary.encode(["a", "cat", "été", "x" * 100])
        vocabulary.to_json()
        return
    path.write_bytes(mutate_json(rng, rng.choice(samples.list_tokenizers())))
    pair = TokenizerPair.load(path)
    for tokenizer in (pair.source, pair.target):
        for text in ("a small cat", "l'été\n☃ <eos>", "aaaa" * 200, ""):
            ids = tokenizer.encode(text)
            tokenizer.decode(ids).encode()
            tokenizer.encode_with_words(text)
            tokenizer.ids_to_tokens(ids)
    pair.to_json()


def fuzz_gpt2(rng: CaseRandom) -> None:
    files = dict(samples.get_gpt2_folder())
    if rng.random() < 0.4:
        del files["tokenizer.json"]
    if rng.random() < 0.3:
        files["model.safetensors.index.json"] = files["index.json"]
        files["part.safetensors"] = files.pop("model.safetensors")
    name = rng.choice([name for name in sorted(files) if name not in ("index.json", "tokenizer_config.json")])
    if name.endswith(".json"):
        files[name] = mutate_json(rng, files[name])
    elif name.endswith(".safetensors") and rng.random() < 0.8:
        files[name] = save(mutate_tensors(rng, load(files[name])))
    else:
        files[name] = mutate_bytes(rng, files[name])
    for file, content in files.items():
        (rng.folder / file).write_bytes(content)
    checkpoint = read_gpt2(rng.folder)
    checkpoint.tokenizer.decode(checkpoint.tokenizer.encode("a cat ab")).encode()


def fuzz_recipe(rng: CaseRandom) -> None:
    for file, content in samples.DATA.items():
        (rng.folder / file).write_bytes(content)
    path = rng.folder / "recipe.toml"
    path.write_bytes(mutate_toml(rng, rng.choice(samples.RECIPES)))
    run_command(["train", path, "--out", rng.folder / "run", "--steps", "1", "--quiet", "--device", "cpu"])


def fuzz_data(rng: CaseRandom) -> None:
    """Train on broken data, by a valid recipe."""
    name = rng.choice(sorted(samples.DATA))
    for file, content in samples.DATA.items():
        (rng.folder / file).write_bytes(mutate_bytes(rng, content) if file == name else content)
    (rng.folder / "recipe.toml").write_bytes(samples.RECIPES[list(samples.DATA).index(name)])
    run_command(["train", rng.folder / "recipe.toml", "--out", rng.folder / "run", "--quiet", "--device", "cpu"])


TEXTS = {
    "pairs": b"a b\n",
    "text": b"the cat\n",
    "label": b"who is it\n",
    "tag": b"mr ann sleeps\n",
    "inflection": b"Hund\tN;PL\n",
}


def make_run_target(name: str) -> Target:
    """Return a target that breaks a file of a run and runs a command on it."""

    def target(rng: CaseRandom) -> None:
        run = rng.folder / "run"
        shutil.copytree(samples.get_run(name), run)
        files = sorted(path for path in run.rglob("*") if path.is_file() and path.name not in ("log", "lock"))
        break_file(rng, rng.choice(files))
        if rng.random() < 0.8:
            refresh_checksums(run)
        run_command(rng.choice(COMMANDS)(run), TEXTS[name])

    return target


COMMANDS: tuple[Callable[[Path], list[object]], ...] = (
    lambda run: ["predict", run, "--device", "cpu"],
    lambda run: ["inspect", run],
    lambda run: ["inspect", run, "--json"],
    lambda run: ["look", run, "--device", "cpu"],
    lambda run: ["explain", run, "--device", "cpu"],
    lambda run: ["train", "--out", run, "--steps", "2", "--quiet", "--device", "cpu"],
)


def fuzz_seeds(rng: CaseRandom) -> None:
    """Break a folder of two runs, or the list of them."""
    folder = rng.folder / "seeds"
    plan = SeedPlan(recipe={"data": {"train": "pairs.tsv"}}, seeds=(0, 1)).save(folder)
    for seed in plan.seeds:
        member = get_member(folder, seed)
        shutil.copytree(samples.get_run("pairs"), member, ignore=shutil.ignore_patterns("training"))
    break_file(rng, rng.choice((folder / SEEDS_FILE, member / "run.json")))
    if rng.random() < 0.8:
        refresh_checksums(member)
    run_command(rng.choice(COMMANDS)(folder), TEXTS["pairs"])


def break_file(rng: CaseRandom, path: Path) -> None:
    """Break a file by its kind."""
    content = path.read_bytes()
    if path.suffix == ".json":
        content = mutate_json(rng, content)
    elif path.suffix == ".jsonl":
        first, _, rest = content.partition(b"\n")
        content = mutate_json(rng, first) + b"\n" + rest
    elif path.suffix == ".toml":
        content = mutate_toml(rng, content)
    elif path.suffix == ".safetensors" and rng.random() < 0.7:
        content = save(mutate_tensors(rng, load(content)))
    elif rng.random() < 0.1:
        path.unlink()
        return
    else:
        content = mutate_bytes(rng, content)
    path.write_bytes(content)


UNREADABLE = (ValueError, OSError, AttributeError, RecursionError, KeyError, TypeError)


def refresh_checksums(run: Path) -> None:
    """Write the checksums of the files as they are now, so that what is broken is read."""
    for sums in run.rglob("sha256.json"):
        with suppress(*UNREADABLE):
            names = list(json.loads(sums.read_bytes()))
            sums.write_text(json.dumps({name: compute_sum(sums.parent / name) for name in names}))
    with suppress(*UNREADABLE):
        card = json.loads((run / "run.json").read_bytes())
        card["sha256"] = {name: compute_sum(run / name) for name in card["sha256"]}
        del card[CARD_CHECKSUM]
        (run / "run.json").write_bytes(format_card(card))


def compute_sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fuzz_stdin(rng: CaseRandom) -> None:
    name = rng.choice(sorted(TEXTS))
    run, content = samples.get_run(name), mutate_bytes(rng, TEXTS[name])[:100]  # a long text takes its time
    (rng.folder / "stdin").write_bytes(content)
    commands: list[list[object]] = [["predict", run], ["look", run], ["explain", run], ["evaluate", run, "-"]]
    commands += [["generate", run, "-", "--max-tokens", "2"]] if name == "text" else []
    commands += [["predict", run, "--jsonl"], ["align", run, "--target", rng.folder / "stdin"]]
    run_command(rng.choice(commands), content)


def fuzz_http(rng: CaseRandom) -> None:
    client, case = samples.start_server(), draw_case(rng)
    (rng.folder / "request").write_bytes(case.request)
    status = check(case, send(client.port, case.request))
    assert check(READY, send(client.port, READY.request)) == 200
    bugs = [event for event in client.logged if event["event"] == "bug"]
    client.lines.clear()
    assert bugs == []
    if status >= 400:
        raise RegardError(f"status {status}")


TARGETS: dict[str, Target] = {
    **{name: make_format_target(name) for name in samples.FILES},
    "columns": fuzz_columns,
    "json-lines": fuzz_json_lines,
    "gzip": fuzz_gzip,
    "lines": fuzz_lines,
    "documents": fuzz_documents,
    "labels": fuzz_labels,
    "tags": fuzz_tags,
    "vectors": fuzz_vectors,
    "links": fuzz_links,
    "map": fuzz_map,
    "weights": fuzz_weights,
    "tokenizer": fuzz_tokenizer,
    "gpt2": fuzz_gpt2,
    "recipe": fuzz_recipe,
    "data": fuzz_data,
    **{f"run-{name}": make_run_target(name) for name in TEXTS},
    "seeds": fuzz_seeds,
    "stdin": fuzz_stdin,
    "http": fuzz_http,
}
"""Everything that is fuzzed, by name. A target makes one case from its random numbers and runs it."""

SLOW = {"recipe", "data", *(f"run-{name}" for name in TEXTS), "seeds", "stdin", "http"}
"""Targets that run a command or send a request, which takes as long as ten or twenty files."""
