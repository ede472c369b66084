"""Convert between tokenizers of GPT-2 folders and `Tokenizer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError
from regard.settings import format_value
from regard.text.learn import build_vocabulary
from regard.text.pieces import list_byte_characters
from regard.text.steps import NO_STEPS
from regard.text.tokenizer import RESERVED, Tokenizer

END_TOKEN = "<|endoftext|>"

CHUNKS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
"""GPT-2's pre-tokenizer, as in tokenizer.json."""


class EndToken(NamedTuple):
    """The token that texts of a GPT-2 model start and end with."""

    number: int
    token: str


class Gpt2Vocabulary(NamedTuple):
    """The tokens of a GPT-2 model in the order of their ids, and its merges in order of priority."""

    entries: list[str]
    merges: list[tuple[str, str]]


def read_vocabulary(folder: Path) -> Gpt2Vocabulary:
    """Read tokenizer.json, or vocab.json and merges.txt; raise a `RegardError` if it is not a GPT-2 tokenizer."""
    tokenizer_path, vocab, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if not tokenizer_path.exists() and not (vocab.exists() and merges.exists()):
        raise RegardError(f"{folder}: expected tokenizer.json, or vocab.json and merges.txt; not found")
    path = tokenizer_path if tokenizer_path.exists() else vocab
    try:
        if tokenizer_path.exists():
            model = tokenizers.Tokenizer.from_file(str(tokenizer_path))
        else:
            model = build_byte_level_tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # the library raises nothing more specific
        raise RegardError(f"{path} is corrupt: {error}") from None
    content = json.loads(model.to_str())
    check_content(content, path)
    ids = model.get_vocab(with_added_tokens=True)
    entries = sorted(ids, key=ids.__getitem__)
    if [ids[entry] for entry in entries] != list(range(len(entries))):
        raise RegardError(f"{path}: token ids must be 0 to {len(entries) - 1} without gaps")
    return Gpt2Vocabulary(entries, [(left, right) for left, right in content["model"]["merges"]])


def check_content(content: dict[str, Any], path: Path) -> None:
    """Raise a `RegardError` if a tokenizer.json has settings that GPT-2 does not use."""
    model, chunks = content["model"], content["pre_tokenizer"] or {}
    settings = {
        "type": (model["type"], "BPE"),
        "normalizer": (content["normalizer"], None),
        **{f"pre_tokenizer {name}": (chunks.get(name), expected) for name, expected in CHUNKS.items()},
        "dropout": (model.get("dropout") or None, None),
        "continuing_subword_prefix": (model.get("continuing_subword_prefix") or None, None),
        "end_of_word_suffix": (model.get("end_of_word_suffix") or None, None),
        "ignore_merges": (model.get("ignore_merges", False), False),
    }
    for name, (value, expected) in settings.items():
        if value != expected:
            raise RegardError(f"{path}: {name} must be {format_value(expected)} for GPT-2, got {format_value(value)}")
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    if added:
        raise RegardError(f"{path}: added tokens that are not special are not supported, got {format_value(added[0])}")
    missing = [byte for byte, character in enumerate(list_byte_characters()) if character not in model["vocab"]]
    if missing:
        raise RegardError(f"{path}: expected a token for every byte, got none for byte {missing[0]}")


def from_gpt2(vocabulary: Gpt2Vocabulary, end: EndToken, location: Path) -> Tokenizer:
    """Build a tokenizer in which the end token is <eos> and all other tokens follow the reserved ones."""
    entries = [entry for entry in vocabulary.entries if entry != end.token]
    byte_alphabet = set(list_byte_characters())
    strange = [entry for entry in entries if not byte_alphabet.issuperset(entry)]
    if strange:
        raise RegardError(f"{location}: expected byte-level tokens, got {format_value(strange[0])}")
    return Tokenizer("bpe", build_byte_level_tokenizer(models.BPE(build_vocabulary(entries), vocabulary.merges)))


def is_gpt2_tokenizer(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer splits texts as GPT-2 does."""
    content = json.loads(tokenizer.model.to_str())
    chunks = content["pre_tokenizer"] or {}
    return tokenizer.kind == "bpe" and content["normalizer"] is None and CHUNKS.items() <= chunks.items()


def build_tokenizer_files(tokenizer: Tokenizer, end: EndToken | None, max_length: int) -> dict[str, str]:
    """Return the tokenizer files for Transformers, as file name -> content.

    Without an end token, regard's vocabulary is kept. Transformers then adds <bos> before every
    text and never encodes text as a special token, as regard does.
    """
    if tokenizer.steps != NO_STEPS:
        raise RegardError("cannot export a tokenizer with preprocessing steps; GPT-2 does not support them")
    if end is None:
        model = add_reserved_tokens(tokenizer)
        special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": UNKNOWN}
        config: dict[str, Any] = {name: RESERVED[token_id] for name, token_id in special.items()}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
    else:
        model = to_gpt2(tokenizer, end)
        config = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end.token)
        config |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    config |= {"model_max_length": max_length, "clean_up_tokenization_spaces": False}
    return {"tokenizer.json": model.to_str(pretty=True), "tokenizer_config.json": json.dumps(config, indent=2) + "\n"}


def to_gpt2(tokenizer: Tokenizer, end: EndToken) -> tokenizers.Tokenizer:
    """Convert a tokenizer made by `from_gpt2` back to GPT-2's."""
    content, ids = json.loads(tokenizer.model.to_str())["model"], tokenizer.model.get_vocab()
    entries = sorted(ids, key=ids.__getitem__)[len(RESERVED) :]
    entries.insert(end.number, end.token)
    merges = [(left, right) for left, right in content["merges"]]
    model = build_byte_level_tokenizer(models.BPE({entry: token_id for token_id, entry in enumerate(entries)}, merges))
    model.decoder = decoders.ByteLevel()
    model.post_processor = processors.ByteLevel(trim_offsets=False)
    model.add_special_tokens([build_special_token(end.token)])
    return model


def add_reserved_tokens(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Add what Transformers requires: special tokens, <bos> before every text, and a decoder."""
    model = tokenizers.Tokenizer.from_str(tokenizer.model.to_str())
    model.add_special_tokens([build_special_token(entry) for entry in RESERVED])
    model.post_processor = processors.TemplateProcessing(
        single=[RESERVED[BOS], "$A"], special_tokens=[(RESERVED[BOS], BOS)]
    )
    model.decoder = build_decoder(tokenizer)
    return model


def build_decoder(tokenizer: Tokenizer) -> decoders.Decoder:
    """Build a decoder that joins tokens as `Tokenizer.decode_raw` does."""
    parts: list[Any] = [decoders.Fuse() if tokenizer.kind == "characters" else decoders.ByteLevel()]
    if tokenizer.kind == "words":  # a space before each word, but not next to a line break
        spaced = decoders.Replace(Regex(r"^(?=[^\n])"), " ")
        parts = [spaced, decoders.Fuse(), decoders.Replace("\n ", "\n")]
    if tokenizer.starts_with_space:
        parts.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(parts)


def build_special_token(content: str) -> tokenizers.AddedToken:
    """Build a special token that keeps its id and is never matched in text."""
    return tokenizers.AddedToken(content, special=True, normalized=False)


def build_byte_level_tokenizer(model: models.Model) -> tokenizers.Tokenizer:
    """Build a byte-level tokenizer with GPT-2's pre-tokenizer."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tokenizer
