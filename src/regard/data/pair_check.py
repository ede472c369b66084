"""Check parallel data before training, and split off validation data."""

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
from regard.data.formats.lines import quote_text
from regard.data.header import format_header_note, is_header
from regard.data.swapped import find_swapped
from regard.errors import RegardError

MAX_SHOWN = 3  # examples shown per suspicion
LISTED = 12  # labels or tags listed with their counts
FAR, APART = np.log(3), 20  # an outlier is off by a factor of 3 and by this many characters

ALSO_IN_TRAINING = "is also in the training data, so the scores do not measure generalization"

SPACING = re.compile(r"  |[\t\n\r]")
SPACING_OF_COLUMNS = re.compile(r"  |[\n\r]")  # a tab separates columns

MAX_LABELS, MIN_PAIRS_PER_LABEL = 100, 20
"""Targets look like labels if there are at most this many distinct ones, with this many pairs each on average."""


@dataclass(frozen=True)
class LengthSummary:
    """Median and maximum length of one side."""

    median_words: float
    max_words: int
    median_characters: float
    max_characters: int

    def __str__(self) -> str:
        return (
            f"words: median {self.median_words:g}, longest {self.max_words}; "
            f"characters: median {self.median_characters:g}, longest {self.max_characters}"
        )


@dataclass(frozen=True)
class Suspicion:
    """A possible problem: a description, the number of pairs, and the first few with their numbers, from 1."""

    description: str
    pairs: int
    examples: tuple[tuple[int, Example], ...]

    def __str__(self) -> str:
        shown = "; ".join(f"pair {n}, {quote_text(e.source)} -> {quote_text(e.target)}" for n, e in self.examples)
        return f"{pluralize(self.pairs, 'pair')} {self.description}: {shown}"


@dataclass(frozen=True)
class PairPartSummary:
    """Statistics of the training or validation data."""

    name: str
    pairs: int
    duplicates: int
    source: LengthSummary
    target: LengthSummary
    suspicions: tuple[Suspicion, ...]
    header: Example | None = None  # the first pair, if it looks like column names

    def lines(self) -> list[str]:
        """Return the statistics as text; possible problems start with "note:"."""
        return [
            f"{self.name}: {pluralize(self.pairs, 'pair')}, {format_duplicates(self.duplicates)}",
            f"{self.name}, source: {self.source}",
            f"{self.name}, target: {self.target}",
            *([f"note: {self.name}: {format_header_note(self.header)}"] if self.header else []),
            *(f"note: {self.name}: {suspicion}" for suspicion in self.suspicions),
        ]


@dataclass(frozen=True)
class PairDataSummary:
    """The result of `summarize_pair_data`."""

    train: PairPartSummary
    targets: int  # distinct training targets
    valid: PairPartSummary | None
    overlapping_pairs: int  # validation pairs that are also training pairs
    overlapping_sources: int  # validation pairs whose source is also in the training data
    swapped: bool  # whether source and target of the validation data look swapped

    def lines(self) -> list[str]:
        """Return the result as text, one finding per line."""
        valid = [] if self.valid is None else [*self.valid.lines(), *self._compare_parts(self.valid)]
        return [*self.train.lines(), *self._note_few_targets(), *valid]

    def _note_few_targets(self) -> Iterator[str]:
        """Yield a note if the targets look like labels."""
        if self.targets <= MAX_LABELS and self.train.pairs >= MIN_PAIRS_PER_LABEL * self.targets:
            yield (
                f"note: training: {pluralize(self.targets, 'distinct target')} in "
                f"{pluralize(self.train.pairs, 'pair')}; if they are labels, pass --task label"
            )

    def _compare_parts(self, valid: PairPartSummary) -> Iterator[str]:
        """Yield how much the training and validation data overlap."""
        if self.overlapping_pairs == valid.pairs:
            yield f"note: validation: every pair {ALSO_IN_TRAINING}"
        elif self.overlapping_sources:
            pairs, sources = pluralize(self.overlapping_pairs, "pair"), pluralize(self.overlapping_sources, "source")
            yield (
                f"note: validation: {pairs} ({self.overlapping_pairs / valid.pairs:.1%}) and "
                f"{sources} ({self.overlapping_sources / valid.pairs:.1%}) are also in the training data"
            )
        else:
            yield "validation: no source is in the training data"
        if self.swapped:
            yield "note: validation: source and target look swapped, compared with the training data"


def summarize_pair_data(train: Sequence[Example], valid: Sequence[Example] = ()) -> PairDataSummary:
    """Check parallel data before training.

    Args:
        train: Training pairs.
        valid: Validation pairs, if any.

    Returns:
        Statistics and possible problems; `lines()` gives them as text.

    Raises:
        RegardError: Nothing can be learned from the training data: it is empty, all sources or all targets are equal,
            or all pairs are also in the validation data.
    """
    check_learnable(train)
    pairs = {(example.source, example.target) for example in train}
    sources = {source for source, _ in pairs}
    shared_pairs = {(example.source, example.target) for example in valid} & pairs
    if len(shared_pairs) == len(pairs):
        raise RegardError(f"training data: all {len(train)} pairs are also in the validation data; use different files")
    swapped = find_swapped(train, valid)
    return PairDataSummary(
        train=summarize_pair_part("training", train, swapped.train, train[1:]),
        targets=len({target for _, target in pairs}),
        valid=summarize_pair_part("validation", valid, swapped.valid, train[1:]) if valid else None,
        overlapping_pairs=sum((example.source, example.target) in shared_pairs for example in valid),
        overlapping_sources=sum(example.source in sources for example in valid),
        swapped=swapped.all_valid,
    )


