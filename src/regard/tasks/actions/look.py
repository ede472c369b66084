"""`regard look`: show attention weights in the terminal or in a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.maps.options import LookOptions, check_not_empty
from regard.messages import print_message
from regard.tasks.actions import RUN_OR_HUGGING_FACE, Action, Invocation, OutputFile

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

Which = Annotated[int | Literal["mean"], Bounds(0, 1_000_000)]
View = Literal["matrix", "lines", "heads", "words", "time"]
TERMINAL_VIEWS, SVG_VIEWS, PNG_VIEWS = ("matrix", "words", "time"), ("matrix", "lines", "heads", "words"), ("matrix",)
"""Views that each output supports; an HTML page has all of them."""

STDOUT = Path("-")
"""The path that stands for stdout."""


@dataclass(frozen=True, kw_only=True)
class Look(Action, LookOptions):
    """Show the attention of a model, in the terminal or in files.

    Attributes:
        words: Merge subword tokens into words, or show the tokens.
        layer: Index of the layer, from 0, or the mean of all layers.
        head: Index of the head, from 0, or the mean of all heads.
        view: matrix; words, shaded by the attention they receive; time, step by step: the token written, its
            alternatives and the attention of that step; lines and heads, for --svg. By default words for a single row,
            otherwise matrix.
        gold: Gold links to mark, as source-target indices from 0 of the words shown, such as "0-0 1-2".
        png: Draw a PNG file.
        svg: Draw an SVG file; - for stdout.
        html: Write a self-contained HTML page with all views, open at --view.
        json: Write all words and weights as JSON; - for stdout.
    """

    summary: ClassVar[str] = "Show the attention of a model: in the terminal, a picture or a page."
    example: ClassVar[str] = 'look runs/dates "3 mars 2017"'
    hint: ClassVar[str] = "put quotes around the text"
    run_help: ClassVar[str] = RUN_OR_HUGGING_FACE
    reads_text: ClassVar[bool] = True

    words: Annotated[bool, Parameter(negative="--tokens", show_default=False)] = True
    layer: Which = "mean"
    head: Which = "mean"
    view: View | None = None
    gold: str | None = None
    png: Path | None = None
    svg: OutputFile | None = None
    html: Path | None = None
    json: OutputFile | None = None

    def check(self) -> None:
        for option, path, views in (("png", self.png, PNG_VIEWS), ("svg", self.svg, SVG_VIEWS)):
            if path is not None and (option, path) != ("svg", STDOUT) and path.suffix.lower() != f".{option}":
                raise RegardError(f"--{option}: expected a file that ends in .{option}, got {path}")
            if path is not None and self.view not in (None, *views):
                raise RegardError(f"--{option} cannot show --view {self.view}; choose from {', '.join(views)}")
        if self.svg == self.json == STDOUT:
            raise RegardError("--svg and --json cannot both write to stdout")
        if not (self.png or self.svg or self.html or self.json) and self.view not in (None, *TERMINAL_VIEWS):
            raise RegardError(f"--view {self.view} requires --svg or --html")

    def run(self, predictor: Any, invocation: Invocation) -> None:
        from regard.alignment import parse_pharaoh

        if predictor.attentions:
            self.resolve_kind(predictor.name, predictor.attentions)
        text = check_not_empty(read_text(invocation.text))
        picture = predictor.look(text, replace(self, words=self.words and self.view != "time"))
        if self.gold is not None:
            picture = replace(picture, links=parse_pharaoh(self.gold, "--gold").possible)
        view = self.view or ("words" if len(picture.rows) == 1 else "matrix")
        self.check_view(picture, view)
        paths = self.write_files(picture, view)
        if not paths:
            print(render_view(picture, view, self.layer, self.head))
        elif (files := [str(path) for path in paths if path != STDOUT]) and not invocation.quiet:
            print_message(f"wrote {' '.join(files)}")

    def check_view(self, picture: AttentionMap, view: View) -> None:
        """Raise a `RegardError` for an invalid view, layer or head, before any file is written."""
        from regard.views.attention_map import to_slice

        if view == "time" and picture.alternatives is None:
            raise RegardError("--view time requires a model that generates text")
        to_slice("layer", self.layer, picture.layers)
        to_slice("head", self.head, picture.heads)

    def write_files(self, picture: AttentionMap, view: View) -> list[Path]:
        """Write the requested files, and return their paths, - for stdout."""
        from regard.files import write_text

        if self.png:
            picture.save_picture(self.png, layer=self.layer, head=self.head)
        if self.svg == STDOUT:
            print(render_svg(picture, view, self.layer, self.head), end="")
        elif self.svg:
            write_text(self.svg, render_svg(picture, view, self.layer, self.head))
        if self.html:
            picture.save_html(self.html, view=view, layer=self.layer, head=self.head)
        if self.json == STDOUT:
            print(picture.to_json(), end="")
        elif self.json:
            picture.save(self.json)
        return [path for path in (self.png, self.svg, self.html, self.json) if path]


def read_text(text: str | None) -> str:
    """Return the text argument, or all of stdin if it is missing or -."""
    from regard.data.formats.lines import iter_numbered_lines

    return "\n".join(line for _, line in iter_numbered_lines("-")).strip() if text in (None, "-") else str(text)


def render_svg(picture: AttentionMap, view: View, layer: Which, head: Which) -> str:
    """Render a view as SVG."""
    from regard.views.svg.words import draw_words_svg

    if view != "words":
        return picture.to_svg(view, layer=layer, head=head)
    title = picture.caption(layer, head)
    return draw_words_svg(picture.columns, picture.received(layer, head) / len(picture.rows), title=title)


def render_view(picture: AttentionMap, view: View, layer: Which, head: Which) -> str:
    """Render a view for the terminal."""
    from regard.views.words import shade_steps, shade_words

    if view == "matrix":
        return picture.draw(layer=layer, head=head)
    if view == "words":
        title = picture.caption(layer, head)
        return shade_words(picture.columns, picture.received(layer, head) / len(picture.rows), title=title)
    assert picture.alternatives is not None, "check_view makes sure of this"
    titles = [
        f"{step}   {format_alternatives(alternatives)}".rstrip()
        for step, alternatives in zip(name_steps(picture), picture.alternatives, strict=True)
    ]
    return shade_steps(picture.columns, zip(titles, picture.select(layer, head), strict=True))


def name_steps(picture: AttentionMap) -> list[str]:
    """Return the token that each step wrote; if rows are the tokens read, both, with ? after the last one."""
    if picture.alternatives_for == "row":
        return list(picture.rows)
    return [f"{read} → {written}" for read, written in zip(picture.rows, (*picture.rows[1:], "?"), strict=True)]


def format_alternatives(alternatives: tuple[tuple[str, float], ...]) -> str:
    """Format alternative tokens with their probabilities."""
    return ", ".join(f"{text} {probability:.2f}" for text, probability in alternatives)
