"""Check labeled data before training, and split off validation data."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from regard.data.example import Example
from regard.data.formats.lines import quote_text
from regard.data.header import is_header
from regard.data.labeled import LabeledText
from regard.data.pair_check import ALSO_IN_TRAINING, format_duplicates, join_first, pluralize
from regard.errors import RegardError

MAX_SHOWN = 3  # examples shown in a note
MIN_EXPECTED = 5  # expected validation examples of a label from which its absence is reported
MIN_IMBALANCE = 10  # ratio of the most to the least frequent label from which it is reported

ModelInput = tuple[str, str | None, tuple[str, ...]]
"""Everything the model reads of an example: text, second text, context."""


@dataclass(frozen=True)
class LabelPartSummary:
    """Statistics of the training or validation data."""

    name: str
    examples: int
    duplicates: int  # examples that repeat an earlier one, including its labels
    texts: int  # distinct texts
    labels: dict[str, int]  # number of examples per label, most frequent first
    inconsistent: tuple[tuple[str, tuple[str, ...]], ...]  # texts with conflicting labels, and the labels
    header: LabeledText | None  # the first example, if it looks like column names

    def lines(self) -> Iterator[str]:
        """Yield the statistics as text; possible problems start with "note:"."""
        yield f"{self.name}: {pluralize(self.examples, 'example')}, {format_duplicates(self.duplicates)}"
        yield f"{self.name}: {self._format_labels()}"
        if self.header:
            text, label = self.header.text, self.header.labels[0]
            yield (
                f"note: {self.name}: example 1, {quote_text(text)} -> {quote_text(label)}, looks like a header; "
                "to skip it, name the columns with --columns"
            )
        if len(self.labels) > self.texts:
            yield (
                f"note: {self.name}: {pluralize(len(self.labels), 'distinct label')} but only "
                f"{pluralize(self.texts, 'distinct text')}; are the columns swapped?"
            )
        if self.inconsistent:
            shown = "; ".join(
                f"{quote_text(text)} -> {', '.join(map(shorten_label, labels))}"
                for text, labels in self.inconsistent[:MAX_SHOWN]
            )
            yield f"note: {self.name}: {pluralize(len(self.inconsistent), 'text')} with conflicting labels: {shown}"

    def _format_labels(self) -> str:
        """Return the labels with the number and share of their examples, most frequent first."""
        total = sum(self.labels.values())
        entries = [f"{shorten_label(label)} {n} ({n / self.examples:.1%})" for label, n in self.labels.items()]
        average = f", {total / self.examples:.1f} per example" if total != self.examples else ""
        return f"{pluralize(len(entries), 'label')}{average}: {join_first(entries)}"

    def format_imbalance(self) -> Iterator[str]:
        """Yield a note if the most frequent label is much more frequent than the least frequent one."""
        ordered = list(self.labels.items())
        (common, max_count), (rare, min_count) = (
            (shorten_label(label), count) for label, count in (ordered[0], ordered[-1])
        )
        if max_count >= MIN_IMBALANCE * min_count:
            yield (
                f"note: {self.name}: {common} is {max_count / min_count:.0f} times as common as {rare}; "
                f"always predicting {common} would be right for {max_count / self.examples:.1%} of examples"
            )


@dataclass(frozen=True)
class LabelDataSummary:
    """The result of `summarize_label_data`."""

    train: LabelPartSummary
    valid: LabelPartSummary | None
    overlapping: int  # validation examples whose text is also in the training data
    unseen_labels: dict[str, int]  # validation labels that are missing from the training data
    missing_labels: dict[str, int]  # frequent training labels that are missing from the validation data

    def lines(self) -> Iterator[str]:
        """Yield the result as text, one finding per line."""
        yield from self.train.lines()
        yield from self.train.format_imbalance()
        if self.valid is None:
            return
        yield from self.valid.lines()
        if self.overlapping == self.valid.examples:
            yield f"note: validation: every text {ALSO_IN_TRAINING}"
        elif self.overlapping:
            share = self.overlapping / self.valid.examples
            texts = pluralize(self.overlapping, "example")
            yield f"note: validation: the text of {texts} ({share:.1%}) is also in the training data"
        else:
            yield "validation: no text is in the training data"
        if self.missing_labels:
            share = sum(self.missing_labels.values()) / sum(self.train.labels.values())
            none = join_first([shorten_label(label) for label in self.missing_labels])
            yield (
                f"note: validation: no examples of {none} ({share:.1%} of the training labels), "
                "so the scores do not cover them"
            )
        if self.unseen_labels:
            entries = [f"{shorten_label(label)} {n}" for label, n in self.unseen_labels.items()]
            yield (
                f"note: validation: {pluralize(len(entries), 'label')} missing from the training data, "
                f"so never predicted: {join_first(entries)}"
            )


def summarize_label_data(train: Sequence[LabeledText], valid: Sequence[LabeledText] = ()) -> LabelDataSummary:
    """Check labeled data before training.

    Args:
        train: Training examples.
        valid: Validation examples, if any.

    Returns:
        Statistics and possible problems; `lines()` gives them as text.

    Raises:
        RegardError: Nothing can be learned from the training data: it is empty, or all labels or all texts are equal.
    """
    if not train:
        raise RegardError("training data is empty: expected at least one example")
    labels, valid_labels, inputs = count_labels(train), count_labels(valid), {get_input(example) for example in train}
    for kind, only, different in (("label", next(iter(labels), ""), len(labels)), ("text", train[0].text, len(inputs))):
        if different < 2:
            every = f"every {kind} is {quote_text(only)} ({pluralize(len(train), 'example')})"
            raise RegardError(f"training data: {every}; expected at least two different {kind}s")
    return LabelDataSummary(
        train=summarize_label_part("training", train),
        valid=summarize_label_part("validation", valid) if valid else None,
        overlapping=sum(get_input(example) in inputs for example in valid),
        unseen_labels={label: n for label, n in valid_labels.items() if label not in labels},
        missing_labels={
            label: n
            for label, n in labels.items()
            if label not in valid_labels and n * len(valid) >= MIN_EXPECTED * len(train)
        },
    )


def summarize_label_part(name: str, examples: Sequence[LabeledText]) -> LabelPartSummary:
    """Compute the statistics of the training or validation data."""
    label_sets = defaultdict[ModelInput, dict[frozenset[str], None]](dict)
    for example in examples:
        label_sets[get_input(example)][frozenset(example.labels)] = None
    pairs = [Example(example.text, "|".join(example.labels)) for example in examples]
    return LabelPartSummary(
        name=name,
        examples=len(examples),
        duplicates=len(examples) - sum(map(len, label_sets.values())),
        texts=len({example.text for example in examples}),
        labels=count_labels(examples),
        inconsistent=tuple(
            (read[0], tuple("|".join(sorted(labels)) for labels in sets))
            for read, sets in label_sets.items()
            if len(sets) > 1
        ),
        header=examples[0] if is_header(pairs[0], pairs[1:]) else None,
    )


def count_labels(examples: Sequence[LabeledText]) -> dict[str, int]:
    """Return the number of examples per label, most frequent first, ties by name."""
    counts = Counter(label for example in examples for label in example.labels)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def shorten_label(label: str) -> str:
    """Return a label shortened for a message, without quotes."""
    return quote_text(label, 40)[1:-1]


def get_input(example: LabeledText) -> ModelInput:
    """Return everything the model reads of an example."""
    return example.text, example.second, example.context


def split_validation_labeled(
    examples: Sequence[LabeledText], share: float = 0.1, seed: int = 0
) -> tuple[list[LabeledText], list[LabeledText]]:
    """Split off validation data: a random share of every label, reproducible by seed.

    An example with several labels counts for its rarest label. Examples with the same input stay
    on one side, and every label keeps at least one training example, so validation contains
    nothing that was trained on and no label that is new. If there are several dialogues, whole
    dialogues are split off; otherwise the context of a validation example would be training data.

    Args:
        examples: All examples.
        share: Share of each label to use for validation, above 0 and below 1.
        seed: Seed of the random choice.

    Returns:
        Training and validation examples, each in the original order.

    Raises:
        RegardError: The share is out of range, or no label has two different texts.
    """
    if not 0 < share < 1:
        raise RegardError(f"validation_share must be above 0 and below 1, got {share}")
    has_dialogues = len({example.dialogue for example in examples}) > 1
    for group_key in (attrgetter("dialogue"), get_input) if has_dialogues else (get_input,):
        validation_indices = sample_strata(examples, build_shuffled_strata(examples, group_key, seed), share)
        if validation_indices:
            valid = [example for index, example in enumerate(examples) if index in validation_indices]
            return [example for index, example in enumerate(examples) if index not in validation_indices], valid
    raise RegardError(
        f"validation split: no label has two different texts in {pluralize(len(examples), 'example')}; "
        "pass --validation with a separate file"
    )


def sample_strata(examples: Sequence[LabeledText], strata: Sequence[Sequence[list[int]]], share: float) -> set[int]:
    """Return the indices of a share of each stratum, in whole groups; rounding carries over to the next stratum.

    At least one group is chosen if any can be spared.
    """
    remaining = Counter(count_labels(examples))
    chosen: set[int] = set()
    quota = 0.0
    for groups in strata:
        quota += share * sum(map(len, groups))
        for group in groups:
            if len(group) <= quota + 0.5 and can_spare(remaining, examples, group):
                chosen.update(group)
                remaining.subtract(count_labels([examples[index] for index in group]))
                quota -= len(group)
        quota = min(quota, 0.5)
    if chosen:
        return chosen
    for group in (group for groups in reversed(strata) for group in groups if can_spare(remaining, examples, group)):
        return set(group)
    return set()


def can_spare(remaining: Counter[str], examples: Sequence[LabeledText], group: Sequence[int]) -> bool:
    """Return whether every label of a group keeps other examples in training."""
    return all(remaining[label] > count for label, count in count_labels([examples[index] for index in group]).items())


def build_shuffled_strata(
    examples: Sequence[LabeledText], group_key: Callable[[LabeledText], Hashable], seed: int
) -> list[list[list[int]]]:
    """Return, for each label, rarest first, its groups of examples that belong together, in random order."""
    groups_by_key = defaultdict[Hashable, list[int]](list)
    for index, example in enumerate(examples):
        groups_by_key[group_key(example)].append(index)
    order = {label: index for index, label in enumerate(reversed(count_labels(examples)))}
    strata = defaultdict[int, list[list[int]]](list)
    for group in groups_by_key.values():
        strata[min((order[label] for index in group for label in examples[index].labels), default=-1)].append(group)
    generator = random.Random(seed)
    for groups in strata.values():
        generator.shuffle(groups)
    return [strata[index] for index in sorted(strata)]
