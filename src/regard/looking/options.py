"""What `look` can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from regard.errors import RegardError, unknown_name
from regard.settings import Between


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    """What every look can be told.

    Attributes:
        kind: Which attention, where a model has several; the first that it has unless set.
        words: Merge tokens that are parts of words to words; characters and special tokens stay as they are.
        top: Keep only so many weights of each row; all unless set, or the text has more than 1,000 tokens.
    """

    kind: str | None = None
    words: bool = True
    top: Annotated[int | None, Between(1, 10**6)] = None

    def __post_init__(self) -> None:
        check_positive("top", self.top)

    def kind_of(self, model: str, kinds: Iterable[str]) -> str:
        """The kind of attention that is asked for, the first that a model has unless told otherwise."""
        known = tuple(kinds)
        if self.kind is None:
            return known[0]
        if self.kind not in known:
            raise unknown_name(f"look: attention of {model}", self.kind, known)
        return self.kind


@dataclass(frozen=True, kw_only=True)
class TargetLookOptions(LookOptions):
    """What a look at a model that answers a source by a target can be told.

    Attributes:
        target: The target to look at; the one that the model predicts unless set.
        longest: Of the target that the model predicts, so many tokens at the most; twice those of its source and 50
            more unless set.
    """

    target: str | None = None
    longest: Annotated[int | None, Between(1, 100_000)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("longest", self.longest)


def check_positive(name: str, value: int | None) -> None:
    """Raise a `RegardError` for a number that is not above 0."""
    if value is not None and value < 1:
        raise RegardError(f"look: {name} is {value}; a whole number above 0 is needed")


def check_text(text: str) -> str:
    """The text, or a `RegardError` if there is nothing in it."""
    if not text.strip():
        raise RegardError("look: the text is empty")
    return text
