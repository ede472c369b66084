"""Base class and sampling functions of the built-in corpora.

Only `random()` of `random.Random` is guaranteed to give the same numbers in every version of
Python, so all sampling uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

from regard.data.example import Example, LinkedText
from regard.data.labeled import LabeledText
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError, unknown_name

Item = TypeVar("Item")

CorpusExample = Example | LabeledText | TaggedSentence | LinkedText
"""An example of a built-in corpus: of the task pairs, label, tag or text."""


class SampledExample(NamedTuple):
    """An example and its key: all examples of a key belong to the same split."""

    key: str
    example: CorpusExample


class SyntheticCorpus(ABC):
    """A generator of examples; subclasses are frozen dataclasses of their settings."""

    task: ClassVar[str] = "pairs"  # the task that the examples are for
    model: ClassVar[Mapping[str, Any]] = {}  # default model settings of a run on this corpus
    training: ClassVar[Mapping[str, Any]] = {}  # default training settings of a run on this corpus
    held_out: ClassVar[frozenset[str]] = frozenset()  # texts that never occur in the training split

    @abstractmethod
    def sample(self, random: Random) -> SampledExample:
        """Draw one example."""


def get_input(example: CorpusExample) -> str:
    """Return what a model reads of an example; no two examples of a generated list have the same."""
    if isinstance(example, Example):
        return example.source
    return " ".join(example.words) if isinstance(example, TaggedSentence) else example.text


def get_output(example: CorpusExample) -> str:
    """Return what a model is trained to predict for an example."""
    if isinstance(example, Example):
        return example.target
    if isinstance(example, LinkedText):
        return example.text
    return " ".join(example.tags if isinstance(example, TaggedSentence) else example.labels)


def sample_item(random: Random, items: Sequence[Item]) -> Item:
    """Draw an item uniformly."""
    return items[int(random.random() * len(items))]


def sample_int(random: Random, low: int, high: int) -> int:
    """Draw an integer from low to high, inclusive."""
    return low + int(random.random() * (high - low + 1))


def sample_bool(random: Random, share: float) -> bool:
    """Return True with probability `share`."""
    return random.random() < share


def check_names(setting: str, names: Sequence[str], choices: Sequence[str]) -> None:
    """Check that a list of names is not empty and contains only known names."""
    if not names:
        raise RegardError(f"{setting} is empty; choose from {', '.join(sorted(choices))}")
    for name in names:
        if name not in choices:
            raise unknown_name(setting, name, choices)


def import_extra(corpus: str, module: str, package: str) -> Any:
    """Import a module of the demo extra when a corpus needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise RegardError(f"{corpus}: {package} is not installed; pip install {package}") from None
