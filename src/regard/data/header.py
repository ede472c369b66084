"""Tells whether the first pair of a table is its header, read as if it were text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from regard.data.example import Example
from regard.data.formats.lines import quoted

NAMES = {
    "source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "text", "label", "original",
    "translation", "reference", "question", "answer", "query", "response", "prompt", "completion",
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "zh", "ja", "english", "german", "french", "spanish",
    "italian", "portuguese", "dutch", "polish", "russian", "chinese", "japanese", "sentence1", "sentence2",
}  # fmt: skip
"""What columns are often called."""

FEWEST = 5  # pairs by which a first one can be called different


def is_header(first: Example, others: Sequence[Example]) -> bool:
    """Whether a first pair looks like names of columns beside the pairs that follow.

    Both sides must look like names. They are a header if both are common ones, or if a side is
    of another kind than all texts below it.
    """
    sides = (first.source, first.target)
    if first.source == first.target or not all(re.fullmatch(r"[^\W\d][\w .-]{0,30}", side) for side in sides):
        return False
    if all(side.lower() in NAMES for side in sides):
        return True
    below = (each.source for each in others), (each.target for each in others)
    return len(others) >= FEWEST and any(map(is_of_another_kind, sides, below))


def is_of_another_kind(name: str, texts: Iterable[str]) -> bool:
    """Whether a name has no digit where all texts have one, or shares no character with any of them."""
    letters = set(name)
    digits = apart = True
    for text in texts:
        digits = digits and any(map(str.isdigit, text))
        apart = apart and letters.isdisjoint(text)
        if not digits and not apart:
            return False
    return apart or not any(map(str.isdigit, name))


def header_line(first: Example) -> str:
    """What to do about a header."""
    columns = shlex.quote(f"{first.source},{first.target}")
    return (
        f"pair 1, {quoted(first.source)} -> {quoted(first.target)}, looks like a header; "
        f"name the columns to skip it: --columns {columns}"
    )