def check_learnable(train: Sequence[Example]) -> None:
    """Raise a `RegardError` if nothing can be learned from the training data."""
    if not train:
        raise RegardError("training data is empty: expected at least one pair")
    for side in ("source", "target"):
        first = getattr(train[0], side)
        if all(getattr(example, side) == first for example in train) and (len(train) > 1 or not first.strip()):
            problem = f"every {side} is {quote_text(first)}" if first.strip() else f"every {side} is empty"
            raise RegardError(
                f"training data: {problem} ({pluralize(len(train), 'pair')}); are these the right columns?"
            )


def summarize_pair_part(
    name: str, examples: Sequence[Example], swapped: Sequence[int], others: Sequence[Example]
) -> PairPartSummary:
    """Compute the statistics of one part; `swapped` lists suspect pairs, `others` helps to detect a header."""
    spacing = SPACING_OF_COLUMNS if all("\t" in example.target for example in examples) else SPACING
    suspects = {
        "where one side is unusually long for the other": find_length_outliers(examples),
        "where the target is a copy of the source": [n for n, e in enumerate(examples) if e.source == e.target],
        "where source and target look swapped": swapped,
        "where the target has line breaks, tabs or repeated spaces, which the words tokenizer does not preserve": [
            n for n, e in enumerate(examples) if spacing.search(e.target)
        ],
    }
    return PairPartSummary(
        name=name,
        pairs=len(examples),
        duplicates=len(examples) - len({(example.source, example.target) for example in examples}),
        source=summarize_lengths([example.source for example in examples]),
        target=summarize_lengths([example.target for example in examples]),
        suspicions=tuple(
            Suspicion(description, len(indices), tuple((n + 1, examples[n]) for n in indices[:MAX_SHOWN]))
            for description, indices in suspects.items()
            if indices
        ),
        header=examples[0] if is_header(examples[0], others) else None,
    )


def summarize_lengths(texts: Sequence[str]) -> LengthSummary:
    """Compute median and maximum length of texts."""
    characters, words = [len(text) for text in texts], [len(text.split()) for text in texts]
    return LengthSummary(median(words), max(words), median(characters), max(characters))


def find_length_outliers(examples: Sequence[Example]) -> list[int]:
    """Return the indices of pairs whose length ratio is far from the median ratio.

    The log ratio must be more than six standard deviations from the median (estimated from the
    median absolute deviation, which is robust to outliers), and the target more than three times
    too long or too short. Differences of a few characters are ignored.
    """
    source = np.array([len(example.source) for example in examples]) + 1.0
    target = np.array([len(example.target) for example in examples]) + 1.0
    ratio = np.log(target / source)
    usual = np.median(ratio)
    deviation = np.abs(ratio - usual)
    far = deviation > max(6 * 1.4826 * np.median(deviation), FAR)
    apart = np.abs(target - source * np.exp(usual)) > APART
    return [int(index) for index in np.flatnonzero(far & apart)]


def compute_unknown_share(texts: Iterable[Sequence[int]]) -> float:
    """Return the share of unknown tokens in encoded texts."""
    ids = list(chain.from_iterable(texts))
    return ids.count(UNKNOWN) / max(1, len(ids))


def split_validation_pairs(
    examples: Sequence[Example], share: float = 0.05, max_count: int = 1000, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split off random validation pairs, reproducible by seed.

    All pairs with the same source stay on one side, so validation contains nothing that was trained on.

    Args:
        examples: All pairs.
        share: Share of the pairs to use for validation, above 0 and below 1.
        max_count: Maximum number of validation pairs.
        seed: Seed of the random choice.

    Returns:
        Training and validation pairs, each in the original order.

    Raises:
        RegardError: An argument is out of range, or there are fewer than two distinct sources.
    """
    if not 0 < share < 1:
        raise RegardError(f"validation_share must be above 0 and below 1, got {share}")
    if max_count < 1:
        raise RegardError(f"max_validation must be at least 1, got {max_count}")
    groups = defaultdict[str, list[int]](list)
    for index, example in enumerate(examples):
        groups[example.source].append(index)
    if len(groups) < 2:
        raise RegardError(
            f"validation split: expected at least 2 distinct sources, got {len(groups)} "
            f"in {pluralize(len(examples), 'pair')}"
        )
    count = max(1, min(round(len(examples) * share), max_count, len(examples) - 1))
    validation_indices = set(sample_groups(list(groups.values()), count, seed))
    valid = [example for index, example in enumerate(examples) if index in validation_indices]
    return [example for index, example in enumerate(examples) if index not in validation_indices], valid


def sample_groups(groups: list[list[int]], count: int, seed: int) -> list[int]:
    """Return the indices of randomly chosen whole groups, at most `count` in total; the smallest if none fits."""
    random.Random(seed).shuffle(groups)
    chosen: list[int] = []
    for group in groups:
        if len(chosen) + len(group) <= count:
            chosen += group
    return chosen or min(groups, key=len)


def join_first(entries: Sequence[str]) -> str:
    """Join the first entries, and say how many more there are."""
    more = f", and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return f"{', '.join(entries[:LISTED])}{more}"


def format_duplicates(count: int) -> str:
    """Return "no duplicates", "1 duplicate" or "2 duplicates"."""
    return pluralize(count, "duplicate") if count else "no duplicates"


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: "1 pair", "2 pairs", "1,000 pairs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
