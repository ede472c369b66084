"""What a request to tag words and an explanation of a tag can be told."""

from __future__ import annotations

from dataclasses import dataclass

ENDINGS = (".bio", ".bioes", ".conll", ".iob", ".iob2")
"""How the name of a file of tagged sentences ends."""


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Nothing: the words decide."""


@dataclass(frozen=True, kw_only=True)
class TagExplainOptions:
    """What of a sentence is explained.

    Attributes:
        word: Which word's tag to explain, counted from 0; the first whose tag is not O unless set.
        label: The tag to explain; the one that the model gives unless set.
    """

    word: int | None = None
    label: str | None = None
