"""What labelled data looks like before a model learns from it, in plain words; and a part to validate with."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from regard.data.check import counted, first_of
from regard.data.example import Example
from regard.data.formats.lines import quoted
from regard.data.header import is_header
from regard.data.labelled import Labelled
from regard.errors import RegardError

SHOWN = 3  # examples of a note
EXPECTED = 5  # examples of a label that validation would have by its share, from which on it is said that it has none
UNEVEN = 10  # times as many examples has the commonest label as the rarest, from which on it is said

Read = tuple[str, str | None, tuple[str, ...]]
"""All that a model reads of an example: text, second text, context."""


@dataclass(frozen=True)
class Part:
    """Training or validation data in numbers."""

    name: str
    examples: int
    duplicates: int  # repeat an earlier example, label and all
    texts: int  # different ones
    labels: dict[str, int]  # how many examples have each, the commonest first
    torn: tuple[tuple[str, tuple[str, ...]], ...]  # texts that have different labels at different places, and these
    header: Labelled | None  # the first example, if it looks like names of columns

    def lines(self) -> Iterator[str]:
        """The same in words; what may be wrong is a note."""
        repeated = f", {self.duplicates} of them repeat an earlier one" if self.duplicates else ", no two alike"
        yield f"{self.name}: {counted(self.examples, 'example')}{repeated}"
        yield f"{self.name}: {self._labels()}"
        if self.header:
            text, label = self.header.text, self.header.labels[0]
            yield (
                f"note: {self.name}: example 1, {quoted(text)} -> {quoted(label)}, looks like a header; "
                "name the columns to skip it"
            )
        if len(self.labels) > self.texts:
            yield (
                f"note: {self.name}: {counted(len(self.labels), 'different label')} for "
                f"{counted(self.texts, 'different text')}; are the columns swapped?"
            )
        if self.torn:
            shown = "; ".join(
                f"{quoted(text)} -> {', '.join(map(plain, labels))}" for text, labels in self.torn[:SHOWN]
            )
            yield f"note: {self.name}: {counted(len(self.torn), 'text')} with different labels at times: {shown}"

    def _labels(self) -> str:
        """Every label with the number and share of its examples; of many the commonest."""
        given = sum(self.labels.values())
        each = [f"{plain(label)} {n} ({n / self.examples:.1%})" for label, n in self.labels.items()]
        several = f", {given / self.examples:.1f} an example" if given != self.examples else ""
        return f"{counted(len(each), 'label')}{several}: {first_of(each)}"

    def imbalance(self) -> Iterator[str]:
        """Whether the commonest label is far commoner than the rarest."""
        ordered = list(self.labels.items())
        (common, most), (rare, fewest) = ((plain(label), number) for label, number in (ordered[0], ordered[-1]))
        if most >= UNEVEN * fewest:
            yield (
                f"note: {self.name}: {common} is {most / fewest:.0f} times as common as {rare}; "
                f"{common} for every text would be right for {most / self.examples:.1%}"
            )


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    train: Part
    valid: Part | None
    seen: int  # examples of the validation data whose text is also in training
    unseen_labels: dict[str, int]  # of the validation data, that training never shows
    missing_labels: dict[str, int]  # of the training data, that validation never shows although they are common

    def lines(self) -> Iterator[str]:
        """The same in words, a line for each finding."""
        yield from self.train.lines()
        yield from self.train.imbalance()
        if self.valid is None:
            return
        yield from self.valid.lines()
        if self.seen == self.valid.examples:
            yield "note: validation: every text is also in training, so its scores will say nothing about new text"
        elif self.seen:
            share = self.seen / self.valid.examples
            yield f"note: validation: the text of {counted(self.seen, 'example')} ({share:.1%}) is also in training"
        else:
            yield "validation: no text is in training"
        if self.missing_labels:
            share = sum(self.missing_labels.values()) / sum(self.train.labels.values())
            none = first_of([plain(label) for label in self.missing_labels])
            yield (
                f"note: validation: has none of {none}, {share:.1%} of the labels in training; "
                "its scores say nothing about them"
            )
        if self.unseen_labels:
            each = [f"{plain(label)} {n}" for label, n in self.unseen_labels.items()]
            yield (
                f"note: validation: {counted(len(each), 'label')} never seen in training, so never predicted: "
                f"{first_of(each)}"
            )


def check(train: Sequence[Labelled], valid: Sequence[Labelled] = ()) -> Report:
    """Look at data before training; what cannot be right is a `RegardError`."""
    if not train:
        raise RegardError("training data: there are no examples; at least one is needed")
    labels, found, known = label_counts(train), label_counts(valid), {read_of(example) for example in train}
    for what, only, different in (("label", next(iter(labels), ""), len(labels)), ("text", train[0].text, len(known))):
        if different < 2:
            every = f"every {what} is {quoted(only)} ({counted(len(train), 'example')})"
            raise RegardError(f"training data: {every}; two that differ are the least to learn from")
    return Report(
        train=describe("training", train),
        valid=describe("validation", valid) if valid else None,
        seen=sum(read_of(example) in known for example in valid),
        unseen_labels={label: n for label, n in found.items() if label not in labels},
        missing_labels={
            label: n for label, n in labels.items() if label not in found and n * len(valid) >= EXPECTED * len(train)
        },
    )


def describe(name: str, examples: Sequence[Labelled]) -> Part:
    """Some data in numbers."""
    given = defaultdict[Read, dict[frozenset[str], None]](dict)
    for example in examples:
        given[read_of(example)][frozenset(example.labels)] = None
    pairs = [Example(example.text, "|".join(example.labels)) for example in examples]
    return Part(
        name=name,
        examples=len(examples),
        duplicates=len(examples) - sum(map(len, given.values())),
        texts=len({example.text for example in examples}),
        labels=label_counts(examples),
        torn=tuple(
            (read[0], tuple("|".join(sorted(labels)) for labels in sets))
            for read, sets in given.items()
            if len(sets) > 1
        ),
        header=examples[0] if is_header(pairs[0], pairs[1:]) else None,
    )


def label_counts(examples: Sequence[Labelled]) -> dict[str, int]:
    """How many examples have each label, the commonest first and equally common ones by name."""
    counts = Counter(label for example in examples for label in example.labels)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def plain(label: str) -> str:
    """A label in a message, without quotes."""
    return quoted(label, 40)[1:-1]


def read_of(example: Labelled) -> Read:
    """All that a model reads of an example."""
    return example.text, example.second, example.context


def hold_out(examples: Sequence[Labelled], share: float = 0.1, seed: int = 0) -> tuple[list[Labelled], list[Labelled]]:
    """Split off validation data, the same share of every label, the same for the same seed; both stay in order.

    An example of several labels counts for its rarest. What a model reads alike goes to one
    side, and one example of each label at least stays in training, so that nothing in validation
    was trained on and no label is first met there. Where no text repeats and labels are
    single, each misses its share by one example at most, or keeps that last one. Of dialogues
    whole ones are held out, if there are several: else validation would be read beside
    utterances that were trained on.
    """
    if not 0 < share < 1:
        raise RegardError(f"hold_out: share is {share}; one above 0 and below 1 is needed")
    several = len({example.dialogue for example in examples}) > 1
    for together in (attrgetter("dialogue"), read_of) if several else (read_of,):
        held = choose(examples, shuffled_strata(examples, together, seed), share)
        if held:
            valid = [example for place, example in enumerate(examples) if place in held]
            return [example for place, example in enumerate(examples) if place not in held], valid
    raise RegardError(
        f"hold_out: {counted(len(examples), 'example')}, no label with two different texts; "
        "one must stay in training and one is needed for validation"
    )


def choose(examples: Sequence[Labelled], strata: Sequence[Sequence[list[int]]], share: float) -> set[int]:
    """The places of a share of each stratum, whole groups only; what rounding leaves is owed to the next stratum.

    One group at least, if any can be spared.
    """
    left = Counter(label_counts(examples))
    held: set[int] = set()
    owed = 0.0
    for groups in strata:
        owed += share * sum(map(len, groups))
        for group in groups:
            if len(group) <= owed + 0.5 and can_spare(left, examples, group):
                held.update(group)
                left.subtract(label_counts([examples[place] for place in group]))
                owed -= len(group)
        owed = min(owed, 0.5)
    if held:
        return held
    for group in (group for groups in reversed(strata) for group in groups if can_spare(left, examples, group)):
        return set(group)
    return set()


def can_spare(left: Counter[str], examples: Sequence[Labelled], group: Sequence[int]) -> bool:
    """Whether every label of some examples is left to others in training."""
    return all(left[label] > number for label, number in label_counts([examples[place] for place in group]).items())


def shuffled_strata(
    examples: Sequence[Labelled], together: Callable[[Labelled], Hashable], seed: int
) -> list[list[list[int]]]:
    """For each label, the rarest first, what has it in random order: groups of examples that belong together."""
    alike = defaultdict[Hashable, list[int]](list)
    for place, example in enumerate(examples):
        alike[together(example)].append(place)
    order = {label: place for place, label in enumerate(reversed(label_counts(examples)))}
    strata = defaultdict[int, list[list[int]]](list)
    for group in alike.values():
        strata[min((order[label] for place in group for label in examples[place].labels), default=-1)].append(group)
    draw = random.Random(seed)
    for groups in strata.values():
        draw.shuffle(groups)
    return [strata[place] for place in sorted(strata)]
