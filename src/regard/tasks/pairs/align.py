"""`regard align`: word links from attention."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from regard.errors import RegardError
from regard.tasks.actions import Action, File, Invocation
from regard.tasks.actions.evaluate import as_file
from regard.tasks.actions.predict import AT_ONCE, in_line
from regard.tasks.pairs.links import attend_to, attended_of, check_gold, shifts_of
from regard.tasks.progress import Progress, after, counted, parts

if TYPE_CHECKING:
    from regard.alignment import Attended, Gold, Place
    from regard.data.example import Example, Links
    from regard.tasks.pairs.predictor import PairPredictor

Symmetrisation = Literal["grow-diag-final-and", "grow-diag-final", "grow-diag", "intersection", "union"]


class Both(NamedTuple):
    """Where a model looks, and where one of the other direction does, if there is one."""

    forward: Attended
    backward: Attended | None = None


@dataclass(frozen=True, kw_only=True)
class Align(Action):
    """Link the words of each source to those of its target, in Pharaoh format: 0-0 1-2.

    Attributes:
        source: A file of sources, one a line; - is stdin.
        target: Their targets, one a line; without it, the links of what the model predicts.
        attention: 2.3 is head 3 of layer 2, 2 the mean over that layer, mean over all; mean unless set.
        shift: 1 reads the alignment of a word at the step that reads it, 0 at the step that writes it; 0 unless set.
        method: Link each word to where most weight is, or to all that get enough.
        threshold: The least weight of a link.
        gold: Links of the first lines, in Pharaoh format: the attention is chosen that agrees with them best.
        gold_base: Whether the gold links count words from 0 or from 1.
        backward: A run from target to source, whose links are joined with these; needs --target.
        symmetrise: How the two directions are joined; grow-diag-final-and unless set.
        out: Without --target, write the predictions to this file, their words apart as the links count them.
    """

    summary: ClassVar[str] = "Link the words of sources and targets by attention."
    example: ClassVar[str] = "align runs/mine --source t.en --target t.de"
    instead: ClassVar[str] = "give the file by --source {first}, or < {first}"

    source: File = Path("-")
    target: File | None = None
    attention: str | None = None
    shift: Literal[0, 1] | None = None
    method: Literal["argmax", "threshold"] = "argmax"
    threshold: float | None = None
    gold: Path | None = None
    gold_base: Literal[0, 1] = 0
    backward: Path | None = None
    symmetrise: Symmetrisation | None = None
    out: Path | None = None

    def check(self) -> None:
        for option, needed, why in (
            ("backward", "target", "a prediction has one direction"),
            ("gold", "target", "gold links belong to given targets"),
            ("symmetrise", "backward", "two directions are joined"),
        ):
            if getattr(self, option) is not None and getattr(self, needed) is None:
                raise RegardError(f"--{option}: needs --{needed}; {why}")
        for option, other, why in (
            ("attention", "gold", "gold links choose the attention"),
            ("out", "target", "what is written are predictions"),
        ):
            if getattr(self, option) is not None and getattr(self, other) is not None:
                raise RegardError(f"--{option}: does not go with --{other}; {why}")
        self.place()

    def place(self) -> Place:
        """The attention that is named, or the mean."""
        from regard.alignment import parse_place

        return parse_place(self.attention or "mean", self.shift or 0)

    def run(self, predictor: PairPredictor, given: Invocation) -> None:
        from regard.alignment import symmetrise, to_pharaoh
        from regard.tasks.loading import load_like

        other = None if self.backward is None else load_like(predictor, self.backward, given)
        with counted(given.quiet) as show:
            found = self.predicted(predictor, show) if self.target is None else self.forced(predictor, other, show)
            places = (self.place(), self.place())
            if self.gold is not None:
                gold = read_gold(self.gold, self.gold_base)
                first = list(islice(found, len(gold)))
                places = self.places_by_gold(gold, first, quiet=given.quiet)
                found = chain(first, found)
            for each in found:
                links = self.links(each.forward, places[0])
                if each.backward is not None:
                    back = turned(self.links(each.backward, places[1]))
                    links = symmetrise(links, back, self.symmetrise or "grow-diag-final-and")
                print(to_pharaoh(links))

    def predicted(self, predictor: PairPredictor, show: Progress | None) -> Iterator[Both]:
        """Where the model looks while it writes its predictions."""
        from regard.data.formats import read_lines
        from regard.files import write_text

        predictor.check_attention()
        written: list[str] = []
        done = 0
        for several in parts(read_lines(self.source), AT_ONCE):
            predictions = predictor.predict(several, return_weights=True, progress=after(done, show))
            written += [in_line(prediction.written) for prediction in predictions] if self.out else []
            done += len(several)
            yield from (Both(attended_of(prediction)) for prediction in predictions)
        if self.out is not None:
            write_text(self.out, as_file(written))

    def forced(self, predictor: PairPredictor, other: PairPredictor | None, show: Progress | None) -> Iterator[Both]:
        """Where the model looks while it reads given targets, and another one while it reads their sources."""
        assert self.target is not None
        for each in (predictor, other):
            if each is not None:
                each.check_attention()
        done = 0
        for several in parts(read_all(self.source, self.target), AT_ONCE):
            forward = attend_to(predictor, several)
            back = None if other is None else attend_to(other, [swapped(example) for example in several])
            done += len(several)
            if show is not None:
                show(done)
            yield from map(Both, forward) if back is None else map(Both, forward, back)

    def links(self, attended: Attended, place: Place) -> Links:
        """The links of one attention."""
        from regard.alignment import align

        return align(attended, place, self.method, self.threshold)

    def places_by_gold(self, gold: Sequence[Gold], first: Sequence[Both], *, quiet: bool) -> tuple[Place, Place]:
        """The best attention of each direction; twice the same where there is only one."""
        from regard.alignment import Gold

        if len(gold) > len(first):
            raise RegardError(
                f"{self.gold} has {len(gold)} lines, and there are {len(first)} pairs; line n must link pair n"
            )
        forward = [each.forward for each in first]
        backward = [each.backward for each in first if each.backward is not None]
        assert self.gold is not None
        check_gold(self.gold, gold, forward)
        place = self.best_place(forward, gold, None if quiet else "attention")
        if not backward:
            return place, place
        back = [Gold(turned(links.sure), turned(links.possible)) for links in gold]
        return place, self.best_place(backward, back, None if quiet else "backward attention")

    def best_place(self, attended: Sequence[Attended], gold: Sequence[Gold], what: str | None) -> Place:
        """The attention whose links agree best with gold ones, which is said of `what` if that has a name."""
        from regard.metrics import search_head

        shifts = shifts_of(self.shift)
        found = search_head(attended, gold, shifts=shifts, method=self.method, threshold=self.threshold)
        if what is not None:
            print(f"{what} {found.place}: {found.score} on the gold links", file=sys.stderr)
        return found.place


def read_all(source: Path, target: Path) -> Iterator[Example]:
    """The pairs of two files, also those with an empty side, so that line n of the links is line n of them."""
    from regard.data.example import Example
    from regard.data.formats.pairs import side_by_side

    if source == target == Path("-"):
        raise RegardError("standard input: was given for source and target; one of them must be a file")
    return (Example(each.source.strip(), each.target.strip()) for each in side_by_side(source, target))


def swapped(example: Example) -> Example:
    """The same pair in the other direction."""
    from regard.data.example import Example

    return Example(example.target, example.source)


def turned(links: Links) -> Links:
    """Links of the other direction as (source, target)."""
    return frozenset((target, source) for source, target in links)


def read_gold(path: Path, base: Literal[0, 1]) -> list[Gold]:
    """Gold links, of one pair at least."""
    from regard.alignment import read_pharaoh

    found = read_pharaoh(path, base)
    if not found:
        raise RegardError(f"{path}: is empty; the links of one pair are the least")
    return found
