"""What data looks like before a model learns from it, in plain words; and what cannot be right, refused."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

import numpy as np

from regard.batch import UNKNOWN
from regard.data.example import Example
from regard.data.formats.lines import quoted
from regard.data.header import header_line, is_header
from regard.data.sides import find_swapped
from regard.errors import RegardError

SHOWN = 3  # examples of each suspicion
LISTED = 12  # labels, or tags, that are counted one by one
FAR, APART = np.log(3), 20  # a ratio is far off from three times the usual on, where that makes this many characters

SPACING = re.compile(r"  |[\t\n\r]")

MOST_LABELS, EACH = 100, 20
"""Different targets, and pairs for each of them, from which on they look like labels."""


@dataclass(frozen=True)
class Lengths:
    """The median and the longest, of one side."""

    words: float
    most_words: int
    characters: float
    most_characters: int

    def __str__(self) -> str:
        return (
            f"words: median {self.words:g}, longest {self.most_words}; "
            f"characters: median {self.characters:g}, longest {self.most_characters}"
        )


@dataclass(frozen=True)
class Suspicion:
    """Pairs that may be wrong: what of them, how many, and the first few with their numbers, counted from 1."""

    what: str
    pairs: int
    examples: tuple[tuple[int, Example], ...]

    def __str__(self) -> str:
        shown = "; ".join(f"pair {n}, {quoted(e.source)} -> {quoted(e.target)}" for n, e in self.examples)
        return f"in {counted(self.pairs, 'pair')} {self.what}: {shown}"


@dataclass(frozen=True)
class Part:
    """Training or validation data in numbers."""

    name: str
    pairs: int
    duplicates: int
    source: Lengths
    target: Lengths
    suspicions: tuple[Suspicion, ...]
    header: Example | None = None  # the first pair, if it looks like names of columns

    def lines(self) -> list[str]:
        """The same in words; what may be wrong is a note."""
        repeated = f", {self.duplicates} of them repeat an earlier one" if self.duplicates else ", no two alike"
        return [
            f"{self.name}: {counted(self.pairs, 'pair')}{repeated}",
            f"{self.name}, source: {self.source}",
            f"{self.name}, target: {self.target}",
            *([f"note: {self.name}: {header_line(self.header)}"] if self.header else []),
            *(f"note: {self.name}: {suspicion}" for suspicion in self.suspicions),
        ]


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    train: Part
    targets: int  # different ones to train on
    valid: Part | None
    seen_pairs: int  # of the validation data, that are also training pairs
    seen_sources: int  # of the validation data, that are also sources of training pairs
    swapped: bool  # whether source and target of the validation data seem exchanged

    def lines(self) -> list[str]:
        """The same in words, a line for each finding."""
        valid = [] if self.valid is None else [*self.valid.lines(), *self._between(self.valid)]
        return [*self.train.lines(), *self._few_targets(), *valid]

    def _few_targets(self) -> Iterator[str]:
        """Whether the targets look like labels."""
        if self.targets <= MOST_LABELS and self.train.pairs >= EACH * self.targets:
            yield (
                f"note: training: {counted(self.targets, 'different target')} for {counted(self.train.pairs, 'pair')}; "
                "if they are labels, --task label suits them better"
            )

    def _between(self, valid: Part) -> Iterator[str]:
        """What training and validation data have to do with each other."""
        if self.seen_pairs == valid.pairs:
            yield "note: validation: every pair is also a training pair, so its scores will say nothing about new text"
        elif self.seen_sources:
            pairs, sources = counted(self.seen_pairs, "pair"), counted(self.seen_sources, "source")
            yield (
                f"note: validation: {pairs} ({self.seen_pairs / valid.pairs:.1%}) and "
                f"{sources} ({self.seen_sources / valid.pairs:.1%}) are also in training"
            )
        else:
            yield "validation: no source is in training"
        if self.swapped:
            yield (
                "note: validation: its sources look like training targets and its targets like sources; "
                "are they swapped?"
            )


def check(train: Sequence[Example], valid: Sequence[Example] = ()) -> Report:
    """Look at data before training; what cannot be right is a `RegardError`."""
    refuse_hopeless(train)
    pairs = {(example.source, example.target) for example in train}
    sources = {source for source, _ in pairs}
    seen = {(example.source, example.target) for example in valid} & pairs
    if len(seen) == len(pairs):
        raise RegardError(
            f"training data: each of its {len(train)} pairs is in the validation data too; give data that differ"
        )
    swapped = find_swapped(train, valid)
    return Report(
        train=describe("training", train, swapped.train, train[1:]),
        targets=len({target for _, target in pairs}),
        valid=describe("validation", valid, swapped.valid, train[1:]) if valid else None,
        seen_pairs=sum((example.source, example.target) in seen for example in valid),
        seen_sources=sum(example.source in sources for example in valid),
        swapped=swapped.all_valid,
    )


def refuse_hopeless(train: Sequence[Example]) -> None:
    """Raise a `RegardError` for training data from which nothing can be learnt."""
    if not train:
        raise RegardError("training data: there are no pairs; at least one is needed")
    for side in ("source", "target"):
        first = getattr(train[0], side)
        if all(getattr(example, side) == first for example in train) and (len(train) > 1 or not first.strip()):
            found = f"every {side} is {quoted(first)}" if first.strip() else f"every {side} is empty"
            raise RegardError(f"training data: {found} ({counted(len(train), 'pair')}); are these the right columns?")


def describe(name: str, examples: Sequence[Example], swapped: Sequence[int], others: Sequence[Example]) -> Part:
    """Some data in numbers; the pairs that look swapped are given, and others beside which to see a header."""
    suspects = {
        "one side is far too long for the other": far_off(examples),
        "the target is a copy of the source": [n for n, e in enumerate(examples) if e.source == e.target],
        "source and target look swapped": swapped,
        "the target has line breaks, tabs or several spaces, which tokens of the kind words do not keep": [
            n for n, e in enumerate(examples) if SPACING.search(e.target)
        ],
    }
    return Part(
        name=name,
        pairs=len(examples),
        duplicates=len(examples) - len({(example.source, example.target) for example in examples}),
        source=lengths([example.source for example in examples]),
        target=lengths([example.target for example in examples]),
        suspicions=tuple(
            Suspicion(what, len(places), tuple((n + 1, examples[n]) for n in places[:SHOWN]))
            for what, places in suspects.items()
            if places
        ),
        header=examples[0] if is_header(examples[0], others) else None,
    )


def lengths(texts: Sequence[str]) -> Lengths:
    """How long texts are."""
    characters, words = [len(text) for text in texts], [len(text.split()) for text in texts]
    return Lengths(median(words), max(words), median(characters), max(characters))


def far_off(examples: Sequence[Example]) -> list[int]:
    """Pairs whose ratio of lengths is far from the usual one, by far more than is usual.

    A ratio is far off if its logarithm is over six standard deviations from the median (estimated
    from the median deviation, which outliers do not move), and the target over three times too
    long or too short. Where that is a matter of a few characters nothing is said.
    """
    source = np.array([len(example.source) for example in examples]) + 1.0
    target = np.array([len(example.target) for example in examples]) + 1.0
    ratio = np.log(target / source)
    usual = np.median(ratio)
    off = np.abs(ratio - usual)
    far = off > max(6 * 1.4826 * np.median(off), FAR)
    apart = np.abs(target - source * np.exp(usual)) > APART
    return [int(place) for place in np.flatnonzero(far & apart)]


def unknown_share(texts: Iterable[Sequence[int]]) -> float:
    """Which share of the tokens, or words, of some encoded texts the vocabulary does not know."""
    ids = list(chain.from_iterable(texts))
    return ids.count(UNKNOWN) / max(1, len(ids))


def hold_out(
    examples: Sequence[Example], share: float = 0.05, most: int = 1000, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split off validation data, the same for the same seed: training and validation examples, in their order.

    All examples of one source go to one side, so that nothing in validation was trained on.
    """
    if not 0 < share < 1 or most < 1:
        raise RegardError(f"hold_out: share is {share}, most is {most}; 0 < share < 1 and most >= 1 are needed")
    groups = defaultdict[str, list[int]](list)
    for place, example in enumerate(examples):
        groups[example.source].append(place)
    if len(groups) < 2:
        raise RegardError(
            f"hold_out: {counted(len(examples), 'pair')} with {counted(len(groups), 'different source')}; "
            "two sources are needed to keep one for validation"
        )
    wanted = max(1, min(round(len(examples) * share), most, len(examples) - 1))
    held = set(choose(list(groups.values()), wanted, seed))
    valid = [example for place, example in enumerate(examples) if place in held]
    return [example for place, example in enumerate(examples) if place not in held], valid


def choose(groups: list[list[int]], wanted: int, seed: int) -> list[int]:
    """Places of whole groups chosen at random, together as many as wanted or a few less; the smallest if none fits."""
    random.Random(seed).shuffle(groups)
    chosen: list[int] = []
    for group in groups:
        if len(chosen) + len(group) <= wanted:
            chosen += group
    return chosen or min(groups, key=len)


def first_of(each: Sequence[str]) -> str:
    """The first of some, and how many more there are."""
    more = f", and {len(each) - LISTED} more" if len(each) > LISTED else ""
    return f"{', '.join(each[:LISTED])}{more}"


def counted(number: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number} {what}{'' if number == 1 else 's'}"
