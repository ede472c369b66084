"""`regard look`: where a model looks, in the terminal or in a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from regard.errors import RegardError
from regard.looking.options import LookOptions, check_text
from regard.tasks.actions import Action, Invocation

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

Which = int | Literal["mean"]
View = Literal["matrix", "lines", "heads", "words", "time"]
IN_A_TERMINAL, AS_SVG, AS_PNG = ("matrix", "words", "time"), ("matrix", "lines", "heads", "words"), ("matrix",)
"""The views that can be drawn there; a page has all of them."""


@dataclass(frozen=True, kw_only=True)
class Look(Action, LookOptions):
    """Show where a model looks: in the terminal or, if files are named, in these.

    Attributes:
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
    """

    summary: ClassVar[str] = "Show where a model looks: in the terminal, a picture or a page."
    example: ClassVar[str] = 'look runs/dates "3 mars 2017"'
    instead: ClassVar[str] = "put quotes around the text"
    reads_text: ClassVar[bool] = True

    words: Annotated[bool, Parameter(negative="--tokens", show_default=False)] = True
    layer: Which = "mean"
    head: Which = "mean"
    view: View | None = None
    gold: str | None = None
    png: Path | None = None
    svg: Path | None = None
    html: Path | None = None
    json: Path | None = None

    def check(self) -> None:
        for option, path, views in (("png", self.png, AS_PNG), ("svg", self.svg, AS_SVG)):
            if path is not None and path.suffix.lower() != f".{option}":
                raise RegardError(f"--{option}: found {path}; a file that ends in .{option} is needed")
            if path is not None and self.view not in (None, *views):
                raise RegardError(f"--{option}: has no view {self.view}; there are: {', '.join(views)}")
        if not (self.png or self.svg or self.html or self.json) and self.view not in (None, *IN_A_TERMINAL):
            raise RegardError(f"--view: {self.view} cannot be drawn in a terminal; give --svg or --html")

    def run(self, predictor: Any, given: Invocation) -> None:
        from regard.alignment import parse_pharaoh

        if predictor.model.attentions:
            self.kind_of(predictor.name, predictor.model.attentions)
        text = check_text(read_text(given.text))
        picture = predictor.look(text, replace(self, words=self.words and self.view != "time"))
        if self.gold is not None:
            picture = replace(picture, links=parse_pharaoh(self.gold, "--gold").possible)
        view = self.view or ("words" if len(picture.rows) == 1 else "matrix")
        self.check_shown(picture, view)
        written = self.write_files(picture, view)
        if not written:
            print(drawn(picture, view, self.layer, self.head))
        elif not given.quiet:
            print("written:", *written, file=sys.stderr)

    def check_shown(self, picture: AttentionMap, view: View) -> None:
        """Raise a `RegardError` for a view, a layer or a head that the map has not, before anything is written."""
        from regard.views.attention_map import chosen

        if view == "time" and picture.alternatives is None:
            raise RegardError("--view: this model writes nothing, so that there is no time to show")
        chosen("layer", self.layer, picture.layers)
        chosen("head", self.head, picture.heads)

    def write_files(self, picture: AttentionMap, view: View) -> list[Path]:
        """Write the files that are named, and give their names."""
        from regard.files import write_text

        if self.png:
            picture.picture(self.png, layer=self.layer, head=self.head)
        if self.svg:
            write_text(self.svg, svg_of(picture, view, self.layer, self.head))
        if self.html:
            picture.html(self.html, view=view, layer=self.layer, head=self.head)
        if self.json:
            picture.save(self.json)
        return [path for path in (self.png, self.svg, self.html, self.json) if path]


def read_text(text: str | None) -> str:
    """The text of a command line, or all of stdin."""
    return sys.stdin.read().strip() if text in (None, "-") else str(text)


def svg_of(picture: AttentionMap, view: View, layer: Which, head: Which) -> str:
    """A view as a drawing."""
    from regard.views.svg.words import words_svg

    if view != "words":
        return picture.svg(view, layer=layer, head=head)
    title = picture.caption(layer, head)
    return words_svg(picture.columns, picture.received(layer, head) / len(picture.rows), title=title)


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
