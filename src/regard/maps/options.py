"""Options of `look`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from regard.bounds import Bounds, check_bounds
from regard.errors import RegardError, unknown_name


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    """Options of `look` for every model.

    Attributes:
        kind: Kind of attention, for models with several (default: the first).
        words: Merge subword tokens into words; characters and special tokens are kept.
        top: Keep only this many weights per row (default: all, unless the text has more than 1,000 tokens).
    """

    kind: str | None = None
    words: bool = True
    top: Annotated[int | None, Bounds(1, 10**6)] = None

    def __post_init__(self) -> None:
        check_bounds(self, "look: ")

    def resolve_kind(self, model: str, kinds: Iterable[str]) -> str:
        """Return the kind of attention to show (default: the first), or raise `RegardError`."""
        available = tuple(kinds)
        if self.kind is None:
            return available[0]
        if self.kind not in available:
            raise unknown_name(f"look: {model}: kind", self.kind, available)
        return self.kind


@dataclass(frozen=True, kw_only=True)
class TargetLookOptions(LookOptions):
    """Options of `look` for models with a source and a target.

    Attributes:
        target: Target text (default: the prediction of the model).
        max_length: Maximum number of tokens of the predicted target (default: twice the source plus 50).
    """

    target: str | None = None
    max_length: Annotated[int | None, Bounds(1, 100_000)] = None


def check_not_empty(text: str) -> str:
    """Return the text, or raise `RegardError` if it is blank."""
    if not text.strip():
        raise RegardError("look: the text is empty")
    return text
