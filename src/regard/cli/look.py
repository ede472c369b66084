"""`regard look`: where a model looks, in the terminal or in a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.options import Flag
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

Given = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""A text, which may begin with a hyphen."""

Which = int | Literal["mean"]
View = Literal["matrix", "lines", "heads", "words", "time"]
IN_A_TERMINAL, AS_SVG, AS_PNG = ("matrix", "words", "time"), ("matrix", "lines", "heads", "words"), ("matrix",)
"""The views that can be drawn there; a page has all of them."""


def look(
    run: Path,
    text: Given = None,
    /,
    *,
    target: Given = None,
    second: Given = None,
    context: Annotated[list[str] | None, Parameter(allow_leading_hyphen=True)] = None,
    kind: Literal["cross", "encoder", "decoder", "self", "pooling"] | None = None,
    words: Annotated[bool, Parameter(negative="--tokens", show_default=False)] = True,
    layer: Which = "mean",
    head: Which = "mean",
    view: View | None = None,
    gold: str | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    html: Path | None = None,
    json: Path | None = None,
    device: str = "auto",
    quiet: Flag = False,
) -> None:
    """Show where a model looks: in the terminal or, if files are named, in these.

    Args:
        run: A run folder made by regard train.
        text: The text; stdin unless given.
        target: Of a model of pairs, the target to look at; the one it predicts unless set.
        second: Of a classifier of pairs, the second text.
        context: Of a classifier of dialogues, a text before, the oldest first; may be given several times.
        kind: Which attention: cross (from target to source), encoder or decoder of a Transformer; pooling or self of a
            classifier; the first that the model has unless set.
        words: Merge parts of words to words, or show tokens as they are.
        layer: Which layer, from 0, or the mean of all.
        head: Which head, from 0, or the mean of all.
        view: matrix; words, shaded by what they get; time, token by token with what else was considered; lines and
            heads for --svg. Words where there is one row, otherwise the matrix, unless set.
        gold: True links to mark, source-target, counted from 0 among what is shown, as in "0-0 1-2".
        png: Draw into this file.
        svg: Draw into this file.
        html: Write a page into this file that has all views, opens at the one that is set, and needs nothing else.
        json: Write all words and weights into this file.
        device: auto, cpu, cuda, cuda:1.
        quiet: Do not name the files that are written.
    """
    from regard.loading import load
    from regard.looking import look as look_at

    check_views(view, png, svg, to_terminal=not (png or svg or html or json))
    model = load(run, chosen_device(device))
    given = sys.stdin.read().strip() if text in (None, "-") else text
    picture = look_at(
        model, given, target=target, second=second, context=context, kind=kind, words=words and view != "time"
    )
    if gold is not None:
        picture = replace(picture, links=links_of(gold))
    view = view or ("words" if len(picture.rows) == 1 else "matrix")
    check_shown(picture, view, layer, head)
    written = [
        png and picture.picture(png, layer=layer, head=head),
        svg and save_svg(picture, svg, view, layer, head),
        html and picture.html(html, view=view, layer=layer, head=head),
        json and save_json(picture, json),
    ]
    if not any(written):
        print(drawn(picture, view, layer, head))
    elif not quiet:
        print("written:", *filter(None, written), file=sys.stderr)


def check_views(view: View | None, png: Path | None, svg: Path | None, *, to_terminal: bool) -> None:
    """Raise a `RegardError` for a file or a view that cannot be drawn, before anything else is done."""
    for option, path, views in (("png", png, AS_PNG), ("svg", svg, AS_SVG)):
        if path is not None and path.suffix.lower() != f".{option}":
            raise RegardError(f"--{option}: found {path}; a file that ends in .{option} is needed")
        if path is not None and view not in (None, *views):
            raise RegardError(f"--{option}: has no view {view}; there are: {', '.join(views)}")
    if to_terminal and view not in (None, *IN_A_TERMINAL):
        raise RegardError(f"--view: {view} cannot be drawn in a terminal; give --svg or --html")


def check_shown(picture: AttentionMap, view: View, layer: Which, head: Which) -> None:
    """Raise a `RegardError` for a view, a layer or a head that the map has not, before anything is written."""
    from regard.views.attention_map import chosen

    if view == "time" and picture.alternatives is None:
        raise RegardError("--view: this model writes nothing, so that there is no time to show")
    chosen("layer", layer, picture.layers)
    chosen("head", head, picture.heads)


def links_of(gold: str) -> frozenset[tuple[int, int]]:
    """The links of an option."""
    from regard.alignment import parse_pharaoh

    return parse_pharaoh(gold, "--gold").possible


def save_svg(picture: AttentionMap, path: Path, view: View, layer: Which, head: Which) -> Path:
    """Draw a view into a file."""
    from regard.files import write_text
    from regard.views.svg.words import words_svg

    if view == "words":
        title = picture.caption(layer, head)
        drawing = words_svg(picture.columns, picture.received(layer, head) / len(picture.rows), title=title)
    else:
        drawing = picture.svg(view, layer=layer, head=head)
    write_text(path, drawing)
    return path


def save_json(picture: AttentionMap, path: Path) -> Path:
    """Write the record of a map into a file."""
    picture.save(path)
    return path


def drawn(picture: AttentionMap, view: View, layer: Which, head: Which) -> str:
    """A view for the terminal."""
    from regard.views.words import shade_steps, shade_words

    if view == "matrix":
        return picture.draw(layer=layer, head=head)
    if view == "words":
        title = picture.caption(layer, head)
        return shade_words(picture.columns, picture.received(layer, head) / len(picture.rows), title=title)
    assert picture.alternatives is not None, "there is a time to show"
    titles = [
        f"{row}   {considered(several)}".rstrip()
        for row, several in zip(picture.rows, picture.alternatives, strict=True)
    ]
    return shade_steps(picture.columns, zip(titles, picture.select(layer, head), strict=True))


def considered(alternatives: tuple[tuple[str, float], ...]) -> str:
    """What a token might have been, on one line."""
    return ", ".join(f"{text} {probability:.2f}" for text, probability in alternatives)
