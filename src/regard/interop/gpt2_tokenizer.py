"""Tokenizers of GPT-2 folders <-> ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError
from regard.settings import shown
from regard.text.learn import numbered
from regard.text.pieces import byte_characters
from regard.text.steps import NO_STEPS
from regard.text.tokenizer import RESERVED, Tokenizer

END_TOKEN = "<|endoftext|>"

CHUNKS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
"""How GPT-2 cuts a text before it merges, as a tokenizer.json has it."""


class End(NamedTuple):
    """The token with which texts of a GPT-2 begin and end."""

    number: int
    token: str


class Vocabulary(NamedTuple):
    """The tokens of a GPT-2 in the order of their numbers, and what is merged, first to last."""

    entries: list[str]
    merges: list[tuple[str, str]]


def read_vocabulary(folder: Path) -> Vocabulary:
    """What is in tokenizer.json, or in vocab.json and merges.txt; a `RegardError` unless it is a GPT-2's."""
    whole, vocab, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if not whole.exists() and not (vocab.exists() and merges.exists()):
        raise RegardError(f"{folder}: there is no tokenizer.json, nor vocab.json with merges.txt")
    where = whole if whole.exists() else vocab
    try:
        if whole.exists():
            model = tokenizers.Tokenizer.from_file(str(whole))
        else:
            model = bytes_in_chunks(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # the library raises nothing more exact
        raise RegardError(f"{where}: the tokenizer is broken: {error}") from None
    content = json.loads(model.to_str())
    check_content(content, where)
    numbers = model.get_vocab(with_added_tokens=True)
    entries = sorted(numbers, key=numbers.__getitem__)
    if [numbers[entry] for entry in entries] != list(range(len(entries))):
        raise RegardError(f"{where}: numbers are left out; {len(entries)} tokens need those from 0 on")
    return Vocabulary(entries, [(left, right) for left, right in content["model"]["merges"]])


def check_content(content: dict[str, Any], where: Path) -> None:
    """Raise a `RegardError` for what GPT-2's tokenizer has not."""
    model, chunks = content["model"], content["pre_tokenizer"] or {}
    found = {
        "type": (model["type"], "BPE"),
        "normalizer": (content["normalizer"], None),
        **{f"pre_tokenizer {name}": (chunks.get(name), wanted) for name, wanted in CHUNKS.items()},
        "dropout": (model.get("dropout") or None, None),
        "continuing_subword_prefix": (model.get("continuing_subword_prefix") or None, None),
        "end_of_word_suffix": (model.get("end_of_word_suffix") or None, None),
        "ignore_merges": (model.get("ignore_merges", False), False),
    }
    for name, (value, wanted) in found.items():
        if value != wanted:
            raise RegardError(f"{where}: {name} is {shown(value)}; GPT-2 has {shown(wanted)}")
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    if added:
        raise RegardError(f"{where}: the token {shown(added[0])} was added to be found in texts, which GPT-2 has not")
    missing = [byte for byte, character in enumerate(byte_characters()) if character not in model["vocab"]]
    if missing:
        raise RegardError(f"{where}: the byte {missing[0]} has no token; GPT-2 has one for each")


def from_gpt2(vocabulary: Vocabulary, end: End, where: Path) -> Tokenizer:
    """Our tokenizer, in which the end is <eos> and all other tokens follow the first four."""
    entries = [entry for entry in vocabulary.entries if entry != end.token]
    known = set(byte_characters())
    strange = [entry for entry in entries if not known.issuperset(entry)]
    if strange:
        raise RegardError(f"{where}: the token {shown(strange[0])} is not made of bytes as GPT-2's are")
    return Tokenizer("bpe", bytes_in_chunks(models.BPE(numbered(entries), vocabulary.merges)))


def is_gpt2(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer cuts texts as GPT-2 does."""
    content = json.loads(tokenizer.model.to_str())
    chunks = content["pre_tokenizer"] or {}
    return tokenizer.kind == "bpe" and content["normalizer"] is None and CHUNKS.items() <= chunks.items()


def tokenizer_files(tokenizer: Tokenizer, end: End | None, longest: int) -> dict[str, str]:
    """The files of a tokenizer as Transformers reads them, by name.

    Without an end, the vocabulary stays ours. Transformers then puts <bos> before every text,
    and takes no text for a special token, as here.
    """
    if tokenizer.steps != NO_STEPS:
        raise RegardError("the tokenizer changes texts before it cuts them; GPT-2 has no such steps")
    if end is None:
        model = with_reserved(tokenizer)
        special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": UNKNOWN}
        config: dict[str, Any] = {name: RESERVED[number] for name, number in special.items()}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
    else:
        model = to_gpt2(tokenizer, end)
        config = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end.token)
        config |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    config |= {"model_max_length": longest, "clean_up_tokenization_spaces": False}
    return {"tokenizer.json": model.to_str(pretty=True), "tokenizer_config.json": json.dumps(config, indent=2) + "\n"}


def to_gpt2(tokenizer: Tokenizer, end: End) -> tokenizers.Tokenizer:
    """The tokenizer of a GPT-2 from what `from_gpt2` has made of it."""
    content, numbers = json.loads(tokenizer.model.to_str())["model"], tokenizer.model.get_vocab()
    entries = sorted(numbers, key=numbers.__getitem__)[len(RESERVED) :]
    entries.insert(end.number, end.token)
    merges = [(left, right) for left, right in content["merges"]]
    model = bytes_in_chunks(models.BPE({entry: number for number, entry in enumerate(entries)}, merges))
    model.decoder = decoders.ByteLevel()
    model.post_processor = processors.ByteLevel(trim_offsets=False)
    model.add_special_tokens([special_token(end.token)])
    return model


def with_reserved(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Our tokenizer with what Transformers needs: special tokens, <bos> first, and how texts are put together again."""
    model = tokenizers.Tokenizer.from_str(tokenizer.model.to_str())
    model.add_special_tokens([special_token(entry) for entry in RESERVED])
    model.post_processor = processors.TemplateProcessing(
        single=[RESERVED[BOS], "$A"], special_tokens=[(RESERVED[BOS], BOS)]
    )
    model.decoder = decoder_of(tokenizer)
    return model


def decoder_of(tokenizer: Tokenizer) -> decoders.Decoder:
    """What puts tokens together as `Tokenizer.written` does."""
    parts: list[Any] = [decoders.Fuse() if tokenizer.kind == "characters" else decoders.ByteLevel()]
    if tokenizer.kind == "words":  # a space goes before each word, but not before or after the end of a line
        spaced = decoders.Replace(Regex(r"^(?=[^\n])"), " ")
        parts = [spaced, decoders.Fuse(), decoders.Replace("\n ", "\n")]
    if tokenizer.starts_with_space:
        parts.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(parts)


def special_token(content: str) -> tokenizers.AddedToken:
    """A token that is no text, under the number that it has."""
    return tokenizers.AddedToken(content, special=True, normalized=False)


def bytes_in_chunks(model: models.Model) -> tokenizers.Tokenizer:
    """A model of bytes that sees a text in the chunks of GPT-2."""
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return found
