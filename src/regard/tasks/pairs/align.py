"""The command `regard align`: alignments of words or tokens from attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import FILE_OR_STDIN, Action, File, Flag, Invocation
from regard.tasks.actions.evaluate import join_lines, rename_data_options
from regard.tasks.actions.predict import AT_ONCE, to_single_line
from regard.tasks.pairs.links import (
    WORDS,
    LinkUnit,
    LinkUnits,
    check_gold,
    choose_link_units,
    count_indices,
    force_examples,
    get_linked_texts,
    get_shifts,
    to_attended,
)
from regard.tasks.pairs.options import resolve_table
from regard.tasks.progress import Progress, iter_chunks, offset_progress, show_counter

if TYPE_CHECKING:
    from regard.alignment import AttentionExample, GoldLinks, HeadSelection
    from regard.data.example import Example, Links
    from regard.tasks.pairs.prediction import Prediction
    from regard.tasks.pairs.predictor import PairPredictor

Symmetrization = Literal["grow-diag-final-and", "grow-diag-final", "grow-diag", "intersection", "union"]


class PredictedChunk(NamedTuple):
    """Some pairs with the attention of a model, and with that of a model for the reverse direction, if any."""

    forward: Sequence[Prediction]
    backward: Sequence[Prediction] | None = None


class AttendedBothWays(NamedTuple):
    """A pair, the attention of a model on it, and that of a model for the reverse direction, if any."""

    prediction: Prediction
    units: LinkUnits
    forward: AttentionExample
    backward: AttentionExample | None = None


@dataclass(frozen=True, kw_only=True)
class Align(Action):
    """Align the words or tokens of each source and target, in Pharaoh format: 0-0 1-2.

    Attributes:
        source: File of sources, one per line; - for stdin. A file of pairs is read as --data.
        target: File of targets, one per line (default: align the model's predictions).
        data: File of pairs, instead of --source and --target.
        format: Format of the file of pairs (default: a format of named columns from the recipe, or from the file name).
        columns: Columns of the file of pairs: source,target, as in training (default: from the recipe).
        unit: What to align (default: words; tokens, such as letters, for a side that is mostly single words).
        text: Write the linked words or tokens instead of their indices: dogs-Hunde.
        attention: Attention to use: 2.3 for head 3 of layer 2, 2 for the mean of layer 2, or mean for the mean of all
            (default: mean).
        shift: Decoder step to take the alignment of a word from: 0 for the step that writes it, 1 for the step that
            reads it (default: 0).
        method: Link each target word to the source word with the most weight (argmax), or to all above the threshold.
        threshold: Minimum weight of a link, for --method threshold (default: 0.2).
        gold: File of gold links for the first lines, in Pharaoh format; selects the attention that matches them best.
        gold_base: Index of the first word or token in the gold links.
        backward: Run for the reverse direction, whose links are merged with these; requires targets.
        symmetrize: How to merge the two directions (default: grow-diag-final-and); requires --backward.
        out: Write the tokenized predictions to this file; cannot be combined with targets.
    """

    summary: ClassVar[str] = "Align the words or letters of sources and targets by attention."
    example: ClassVar[str] = "align runs/mine t.en t.de > links.txt"
    hint: ClassVar[str] = "pass a file of pairs, or one file of sources and one of targets"
    positional: ClassVar[tuple[str, ...]] = ("source", "target")

    source: File = Path("-")
    target: File | None = None
    data: Annotated[str | None, FILE_OR_STDIN] = None
    format: str | None = None
    columns: str | None = None
    unit: LinkUnit | None = None
    text: Flag = False
    attention: str | None = None
    shift: Literal[0, 1] | None = None
    method: Literal["argmax", "threshold"] = "argmax"
    threshold: Annotated[float | None, Bounds(exclusive_minimum=0, maximum=1)] = None
    gold: Path | None = None
    gold_base: Literal[0, 1] = 0
    backward: Path | None = None
    symmetrize: Symmetrization | None = None
    out: Path | None = None

    @property
    def pairs_file(self) -> str | None:
        """The file of pairs: --data, or a source without a target whose name is that of a file of pairs."""
        from regard.data.formats.pairs import ENDINGS

        if self.data is not None or self.target is not None:
            return self.data
        name = self.source.name.lower().removesuffix(".gz")
        return str(self.source) if name.endswith(tuple(ENDINGS)) else None

    def check(self) -> None:
        if self.data is not None:
            for option in ("source", "target"):
                if getattr(self, option) != getattr(Align, option):
                    raise RegardError(f"--{option} cannot be combined with --data")
        has_targets = self.target is not None or self.pairs_file is not None
        for option in ("backward", "gold"):
            if getattr(self, option) is not None and not has_targets:
                raise RegardError(f"--{option} requires --target or --data")
        if self.symmetrize is not None and self.backward is None:
            raise RegardError("--symmetrize requires --backward")
        if self.attention is not None and self.gold is not None:
            raise RegardError("--attention cannot be combined with --gold: the gold links select the attention")
        if self.out is not None and has_targets:
            given = "--data" if self.target is None else "--target"
            raise RegardError(f"--out cannot be combined with {given}: it writes predictions")
        self.parse_attention()

    def parse_attention(self) -> HeadSelection:
        """Return the attention given by --attention, or the mean."""
        from regard.alignment import parse_selection

        return parse_selection(self.attention or "mean", self.shift or 0)

    def run(self, predictor: PairPredictor, invocation: Invocation) -> None:
        from regard.alignment import symmetrize
        from regard.tasks.loading import load_same_task

        other = None if self.backward is None else load_same_task(predictor, self.backward, invocation)
        has_targets = self.target is not None or self.pairs_file is not None
        with show_counter(invocation.quiet) as show:
            chunks = self.force_given_targets(predictor, other, show) if has_targets else self.predict(predictor, show)
            attended_pairs = self.attend(chunks, predictor, other, quiet=invocation.quiet)
            attentions = (self.parse_attention(), self.parse_attention())
            if self.gold is not None:
                gold = read_gold(self.gold, self.gold_base)
                first = list(islice(attended_pairs, len(gold)))
                attentions = self.find_best_attentions(gold, first, quiet=invocation.quiet)
                attended_pairs = chain(first, attended_pairs)
            for attended in attended_pairs:
                links = self.compute_links(attended.forward, attentions[0])
                if attended.backward is not None:
                    backward_links = reverse_links(self.compute_links(attended.backward, attentions[1]))
                    links = symmetrize(links, backward_links, self.symmetrize or "grow-diag-final-and")
                print(self.format_links(predictor, attended, links))

    def format_links(self, predictor: PairPredictor, attended: AttendedBothWays, links: Links) -> str:
        """Format links as indices or, with --text, as words or tokens."""
        from regard.alignment import to_pharaoh

        if not self.text:
            return to_pharaoh(links)
        source, target = get_linked_texts(predictor, attended.prediction, attended.units)
        return " ".join(
            f"{source[source_index]}-{target[target_index]}" for source_index, target_index in sorted(links)
        )

    def predict(self, predictor: PairPredictor, show: Progress | None) -> Iterator[PredictedChunk]:
        """Yield the predictions of the model for each source, with its attention."""
        from regard.data.formats import read_lines
        from regard.files import write_text

        predictor.check_attention()
        prediction_lines: list[str] = []
        done = 0
        for chunk in iter_chunks(read_lines(self.source), AT_ONCE):
            predictions = predictor.predict(chunk, return_weights=True, progress=offset_progress(done, show))
            prediction_lines += [to_single_line(prediction.raw_text) for prediction in predictions] if self.out else []
            done += len(chunk)
            yield PredictedChunk(predictions)
        if self.out is not None:
            write_text(self.out, join_lines(prediction_lines))

    def force_given_targets(
        self, predictor: PairPredictor, other: PairPredictor | None, show: Progress | None
    ) -> Iterator[PredictedChunk]:
        """Yield the given pairs with the attention of the model, and of the reverse model, if any."""
        predictor.check_attention()
        if other is not None:
            self.check_backward(predictor, other)
        done = 0
        for chunk in iter_chunks(self.read_examples(predictor), AT_ONCE):
            forward = force_examples(predictor, chunk)
            backward = None
            if other is not None:
                with self.name_backward_run():
                    backward = force_examples(other, [swap_sides(example) for example in chunk])
            done += len(chunk)
            if show is not None:
                show(done)
            yield PredictedChunk(forward, backward)

    def check_backward(self, predictor: PairPredictor, other: PairPredictor) -> None:
        """Raise a `RegardError` if the reverse model has no attention, or other columns than this one reversed."""
        from regard.data.pair_check import pluralize

        with self.name_backward_run():
            other.check_attention()
            target, source = predictor.tokenizers.column_counts
            counts = other.tokenizers.column_counts
            if counts != (source, target):
                raise RegardError(
                    f"expected {pluralize(source, 'source column')} and {pluralize(target, 'target column')}, "
                    f"the reverse of the run to align with, got {counts[0]} and {counts[1]}"
                )

    @contextmanager
    def name_backward_run(self) -> Iterator[None]:
        """Name the run of --backward in errors."""
        try:
            yield
        except RegardError as error:
            raise RegardError(f"--backward {self.backward}: {error}") from None

    def read_examples(self, predictor: PairPredictor) -> Iterator[Example]:
        """Yield the given pairs, including empty ones, so that line n of the output aligns pair n of the input."""
        from regard.data.example import Example
        from regard.data.formats.pairs import read_numbered_pairs, zip_lines

        if self.target is not None:
            if self.source == self.target == Path("-"):
                raise RegardError("--source and --target cannot both be stdin")
            pairs = zip_lines(self.source, self.target)
        else:
            assert self.pairs_file is not None
            with rename_data_options():
                format_name, columns = resolve_table(self.pairs_file, self.format, self.columns, predictor)
                pairs = read_numbered_pairs(self.pairs_file, format=format_name, columns=columns)
        with rename_data_options():
            yield from (Example(pair.source.strip(), pair.target.strip()) for pair in pairs)

    def attend(
        self,
        chunks: Iterator[PredictedChunk],
        predictor: PairPredictor,
        other: PairPredictor | None,
        *,
        quiet: bool,
    ) -> Iterator[AttendedBothWays]:
        """Yield the attention on each pair; the units are those of the first pairs."""
        units: LinkUnits | None = None
        for forward, backward in chunks:
            if units is None:
                units = choose_link_units(self.unit, predictor, forward)
                if not quiet:
                    report_units(units, predictor)
            for index, prediction in enumerate(forward):
                attended, reverse = to_attended(predictor, prediction, units), None
                if backward is not None and other is not None:
                    reverse = to_attended(other, backward[index], units.swap())
                    check_same_units(attended, reverse, prediction)
                yield AttendedBothWays(prediction, units, attended, reverse)

    def compute_links(self, attended: AttentionExample, attention: HeadSelection) -> Links:
        """Return the links of one attention."""
        from regard.alignment import align

        return align(attended, attention, self.method, self.threshold)

    def find_best_attentions(
        self, gold: Sequence[GoldLinks], first: Sequence[AttendedBothWays], *, quiet: bool
    ) -> tuple[HeadSelection, HeadSelection]:
        """Return the best attention of each direction; the same one twice without --backward."""
        from regard.alignment import GoldLinks
        from regard.data.pair_check import pluralize

        if len(gold) > len(first):
            raise RegardError(
                f"{self.gold} has {pluralize(len(gold), 'line')} for {pluralize(len(first), 'pair')}; "
                "line n must align pair n"
            )
        forward = [attended_pair.forward for attended_pair in first]
        backward = [attended_pair.backward for attended_pair in first if attended_pair.backward is not None]
        assert self.gold is not None
        check_gold(self.gold, gold, forward, first[0].units)
        attention = self.find_best_attention(forward, gold, None if quiet else "attention")
        if not backward:
            return attention, attention
        backward_gold = [GoldLinks(reverse_links(links.sure), reverse_links(links.possible)) for links in gold]
        return attention, self.find_best_attention(backward, backward_gold, None if quiet else "backward attention")

    def find_best_attention(
        self, attended: Sequence[AttentionExample], gold: Sequence[GoldLinks], name: str | None
    ) -> HeadSelection:
        """Return the attention whose links match the gold links best, and report it under `name`, if given."""
        from regard.metrics import search_head

        shifts = get_shifts(self.shift)
        best = search_head(attended, gold, shifts=shifts, method=self.method, threshold=self.threshold)
        if name is not None:
            print_message(f"{name} {best.selection}: {best.score} on the gold links")
        return best.selection


def check_same_units(forward: AttentionExample, backward: AttentionExample, prediction: Prediction) -> None:
    """Raise a `RegardError` if the models of the two directions split a text differently."""
    for text, words, backward_words in (
        (prediction.source, forward.source_words, backward.target_words),
        (prediction.text, forward.target_words, backward.source_words),
    ):
        count, backward_count = count_indices(words), count_indices(backward_words)
        if count != backward_count:
            raise RegardError(
                f'--backward: the two runs split "{text}" into {count} and {backward_count} parts; '
                "expected equal tokens, or pass --unit word"
            )


def report_units(units: LinkUnits, predictor: PairPredictor) -> None:
    """Print what the links connect, unless both sides are words and have no other tokens."""
    kinds = {predictor.tokenizers.source.kind, predictor.tokenizers.target.kind}
    if units != WORDS or kinds != {"words"}:
        print_message(f"links connect {units.describe(predictor)} (--unit)")


def swap_sides(example: Example) -> Example:
    """Return the same pair in the reverse direction."""
    from regard.data.example import Example

    return Example(example.target, example.source)


def reverse_links(links: Links) -> Links:
    """Return links of the reverse direction as (source, target)."""
    return frozenset((target, source) for source, target in links)


def read_gold(path: Path, base: Literal[0, 1]) -> list[GoldLinks]:
    """Read gold links; raise a `RegardError` if the file is empty."""
    from regard.alignment import read_pharaoh

    gold = read_pharaoh(path, base)
    if not gold:
        raise RegardError(f"{path} is empty; expected at least one line of links")
    return gold
