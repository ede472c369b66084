"""Options of requests and explain for taggers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.bounds import Bounds, check_bounds

ENDINGS = (".bio", ".bioes", ".conll", ".iob", ".iob2")
"""Suffixes of files of tagged sentences."""


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Options of a request; taggers have none."""


@dataclass(frozen=True, kw_only=True)
class TagExplainOptions:
    """Options of `explain` for a tagger.

    Attributes:
        word: Index of the word whose tag to explain, from 0; by default the first with a tag other than O.
        label: The tag to explain; by default the predicted one.
    """

    word: Annotated[int | None, Bounds(0, 1_000_000)] = None
    label: str | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "explain: ")
