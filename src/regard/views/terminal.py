"""An attention map in the terminal: shaded cells, in as many colours as there are.

    print(draw(picture))

Rows look at columns. Column labels are written downwards; where the columns do not
fit side by side, cells become narrower, and then the map goes on in a panel below.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Protocol, runtime_checkable

from regard.errors import RegardError, unknown_name
from regard.views.attention_map import AttentionMap, Choice, check_map
from regard.views.display import (
    ELLIPSIS,
    REPLACEMENT,
    broken,
    centred,
    clusters,
    cut,
    display_width,
    harmless,
    left_padded,
)
from regard.views.shades import ceiling, rgb

COLOURS = ("auto", "truecolor", "256", "ascii")
SHADES = " .:-=+*#%@"
NUMBERS = (231, 153, 110, 68, 26, 20, 18)  # of the 256 colours: from white to deep blue, each as much darker
RESET = "\x1b[0m"
MARK = "o"  # upon a cell that is linked in the true alignment

NARROWEST_TERMINAL = 30
TITLE = 3  # a title takes no more than these lines
LABEL = 24  # a row's label takes no more than these columns,
HEIGHT = 12  # and a column's no more than these lines
CELLS = (3, 2, 1)  # how wide a cell may be, best first


@runtime_checkable
class Stream(Protocol):
    """Where text is written to, as far as it matters here."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


def draw(
    picture: AttentionMap,
    *,
    width: int | None = None,
    colour: str = "auto",
    layer: Choice = "mean",
    head: Choice = "mean",
) -> str:
    """The map as lines of text that fit `width` (that of the terminal, unless given).

    `colour` is "truecolor", "256", "ascii" (shades of characters), or "auto": what
    standard output can show.
    """
    check_map("draw", picture)
    room, colour = known_width(width), known_colour(colour)
    weights = picture.select(layer, head)
    top = ceiling(weights)
    grid = fit(picture, room, colour)
    cells = [
        [grid.cell(min(1.0, weight / top), linked=(column, row) in (picture.links or ())) for column, weight in line]
        for row, line in enumerate(map(enumerate, weights.tolist()))
    ]
    blocks = []
    for start in range(0, len(picture.columns), grid.columns):
        panel = slice(start, start + grid.columns)
        rows = [grid.line(name, line[panel]) for name, line in zip(picture.rows, cells, strict=True)]
        blocks.append("\n".join([*grid.heads(picture.columns[panel]), *rows]))
    caption = broken(harmless(picture.caption(layer, head)), room, TITLE)
    return "\n".join([*caption, "\n\n".join(blocks), legend(grid, top, marked=bool(picture.links))])


def detect_colour(stream: Stream, environ: Mapping[str, str]) -> str:
    """What may be written to a stream: "truecolor", "256" or "ascii".

    NO_COLOR forbids colour, FORCE_COLOR asks for it even where nobody seems to watch
    (0: none; 3: all); else COLORTERM and TERM say what the terminal can do.
    """
    force = environ.get("FORCE_COLOR", "").lower()
    if environ.get("NO_COLOR") or force in ("0", "false"):
        return "ascii"
    term = environ.get("TERM", "").lower()
    if not force and (not stream.isatty() or term == "dumb"):
        return "ascii"
    if force == "3" or environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or term.endswith("-direct"):
        return "truecolor"
    return "256" if force or term.endswith("-256color") else "ascii"


