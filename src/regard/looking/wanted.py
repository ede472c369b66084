"""What is asked of a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import RegardError, unknown_name


@dataclass(frozen=True)
class Wanted:
    """The options of `regard.looking.look`, which describes them."""

    target: str | None
    second: str | None
    context: Sequence[str] | None
    words: bool
    kind: str | None
    top: int | None
    longest: int | None = None

    def __post_init__(self) -> None:
        for name in ("top", "longest"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RegardError(f"look: {name} is {value}; a whole number above 0 is needed")

    def allow(self, model: str, *names: str) -> None:
        """Raise a `RegardError` for what is told of a text that means nothing to a model."""
        for name in ("target", "second", "context", "longest"):
            if getattr(self, name) is not None and name not in names:
                raise RegardError(f"look: {name} is for other models than {model}; leave it out")

    def kind_of(self, model: str, *kinds: str) -> str:
        """The kind of attention that is asked for, the first that a model has unless told otherwise."""
        if self.kind is None:
            return kinds[0]
        if self.kind not in kinds:
            raise unknown_name(f"look: attention of {model}", self.kind, kinds)
        return self.kind
