"""Bounds of numbers: declared in the annotation of a setting or option, and checked in one place.

    layers: Annotated[int, Bounds(1, 1000)] = 4

A dataclass calls `check_bounds` in its `__post_init__`. Upper bounds are generous: they reject typing
errors and values that would run for ever, not large models.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from regard.errors import RegardError

MAX_SHOWN_BITS = 100
"""Integers with more bits are shown as a power of ten."""

MAX_VOCABULARY = 1_000_000_000
"""Maximum number of tokens, words or pieces in a vocabulary."""


class Bounds(NamedTuple):
    """The bounds of a number, used in its annotation. Each number has a lower and an upper bound."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    hint: str = ""  # what to do instead, at the end of the error; {dashes} becomes -- if the name is an option

    @property
    def is_complete(self) -> bool:
        """Whether there are a lower and an upper bound."""
        has_lower = self.minimum is not None or self.exclusive_minimum is not None
        return has_lower and (self.maximum is not None or self.exclusive_maximum is not None)

    def is_above_lower(self, value: float) -> bool:
        """Return whether a value keeps the lower bound; NaN does not."""
        above = self.exclusive_minimum is None or value > self.exclusive_minimum
        return above and (self.minimum is None or value >= self.minimum)

    def contains(self, value: float) -> bool:
        """Return whether a value is within the bounds."""
        below = self.exclusive_maximum is None or value < self.exclusive_maximum
        return self.is_above_lower(value) and below and (self.maximum is None or value <= self.maximum)

    def describe(self, value: float) -> str:
        """Describe the bound that a value violates; both bounds if they are of a share."""
        low = f"above {self.exclusive_minimum}" if self.minimum is None else f"at least {format_number(self.minimum)}"
        high = f"below {self.exclusive_maximum}" if self.maximum is None else f"at most {format_number(self.maximum)}"
        if 1 in (self.maximum, self.exclusive_maximum):
            return f"from {self.minimum} to 1" if (self.minimum, self.maximum) == (0, 1) else f"{low} and {high}"
        return high if self.is_above_lower(value) else low

    def check(self, name: str, value: float) -> None:
        """Raise a `RegardError` unless a value is within the bounds."""
        if not self.contains(value):
            hint = f"; {self.hint.format(dashes='--' if name.startswith('--') else '')}" if self.hint else ""
            raise RegardError(f"{name} must be {self.describe(value)}, got {format_number(value)}{hint}")


SEED_BOUNDS = Bounds(0, 2**32 - 1)

Count = Annotated[int, Bounds(0, 1_000_000_000)]
PositiveCount = Annotated[int, Bounds(1, 1_000_000_000)]
SmallCount = Annotated[int, Bounds(0, 1000)]
Share = Annotated[float, Bounds(0, exclusive_maximum=1)]
ClosedShare = Annotated[float, Bounds(0, 1)]
OpenShare = Annotated[float, Bounds(exclusive_minimum=0, exclusive_maximum=1)]
Power = Annotated[float, Bounds(exclusive_minimum=0, maximum=100)]  # of a distance
Seed = Annotated[int, SEED_BOUNDS]
Width = Annotated[int, Bounds(1, 100_000)]  # of vectors
Layers = Annotated[int, Bounds(1, 1000)]
Heads = Annotated[int, Bounds(1, 10_000)]
Length = Annotated[int, Bounds(1, 1_000_000)]  # in tokens
BatchTokens = Annotated[int, Bounds(1, 100_000_000)]
Epochs = Annotated[float, Bounds(exclusive_minimum=0, maximum=1_000_000)]
LearningRate = Annotated[float, Bounds(exclusive_minimum=0, maximum=10)]
VocabularySize = Annotated[int, Bounds(1, MAX_VOCABULARY)]


def check_bounds(settings: Any, prefix: str = "") -> None:
    """Raise a `RegardError` if a number of a dataclass, or of a tuple in it, is out of its bounds; None is allowed.

    Args:
        settings: The dataclass.
        prefix: What stands before a name in the error; with "--" names are written as options.
    """
    kind: type = type(settings)
    for name, bounds in get_bounds(kind).items():
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                bounds.check(prefix + (name.replace("_", "-") if prefix == "--" else name), number)


@cache
def get_bounds(kind: type) -> Mapping[str, Bounds]:
    """Return the bounds of the numbers of a dataclass, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: bounds for name, hint in hints.items() if (bounds := find_bounds(hint)) is not None}


def find_bounds(hint: Any) -> Bounds | None:
    """Return the bounds in a type annotation, or None."""
    if get_origin(hint) is Annotated:
        own = next((item for item in hint.__metadata__ if isinstance(item, Bounds)), None)
        return find_bounds(hint.__origin__) if own is None else own
    return next((bounds for part in get_args(hint) if (bounds := find_bounds(part)) is not None), None)


def format_number(value: float) -> str:
    """Format a number: integers with commas, or as a power of ten if they are very long."""
    if not isinstance(value, int):
        return str(value)
    if value.bit_length() > MAX_SHOWN_BITS:
        return f"about {'-' if value < 0 else ''}10^{round(value.bit_length() * 0.30103)}"
    return f"{value:,}"
