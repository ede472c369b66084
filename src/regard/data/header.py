"""Detect a header row that was read as the first pair of a table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from regard.data.example import Example
from regard.data.formats.lines import quote_text

COMMON_NAMES = {
    "source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "text", "label", "original",
    "translation", "reference", "question", "answer", "query", "response", "prompt", "completion",
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "zh", "ja", "english", "german", "french", "spanish",
    "italian", "portuguese", "dutch", "polish", "russian", "chinese", "japanese", "sentence1", "sentence2",
    "lemma", "form", "features", "tags", "phones", "phonemes", "pronunciation",
}  # fmt: skip
"""Common column names."""

MIN_PAIRS = 5  # pairs needed to judge that the first one differs from the rest


def is_header(first: Example, others: Sequence[Example]) -> bool:
    """Return whether the first pair looks like column names, given the pairs that follow.

    Both sides must look like names. They are a header if both are common column names, or if
    one side differs in kind from all texts below it. A side of several columns has a name in each.
    """
    sides = (first.source, first.target)
    names = [name for side in sides for name in side.split("\t")]
    if first.source == first.target or not all(re.fullmatch(r"[^\W\d][\w .-]{0,30}", name) for name in names):
        return False
    if all(name.lower() in COMMON_NAMES for name in names):
        return True
    below = (example.source for example in others), (example.target for example in others)
    return len(others) >= MIN_PAIRS and any(map(differs_in_kind, sides, below))


def differs_in_kind(name: str, texts: Iterable[str]) -> bool:
    """Return whether a name has no digit where all texts have one, or shares no character with any text."""
    letters = set(name)
    digits = apart = True
    for text in texts:
        digits = digits and any(map(str.isdigit, text))
        apart = apart and letters.isdisjoint(text)
        if not digits and not apart:
            return False
    return apart or not any(map(str.isdigit, name))


def format_header_note(first: Example) -> str:
    """Return the note that tells the user how to skip a header."""
    columns = shlex.quote(f"{first.source},{first.target}".replace("\t", "+"))
    return (
        f"pair 1, {quote_text(first.source)} -> {quote_text(first.target)}, looks like a header; "
        f"to skip it, pass --columns {columns}"
    )
