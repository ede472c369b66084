"""Settings that every task has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError
from regard.settings import setting

Kind = Literal["auto", "characters", "words", "bpe", "unigram", "bytes"]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where examples come from."""

    task: str | None = None  # what is learnt, where neither the model nor the data tell
    train: str | None = setting(None, "path", "origin", "may_change")  # DATA, as it is called in a recipe
    valid: str | None = setting(None, "path", "may_change")  # the like to validate with, or a part of train is held out
    held_out: float = 0.05  # the share of train to validate with, where no valid is given

    def check_given(self, wanted: str) -> None:
        """Raise a `RegardError` unless there is something to train on, such as is wanted."""
        if self.train is None:
            raise RegardError(f"data: nothing to train on; give {wanted}")
        self.check_share()

    def check_share(self) -> None:
        """Raise a `RegardError` unless a part can be held out."""
        if not 0 < self.held_out < 1:
            raise RegardError(f"data: held_out is {self.held_out}; a share above 0 and below 1 is needed")


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How text becomes tokens."""

    kind: Kind = "auto"  # of tokens
    size: int | None = None  # of a vocabulary; to suit the data unless set
    least_count: int = 1  # a word (or character) that is rarer is unknown
