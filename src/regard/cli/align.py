"""`regard align`: word links from attention."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from regard.cli.alignment import attend_to, attended_of, check_gold, shifts_of
from regard.cli.counting import after, counted, parts
from regard.cli.devices import chosen_device
from regard.cli.options import File, Flag
from regard.cli.predict import AT_ONCE
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import Attended, Gold, Place
    from regard.cli.counting import Show
    from regard.data.example import Example, Links
    from regard.predictor import Predictor

Symmetrisation = Literal["grow-diag-final-and", "grow-diag-final", "grow-diag", "intersection", "union"]


class Both(NamedTuple):
    """Where a model looks, and where one of the other direction does, if there is one."""

    forward: Attended
    backward: Attended | None = None


@dataclass(frozen=True)
class Method:
    """How links are made of weights."""

    name: Literal["argmax", "threshold"]
    threshold: float | None

    def links(self, attended: Attended, place: Place) -> Links:
        """The links of one attention."""
        from regard.alignment import align

        return align(attended, place, self.name, self.threshold)

    def best_place(self, attended: Sequence[Attended], gold: Sequence[Gold], shift: int | None, what: str) -> Place:
        """The attention whose links agree best with gold ones, which is said."""
        from regard.metrics import search_head

        found = search_head(attended, gold, shifts=shifts_of(shift), method=self.name, threshold=self.threshold)
        print(f"{what} {found.place}: {found.score} on the gold links", file=sys.stderr)
        return found.place


def align(
    run: Path,
    /,
    *,
    source: File = Path("-"),
    target: File | None = None,
    attention: str | None = None,
    shift: Literal[0, 1] | None = None,
    method: Literal["argmax", "threshold"] = "argmax",
    threshold: float | None = None,
    gold: Path | None = None,
    gold_base: Literal[0, 1] = 0,
    backward: Path | None = None,
    symmetrise: Symmetrisation | None = None,
    out: Path | None = None,
    device: str = "auto",
    quiet: Flag = False,
) -> None:
    """Link the words of each source to those of its target, in Pharaoh format: 0-0 1-2.

    Args:
        run: A run folder made by regard train.
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
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress.
    """
    from regard.alignment import parse_place, to_pharaoh
    from regard.alignment import symmetrise as join
    from regard.loading import load_pairs

    check_options(target=target, gold=gold, attention=attention, backward=backward, symmetrise=symmetrise, out=out)
    chosen, how = parse_place(attention or "mean", shift or 0), Method(method, threshold)
    model = load_pairs(run, chosen_device(device))
    other = None if backward is None else load_pairs(backward, chosen_device(device))
    with counted(quiet) as show:
        found = predicted(model, source, out, show) if target is None else given(model, other, source, target, show)
        places = (chosen, chosen)
        if gold is not None:
            few = read_gold(gold, gold_base)
            first = list(islice(found, len(few)))
            places = places_by_gold(gold, few, first, how, shift)
            found = chain(first, found)
        for each in found:
            links = how.links(each.forward, places[0])
            if each.backward is not None:
                links = join(links, turned(how.links(each.backward, places[1])), symmetrise or "grow-diag-final-and")
            print(to_pharaoh(links))


def check_options(**given: object) -> None:
    """Raise a `RegardError` for options that do not go together."""
    for option, needed, why in (
        ("backward", "target", "a prediction has one direction"),
        ("gold", "target", "gold links belong to given targets"),
        ("symmetrise", "backward", "two directions are joined"),
    ):
        if given[option] is not None and given[needed] is None:
            raise RegardError(f"--{option}: needs --{needed}; {why}")
    for option, other, why in (
        ("attention", "gold", "gold links choose the attention"),
        ("out", "target", "what is written are predictions"),
    ):
        if given[option] is not None and given[other] is not None:
            raise RegardError(f"--{option}: does not go with --{other}; {why}")


def predicted(model: Predictor, source: Path, out: Path | None, show: Show | None) -> Iterator[Both]:
    """Where the model looks while it writes its predictions."""
    from regard.cli.predict import in_line
    from regard.data.formats import read_lines
    from regard.files import write_text

    model.check_attention()
    written: list[str] = []
    done = 0
    for several in parts(read_lines(source), AT_ONCE):
        predictions = model.predict(several, return_weights=True, progress=after(done, show))
        written += [f"{in_line(prediction.written)}\n" for prediction in predictions] if out else []
        done += len(several)
        yield from (Both(attended_of(prediction)) for prediction in predictions)
    if out is not None:
        write_text(out, "".join(written))


def given(model: Predictor, other: Predictor | None, source: Path, target: Path, show: Show | None) -> Iterator[Both]:
    """Where the model looks while it reads given targets, and another one while it reads their sources."""
    for each in (model, other):
        if each is not None:
            each.check_attention()
    done = 0
    for several in parts(read_all(source, target), AT_ONCE):
        forward = attend_to(model, several)
        back = None if other is None else attend_to(other, [swapped(example) for example in several])
        done += len(several)
        if show is not None:
            show(done)
        yield from map(Both, forward) if back is None else map(Both, forward, back)


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


def places_by_gold(
    path: Path, gold: Sequence[Gold], first: Sequence[Both], how: Method, shift: int | None
) -> tuple[Place, Place]:
    """The best attention of each direction; twice the same where there is only one."""
    from regard.alignment import Gold

    if len(gold) > len(first):
        raise RegardError(f"{path} has {len(gold)} lines, and there are {len(first)} pairs; line n must link pair n")
    forward = [each.forward for each in first]
    backward = [each.backward for each in first if each.backward is not None]
    check_gold(path, gold, forward)
    place = how.best_place(forward, gold, shift, "attention")
    if not backward:
        return place, place
    back = [Gold(turned(links.sure), turned(links.possible)) for links in gold]
    return place, how.best_place(backward, back, shift, "backward attention")
