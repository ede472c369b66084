"""The command `regard align`: word alignments from attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import Action, File, Invocation
from regard.tasks.actions.evaluate import join_lines
from regard.tasks.actions.predict import AT_ONCE, to_single_line
from regard.tasks.pairs.links import attend_examples, check_gold, get_shifts, to_attended
from regard.tasks.progress import Progress, iter_chunks, offset_progress, show_counter

if TYPE_CHECKING:
    from regard.alignment import AttentionExample, GoldLinks, HeadSelection
    from regard.data.example import Example, Links
    from regard.tasks.pairs.predictor import PairPredictor

Symmetrization = Literal["grow-diag-final-and", "grow-diag-final", "grow-diag", "intersection", "union"]


class AttendedBothWays(NamedTuple):
    """The attention of a model on one pair, and that of a model for the reverse direction, if any."""

    forward: AttentionExample
    backward: AttentionExample | None = None


@dataclass(frozen=True, kw_only=True)
class Align(Action):
    """Align the words of each source and target, in Pharaoh format: 0-0 1-2.

    Attributes:
        source: File of sources, one per line; - for stdin.
        target: File of targets, one per line (default: align the model's predictions).
        attention: Attention to use: 2.3 for head 3 of layer 2, 2 for the mean of layer 2, or mean for the mean of all
            (default: mean).
        shift: Decoder step to take the alignment of a word from: 0 for the step that writes it, 1 for the step that
            reads it (default: 0).
        method: Link each target word to the source word with the most weight (argmax), or to all above the threshold.
        threshold: Minimum weight of a link, for --method threshold (default: 0.2).
        gold: File of gold links for the first lines, in Pharaoh format; selects the attention that matches them best.
        gold_base: Index of the first word in the gold links.
        backward: Run for the reverse direction, whose links are merged with these; requires --target.
        symmetrize: How to merge the two directions (default: grow-diag-final-and); requires --backward.
        out: Write the tokenized predictions to this file; cannot be combined with --target.
    """

    summary: ClassVar[str] = "Align the words of sources and targets by attention."
    example: ClassVar[str] = "align runs/mine t.en t.de > links.txt"
    hint: ClassVar[str] = "pass one file of sources and one of targets"
    positional: ClassVar[tuple[str, ...]] = ("source", "target")

    source: File = Path("-")
    target: File | None = None
    attention: str | None = None
    shift: Literal[0, 1] | None = None
    method: Literal["argmax", "threshold"] = "argmax"
    threshold: Annotated[float | None, Bounds(exclusive_minimum=0, maximum=1)] = None
    gold: Path | None = None
    gold_base: Literal[0, 1] = 0
    backward: Path | None = None
    symmetrize: Symmetrization | None = None
    out: Path | None = None

    def check(self) -> None:
        if self.target is None and self.source.name.removesuffix(".gz").endswith(".tsv"):
            raise RegardError(f"align: expected a file of sources and a file of targets, got {self.source}")
        for option, required in (("backward", "target"), ("gold", "target"), ("symmetrize", "backward")):
            if getattr(self, option) is not None and getattr(self, required) is None:
                raise RegardError(f"--{option} requires --{required}")
        for option, other, why in (
            ("attention", "gold", "the gold links select the attention"),
            ("out", "target", "it writes predictions"),
        ):
            if getattr(self, option) is not None and getattr(self, other) is not None:
                raise RegardError(f"--{option} cannot be combined with --{other}: {why}")
        self.parse_attention()

    def parse_attention(self) -> HeadSelection:
        """Return the attention given by --attention, or the mean."""
        from regard.alignment import parse_selection

        return parse_selection(self.attention or "mean", self.shift or 0)

    def run(self, predictor: PairPredictor, invocation: Invocation) -> None:
        from regard.alignment import symmetrize, to_pharaoh
        from regard.tasks.loading import load_same_task

        other = None if self.backward is None else load_same_task(predictor, self.backward, invocation)
        with show_counter(invocation.quiet) as show:
            attended_pairs = (
                self.attend_predictions(predictor, show)
                if self.target is None
                else self.attend_given_targets(predictor, other, show)
            )
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
                print(to_pharaoh(links))

    def attend_predictions(self, predictor: PairPredictor, show: Progress | None) -> Iterator[AttendedBothWays]:
        """Yield the attention of the model while it predicts each target."""
        from regard.data.formats import read_lines
        from regard.files import write_text

        predictor.check_attention()
        prediction_lines: list[str] = []
        done = 0
        for chunk in iter_chunks(read_lines(self.source), AT_ONCE):
            predictions = predictor.predict(chunk, return_weights=True, progress=offset_progress(done, show))
            prediction_lines += [to_single_line(prediction.raw_text) for prediction in predictions] if self.out else []
            done += len(chunk)
            yield from (AttendedBothWays(to_attended(prediction)) for prediction in predictions)
        if self.out is not None:
            write_text(self.out, join_lines(prediction_lines))

    def attend_given_targets(
        self, predictor: PairPredictor, other: PairPredictor | None, show: Progress | None
    ) -> Iterator[AttendedBothWays]:
        """Yield the attention on each given pair, and that of the reverse model, if any."""
        assert self.target is not None
        for loaded in (predictor, other):
            if loaded is not None:
                loaded.check_attention()
        done = 0
        for chunk in iter_chunks(read_parallel_lines(self.source, self.target), AT_ONCE):
            forward = attend_examples(predictor, chunk)
            backward = None if other is None else attend_examples(other, [swap_sides(example) for example in chunk])
            done += len(chunk)
            if show is not None:
                show(done)
            yield from map(AttendedBothWays, forward) if backward is None else map(AttendedBothWays, forward, backward)

    def compute_links(self, attended: AttentionExample, attention: HeadSelection) -> Links:
        """Return the links of one attention."""
        from regard.alignment import align

        return align(attended, attention, self.method, self.threshold)

    def find_best_attentions(
        self, gold: Sequence[GoldLinks], first: Sequence[AttendedBothWays], *, quiet: bool
    ) -> tuple[HeadSelection, HeadSelection]:
        """Return the best attention of each direction; the same one twice without --backward."""
        from regard.alignment import GoldLinks

        if len(gold) > len(first):
            raise RegardError(
                f"{self.gold} has {len(gold)} lines, but there are {len(first)} pairs; line n must align pair n"
            )
        forward = [attended_pair.forward for attended_pair in first]
        backward = [attended_pair.backward for attended_pair in first if attended_pair.backward is not None]
        assert self.gold is not None
        check_gold(self.gold, gold, forward)
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


def read_parallel_lines(source: Path, target: Path) -> Iterator[Example]:
    """Yield the pairs of two files, including empty ones, so that line n of the output aligns line n of the input."""
    from regard.data.example import Example
    from regard.data.formats.pairs import zip_lines

    if source == target == Path("-"):
        raise RegardError("--source and --target cannot both be stdin")
    return (Example(pair.source.strip(), pair.target.strip()) for pair in zip_lines(source, target))


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
