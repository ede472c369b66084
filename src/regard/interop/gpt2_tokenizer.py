"""Convert between tokenizers of GPT-2 folders and `Tokenizer`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.data.formats.lines import read_lines
from regard.errors import RegardError, format_json
from regard.files import read_json_table
from regard.text.learn import build_vocabulary
from regard.text.pieces import list_byte_characters
from regard.text.saved_model import parse_merges
from regard.text.steps import NO_STEPS
from regard.text.tokenizer import RESERVED, Tokenizer

END_TOKEN = "<|endoftext|>"

CHUNKS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
"""GPT-2's pre-tokenizer, as in tokenizer.json."""

DEFAULTS = {"add_prefix_space": True, "use_regex": True}
"""Settings of a pre-tokenizer that older files may lack."""


class EndToken(NamedTuple):
    """The token that texts of a GPT-2 model start and end with."""

    number: int
    token: str


class Gpt2Vocabulary(NamedTuple):
    """The tokens of a GPT-2 model in the order of their ids, and its merges in order of priority."""

    entries: list[str]
    merges: list[tuple[str, str]]


def read_vocabulary(folder: Path) -> Gpt2Vocabulary:
    """Read tokenizer.json, or vocab.json and merges.txt; raise a `RegardError` if it is not a GPT-2 tokenizer.

    The files are checked as JSON and text; Hugging Face's `tokenizers` never sees what is not GPT-2's.
    """
    tokenizer_path, vocab, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if tokenizer_path.exists():
        path, content = tokenizer_path, read_json_table(tokenizer_path)
        check_content(content, path)
    elif vocab.exists() and merges.exists():
        path, content = vocab, {"model": {"vocab": read_json_table(vocab), "merges": read_merges(merges)}}
    else:
        raise RegardError(f"{folder}: expected tokenizer.json, or vocab.json and merges.txt; not found")
    vocabulary = content["model"].get("vocab")
    if not isinstance(vocabulary, dict):
        raise RegardError(f"{path}: vocab must be an object")
    missing = [byte for byte, character in enumerate(list_byte_characters()) if character not in vocabulary]
    if missing:
        raise RegardError(f"{path}: expected a token for every byte, got none for byte {missing[0]}")
    entries = list_tokens(vocabulary, content.get("added_tokens") or [], path)
    try:
        return Gpt2Vocabulary(entries, parse_merges(content["model"].get("merges"), vocabulary))
    except RegardError as error:
        raise RegardError(f"{path}: {error}") from None


def read_merges(path: Path) -> list[str]:
    """Read merges.txt, which has a merge on each line after a line with its version."""
    return [line for line in read_lines(path) if line and not line.startswith("#version")]


def list_tokens(vocabulary: Mapping[str, Any], added: list[Any], path: Path) -> list[str]:
    """Return all tokens in the order of their ids, which must be 0, 1, 2 and so on."""
    ids = dict(vocabulary)
    for token in added:
        ids.setdefault(token["content"], token.get("id"))
    if not all(type(token_id) is int for token_id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise RegardError(f"{path}: token ids must be 0 to {len(ids) - 1} without gaps")
    return sorted(ids, key=ids.__getitem__)


def check_content(content: dict[str, Any], path: Path) -> None:
    """Raise a `RegardError` if a tokenizer.json has settings that GPT-2 does not use."""
    model, chunks, added = (content.get(name) or {} for name in ("model", "pre_tokenizer", "added_tokens"))
    if not isinstance(model, dict) or not model or not isinstance(chunks, dict) or not isinstance(added or [], list):
        raise RegardError(f"{path} is corrupt: model and pre_tokenizer must be objects, and added_tokens a list")
    settings = {
        "type": (model.get("type", "BPE"), "BPE"),
        "normalizer": (content.get("normalizer"), None),
        **{f"pre_tokenizer {name}": (chunks.get(name, DEFAULTS.get(name)), value) for name, value in CHUNKS.items()},
        "dropout": (model.get("dropout") or None, None),
        "continuing_subword_prefix": (model.get("continuing_subword_prefix") or None, None),
        "end_of_word_suffix": (model.get("end_of_word_suffix") or None, None),
        "ignore_merges": (model.get("ignore_merges", False), False),
    }
    for name, (value, expected) in settings.items():
        if value != expected:
            raise RegardError(f"{path}: {name} must be {format_json(expected)} for GPT-2, got {format_json(value)}")
    for token in added:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise RegardError(f"{path}: expected an added token with its content, got {format_json(token)}")
        if not token.get("special"):
            raise RegardError(
                f"{path}: added tokens that are not special are not supported, got {format_json(token['content'])}"
            )


def from_gpt2(vocabulary: Gpt2Vocabulary, end: EndToken, location: Path) -> Tokenizer:
    """Build a tokenizer in which the end token is <eos> and all other tokens follow the reserved ones."""
    entries = [entry for entry in vocabulary.entries if entry != end.token]
    byte_alphabet = set(list_byte_characters())
    strange = [entry for entry in entries if not entry or not byte_alphabet.issuperset(entry)]
    if strange:
        raise RegardError(f"{location}: expected byte-level tokens, got {format_json(strange[0])}")
    merged = {entry for left, right in vocabulary.merges for entry in (left, right, left + right)}
    if end.token in merged or end.token in byte_alphabet:
        raise RegardError(f"{location}: expected an end token that is no part of words, got {format_json(end.token)}")
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
