"""What every built-in corpus is, and how it draws: the same from a seed on every machine.

Of `random.Random` only `random()` promises the same numbers in every version of Python,
so everything here is made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

from regard.data.example import Example
from regard.errors import RegardError, unknown_name

Item = TypeVar("Item")


class Drawn(NamedTuple):
    """An example and the key that decides its part: all examples of a key are in train, or all in valid."""

    key: str
    example: Example


class Corpus(ABC):
    """A language of examples; a corpus is a frozen dataclass of its settings."""

    held_out: ClassVar[frozenset[str]] = frozenset()  # texts that are never trained on

    @abstractmethod
    def draw(self, random: Random) -> Drawn:
        """One example of the language."""


def pick(random: Random, items: Sequence[Item]) -> Item:
    """One of several, each as likely as any other."""
    return items[int(random.random() * len(items))]


def between(random: Random, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return low + int(random.random() * (high - low + 1))


def perhaps(random: Random, share: float) -> bool:
    """True in this share of all cases."""
    return random.random() < share


def check_names(setting: str, found: Sequence[str], known: Sequence[str]) -> None:
    """Refuse an empty list, and a name in it that is not known."""
    if not found:
        raise RegardError(f"{setting}: is empty; name at least one of {', '.join(sorted(known))}")
    for name in found:
        if name not in known:
            raise unknown_name(setting, name, known)


def extra(corpus: str, module: str, package: str) -> Any:
    """A module of the demo extra, imported when a corpus needs it and not before."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise RegardError(f"{corpus}: {package} is not installed; pip install 'regard[demo]'") from None