@dataclass(frozen=True)
class Grid:
    """How the cells are set: their size, how many stand side by side, and in what colours."""

    label: int  # columns of the terminal for the rows' labels
    size: int  # and for a cell
    columns: int  # cells in a panel
    colour: str

    @property
    def edge(self) -> str:
        """What stands beside the cells: without colour, blank ones would have no end."""
        return "|" if self.colour == "ascii" else ""

    def cell(self, shade: float, *, linked: bool) -> tuple[str, str]:
        """The colour and the characters of a cell."""
        blank = SHADES[round(shade * (len(SHADES) - 1))] if self.colour == "ascii" else " "
        left = self.size // 2
        text = blank * left + MARK + blank * (self.size - left - 1) if linked else blank * self.size
        return paint(shade, self.colour), text

    def line(self, name: str, cells: Sequence[tuple[str, str]]) -> str:
        """A row: its label and its cells."""
        label = left_padded(cut(harmless(name), self.label), self.label)
        return f"{label} {self.edge}{joined(cells)}{self.edge}"

    def heads(self, names: Sequence[str]) -> list[str]:
        """The lines above a panel: every column's label, written downwards onto the first row."""
        lines = zip_longest(*(reversed(letters(name)) for name in names), fillvalue=" ")
        indent = " " * (self.label + 1 + len(self.edge))
        above = [indent + "".join(centred(cluster, self.size) for cluster in line) for line in lines]
        return [line.rstrip() for line in reversed(above)]


def fit(picture: AttentionMap, room: int, colour: str) -> Grid:
    """The widest cells with which all columns stand side by side, or else several panels of equal width."""
    label = min(LABEL, room // 3, max(display_width(harmless(name)) for name in picture.rows))
    grid = Grid(label, 0, 0, colour)
    space = room - label - 1 - 2 * len(grid.edge)
    count = len(picture.columns)
    least = max(display_width(cluster) for name in picture.columns for cluster in ("", *letters(name)))
    if picture.links and colour == "ascii":
        least = max(least, 2)  # the mark leaves the shade room beside it
    for size in CELLS:
        if size >= least and size * count <= space:
            return Grid(label, size, count, colour)
    size = max(2, least)
    panels = -(-count // (space // size))
    return Grid(label, size, -(-count // panels), colour)


def letters(name: str) -> list[str]:
    """A column's label, a character for each line."""
    parts = [part if display_width(part) <= CELLS[0] else REPLACEMENT for part in clusters(harmless(name))]
    return parts if len(parts) <= HEIGHT else [*parts[: HEIGHT - 1], ELLIPSIS]


def paint(shade: float, colour: str) -> str:
    """The sequence that sets a cell's colour, and that of a mark upon it."""
    if colour == "ascii":
        return ""
    if colour == "256":
        return f"\x1b[38;5;{231 if shade > 0.5 else 16};48;5;{NUMBERS[round(shade * (len(NUMBERS) - 1))]}m"
    mark = "255;255;255" if shade > 0.5 else "0;0;0"
    return f"\x1b[38;2;{mark};48;2;{';'.join(map(str, rgb(shade)))}m"


def joined(cells: Sequence[tuple[str, str]]) -> str:
    """Cells side by side, each colour set once for all that follow."""
    runs = [(code, "".join(text for _, text in run)) for code, run in groupby(cells, key=lambda cell: cell[0])]
    return "".join(code + text + (RESET if code else "") for code, text in runs)


def legend(grid: Grid, top: float, *, marked: bool) -> str:
    """The shades from nothing to the darkest, and what that stands for."""
    narrow = Grid(grid.label, 1, grid.columns, grid.colour)
    steps = len(SHADES) - 1
    shades = joined([narrow.cell(step / steps, linked=False) for step in range(steps + 1)])
    return f"0 {shades} {top:g}" + (f"  {MARK} gold" if marked else "")


def known_width(width: int | None) -> int:
    """The columns to fill."""
    if width is None:
        return max(NARROWEST_TERMINAL, shutil.get_terminal_size().columns)
    if width < NARROWEST_TERMINAL:
        raise RegardError(f"width: found {width}; a map needs {NARROWEST_TERMINAL} columns or more")
    return width


def known_colour(colour: str) -> str:
    """The colours to draw with."""
    if colour not in COLOURS:
        raise unknown_name("colour", colour, COLOURS)
    return detect_colour(sys.stdout, os.environ) if colour == "auto" else colour
