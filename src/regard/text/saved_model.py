"""Read the model of a saved tokenizer, limited to what regard itself writes.

A file in the format of Hugging Face's `tokenizers` can name regular expressions and normalizers that take
unbounded time or memory. Here such a file is checked as plain JSON, and the model is built from its vocabulary
and merges alone, so the library never sees any other setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from regard.errors import RegardError, format_json
from regard.text.learn import (
    CHUNKS,
    UNKNOWN_ENTRY,
    add_chunking,
    build_character_model,
    build_word_model,
    split_at_line_ends,
)
from regard.text.pieces import WHITESPACE, list_byte_characters
from regard.text.tokenizer import RESERVED, SPECIAL, WORDS, Kind

MAX_ENTRIES = 2**24  # of a vocabulary, and of its merges
MODEL_TYPES: dict[Kind, str] = {
    "bpe": "BPE",
    "bytes": "BPE",
    "characters": "BPE",
    "unigram": "Unigram",
    "words": "WordLevel",
}
UNUSED = ("truncation", "padding", "post_processor", "decoder")
"""Parts that a saved tokenizer never has."""

SPACED = {"type": "Prepend", "prepend": " "}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2_CHUNKS = {**BYTE_LEVEL, "use_regex": True}
SPLIT_WORDS = {"type": "Split", "pattern": {"Regex": f"[{WHITESPACE}]+"}, "behavior": "Removed", "invert": False}
SPLIT_LINES = {"type": "Split", "pattern": {"Regex": WORDS.pattern}, "behavior": "Removed", "invert": True}
SPLIT_CHUNKS = {"type": "Split", "pattern": {"Regex": CHUNKS}, "behavior": "Isolated", "invert": False}
CHUNKED = {"type": "Sequence", "pretokenizers": [SPLIT_CHUNKS, BYTE_LEVEL]}
PRE_TOKENIZERS: dict[Kind, tuple[dict[str, Any] | None, ...]] = {
    "bpe": (CHUNKED, GPT2_CHUNKS),
    "bytes": (BYTE_LEVEL,),
    "characters": (None,),
    "unigram": (CHUNKED,),
    "words": (SPLIT_WORDS, SPLIT_LINES),
}
"""The ways to split a text that each kind may have."""


def parse_model(content: object, kind: Kind, location: str) -> tokenizers.Tokenizer:
    """Build the model of a tokenizer from its JSON content.

    Args:
        content: The content, in the format of Hugging Face's `tokenizers`.
        kind: The kind of the tokenizer, which decides what the content may have.
        location: Where the content is, for errors.

    Raises:
        RegardError: The content has a part that regard does not write, or vocabulary and merges are inconsistent.
    """
    try:
        return build_model(content, kind)
    except RegardError as error:
        raise RegardError(f"{location}: the model is corrupt: {error}") from None


def build_model(content: object, kind: Kind) -> tokenizers.Tokenizer:
    """Check the parts of a model and build it."""
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise RegardError("expected an object with a model")
    settings: dict[str, Any] = content["model"]
    for part in (*UNUSED, "added_tokens"):
        if content.get(part):
            raise RegardError(f"{part} must be null, got {format_json(content[part])}")
    spaced = is_spaced(content.get("normalizer"), kind)
    pre_tokenizer = find_pre_tokenizer(content.get("pre_tokenizer"), kind)
    check_settings(settings, kind)
    if kind == "unigram":
        return add_chunking(build_unigram(settings.get("vocab"), settings.get("unk_id")), spaced)
    entries = list_entries(settings.get("vocab"), kind)
    vocabulary = {entry: entry_id for entry_id, entry in enumerate(entries)}
    if kind == "words":
        model = build_word_model(vocabulary)
        return split_at_line_ends(model) if pre_tokenizer is SPLIT_LINES else model
    merges = parse_merges(settings.get("merges"), vocabulary)
    if kind in ("characters", "bytes") and merges:
        raise RegardError(f"merges must be empty for {kind}")
    if kind == "characters":
        return build_character_model(vocabulary)
    model = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    if pre_tokenizer is CHUNKED:
        return add_chunking(model, spaced)
    use_regex = pre_tokenizer is GPT2_CHUNKS
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return model


def is_spaced(normalizer: object, kind: Kind) -> bool:
    """Return whether a space is added before every text; raise a `RegardError` for any other normalizer."""
    if normalizer is None:
        return False
    if kind not in ("bpe", "unigram") or not has_settings(normalizer, SPACED):
        raise RegardError(f"unknown normalizer {format_json(normalizer)}")
    return True


def find_pre_tokenizer(pre_tokenizer: object, kind: Kind) -> dict[str, Any] | None:
    """Return the pre-tokenizer of `PRE_TOKENIZERS` that a file has; raise a `RegardError` if there is none."""
    for known in PRE_TOKENIZERS[kind]:
        if has_settings(pre_tokenizer, known):
            return known
    raise RegardError(f"unknown pre_tokenizer {format_json(pre_tokenizer)}")


def has_settings(value: object, expected: object) -> bool:
    """Return whether a JSON value has the expected settings and no other that is in use."""
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and all(has_settings(value.get(name), part) for name, part in expected.items())
            and not any(part for name, part in value.items() if name not in expected)
        )
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(has_settings, value, expected))
    return type(value) is type(expected) and value == expected


def check_settings(settings: Mapping[str, Any], kind: Kind) -> None:
    """Raise a `RegardError` if a model has settings that regard does not use."""
    expected = {"type": MODEL_TYPES[kind], "unk_token": UNKNOWN_ENTRY if kind in ("characters", "words") else None}
    for name, value in expected.items():
        if settings.get(name) != value:
            raise RegardError(f"{name} must be {format_json(value)} for {kind}, got {format_json(settings.get(name))}")
    for name, value in settings.items():
        if value and name not in ("type", "unk_token", "unk_id", "vocab", "merges"):
            raise RegardError(f"{format_json(name)} is not supported, got {format_json(value)}")


def list_entries(vocab: object, kind: Kind) -> list[str]:
    """Return the entries of a vocabulary in the order of their ids, which must be 0, 1, 2 and so on."""
    if not isinstance(vocab, dict):
        raise RegardError("vocab must be an object")
    ids = list(vocab.values())
    if not all(type(entry_id) is int for entry_id in ids) or sorted(ids) != list(range(len(ids))):
        raise RegardError(f"token ids must be 0 to {len(ids) - 1} without gaps")
    entries = sorted(vocab, key=vocab.__getitem__)
    check_entries(entries, kind)
    return entries


def check_entries(entries: Sequence[str], kind: Kind) -> None:
    """Raise a `RegardError` unless the entries of a vocabulary are possible for this kind."""
    if len(entries) > MAX_ENTRIES:
        raise RegardError(f"the vocabulary has {len(entries):,} entries; at most {MAX_ENTRIES:,} are supported")
    if tuple(entries[: len(RESERVED)]) != RESERVED:
        raise RegardError(f"it does not start with {', '.join(SPECIAL.values())}")
    others = entries[len(RESERVED) :]
    alphabet = set(list_byte_characters())
    for entry in others:
        if not entry or not is_valid_text(entry):
            raise RegardError(f"invalid entry {format_json(entry)} in the vocabulary")
        if kind in ("bpe", "bytes", "unigram") and not alphabet.issuperset(entry):
            raise RegardError(f"expected byte-level entries, got {format_json(entry)}")
    missing = alphabet.difference(others)
    if kind in ("bpe", "bytes", "unigram") and missing:
        raise RegardError(f"expected an entry for every byte, got none for {format_json(min(missing))}")


def parse_merges(merges: object, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a model; each must be a pair of entries that form a third.

    A merge is a list of two strings or, in older files, a string with a space between them.
    """
    if not isinstance(merges, list) or len(merges) > MAX_ENTRIES:
        raise RegardError("merges must be a list of pairs")
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise RegardError(f"expected a merge of two entries, got {format_json(merge)}")
        left, right = pair
        unknown = [entry for entry in (left, right, left + right) if entry not in vocabulary]
        if unknown:
            raise RegardError(f"merge {format_json(merge)}: {format_json(unknown[0])} is not in the vocabulary")
        pairs.append((left, right))
    return pairs


def build_unigram(vocab: object, unk_id: object) -> tokenizers.Tokenizer:
    """Build a unigram model from its entries with their scores."""
    if not isinstance(vocab, list):
        raise RegardError("vocab must be a list")
    for entry in vocab:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str) or not is_score(entry[1]):
            raise RegardError(f"expected an entry with its log-probability, got {format_json(entry)}")
    entries = [entry for entry, _ in vocab]
    if len(set(entries)) != len(entries):
        raise RegardError("the vocabulary has the same entry twice")
    check_entries(entries, "unigram")
    if unk_id != RESERVED.index(UNKNOWN_ENTRY):
        raise RegardError(f"unk_id must be {RESERVED.index(UNKNOWN_ENTRY)}, got {format_json(unk_id)}")
    scores = [(entry, float(score)) for entry, score in vocab]
    return tokenizers.Tokenizer(models.Unigram(scores, unk_id=RESERVED.index(UNKNOWN_ENTRY)))


def is_score(value: object) -> bool:
    """Return whether a value is a log-probability: at most 0, and finite also when many are added."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e6 <= value <= 0


def is_valid_text(text: str) -> bool:
    """Return whether a text can be encoded, which an unpaired surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
