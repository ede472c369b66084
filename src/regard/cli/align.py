"""`regard align`: word links from attention."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.alignment import attended_of, attention_place
from regard.cli.devices import chosen_device
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import Place
    from regard.data.example import Example, Links
    from regard.predictor import Predictor


def align(
    run: Path,
    /,
    *,
    source: Path = Path("-"),
    target: Path | None = None,
    attention: str | None = None,
    shift: Literal[0, 1] = 0,
    method: Literal["argmax", "threshold"] = "argmax",
    threshold: float | None = None,
    gold: Path | None = None,
    gold_base: Literal[0, 1] = 0,
    backward: Path | None = None,
    symmetrise: Literal[
        "grow-diag-final-and", "grow-diag-final", "grow-diag", "intersection", "union"
    ] = "grow-diag-final-and",
    device: str = "auto",
) -> None:
    """Link the words of each source to those of its target, in Pharaoh format: 0-0 1-2.

    Args:
        run: A run folder made by regard train.
        source: A file of sources, one a line; - is stdin.
        target: Their targets, one a line; without it, the links of what the model predicts.
        attention: 2.3 is head 3 of layer 2, 2 the mean over that layer, mean over all; mean unless set.
        shift: 1 reads the alignment of a word at the step that reads it.
        method: Link each word to where most weight is, or to all that get enough.
        threshold: The least weight of a link.
        gold: Links of the first lines, in Pharaoh format: the attention is chosen that agrees with them best.
        gold_base: Whether the gold links count words from 0 or from 1.
        backward: A run from target to source, whose links are joined with these; needs --target.
        symmetrise: How the two directions are joined.
        device: auto, cpu, cuda, cuda:1.
    """
    from regard.alignment import symmetrise as join
    from regard.alignment import to_pharaoh
    from regard.predictor import load

    if backward is not None and target is None:
        raise RegardError("--backward: needs --target; a prediction has one direction")
    if gold is not None and target is None:
        raise RegardError("--gold: needs --target; gold links belong to given targets")
    model = load(run, chosen_device(device))
    examples = pairs_of(model, source, target)
    place = attention_place(attention, shift)
    found = links_of(model, examples, place, gold, gold_base, method, threshold)
    if backward is not None:
        turned = [swapped(example) for example in examples]
        back = links_of(load(backward, chosen_device(device)), turned, place, None, 0, method, threshold)
        found = [join(f, frozenset((t, s) for s, t in b), symmetrise) for f, b in zip(found, back, strict=True)]
    for links in found:
        print(to_pharaoh(links))


def pairs_of(model: Predictor, source: Path, target: Path | None) -> Sequence[Example]:
    """Sources with given targets, or with what the model makes of them."""
    from regard.data.example import Example
    from regard.data.formats import read_lines, read_parallel

    if target is not None:
        return list(read_parallel(source, target))
    sources = list(read_lines(source))
    return [Example(text, found.text) for text, found in zip(sources, model.predict(sources), strict=True)]


def swapped(example: Example) -> Example:
    """The same pair in the other direction."""
    from regard.data.example import Example

    return Example(example.target, example.source)


def links_of(
    model: Predictor,
    examples: Sequence[Example],
    place: Place | None,
    gold: Path | None,
    base: Literal[0, 1],
    method: str,
    threshold: float | None,
) -> list[Links]:
    """The links of every pair."""
    from regard.alignment import MEAN, align, read_pharaoh
    from regard.metrics import search_head

    forced = model.force([e.source for e in examples], [e.target for e in examples], return_weights=True)
    attended = [attended_of(each) for each in forced]
    if gold is not None and place is None:
        few = read_pharaoh(gold, base)
        if len(few) > len(attended):
            raise RegardError(f"{gold} has {len(few)} lines, there are only {len(attended)} pairs")
        best = search_head(attended[: len(few)], few, method=method, threshold=threshold)
        print(f"attention {best.place}: {best.score} on the gold links", file=sys.stderr)
        place = best.place
    return [align(each, place or MEAN, method, threshold) for each in attended]
