"""Draw an attention map in the terminal as shaded cells.

    print(draw(attention_map))

Column labels are vertical. If the columns do not fit the width, cells become narrower,
and then the map continues in a panel below.
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
from regard.views.attention_map import AttentionMap, IndexOrMean, check_map
from regard.views.display import (
    ELLIPSIS,
    REPLACEMENT,
    align_center,
    align_right,
    display_width,
    sanitize_text,
    split_graphemes,
    truncate,
    wrap_text,
)
from regard.views.shades import ceiling, shade_to_rgb

COLOR_MODES = ("auto", "truecolor", "256", "ascii")
SHADES = " .:-=+*#%@"
COLOR_CODES = (231, 153, 110, 68, 26, 20, 18)  # of the 256 colors, from white to deep blue in even steps
RESET = "\x1b[0m"
MARK = "o"  # marks a link of the gold alignment

NARROWEST_TERMINAL = 30
TITLE = 3  # maximum lines of a title
LABEL = 24  # maximum columns of a row label
HEIGHT = 12  # maximum lines of a column label
GENERATED = "row ends: probability to generate the token, not copy it"
GENERATED_WIDTH = 5  # of a space and a probability
CELL_WIDTHS = (3, 2, 1)  # in order of preference


@runtime_checkable
class Stream(Protocol):
    """An output stream that may be a terminal."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""


def draw(
    picture: AttentionMap,
    *,
    width: int | None = None,
    color: str = "auto",
    layer: IndexOrMean = "mean",
    head: IndexOrMean = "mean",
) -> str:
    """Return the map as text.

    Args:
        picture: The attention map.
        width: Maximum width in columns (default: that of the terminal).
        color: "truecolor", "256", "ascii" (shades of characters), or "auto" for what standard output supports.
        layer: Layer index, or "mean".
        head: Head index, or "mean".

    Raises:
        RegardError: An argument is invalid.
    """
    check_map("draw", picture)
    max_width, color = resolve_width(width), resolve_color(color)
    weights = picture.select(layer, head)
    top = ceiling(weights)
    grid = fit_grid(picture, max_width, color)
    cells = [
        [
            grid.format_cell(min(1.0, weight / top), linked=(column, row) in (picture.links or ()))
            for column, weight in line
        ]
        for row, line in enumerate(map(enumerate, weights.tolist()))
    ]
    blocks = []
    for start in range(0, len(picture.columns), grid.columns):
        panel = slice(start, start + grid.columns)
        rows = [grid.format_row(name, line[panel]) for name, line in zip(picture.rows, cells, strict=True)]
        if picture.generated is not None:
            rows = [f"{row} {share:.2f}" for row, share in zip(rows, picture.generated, strict=True)]
        blocks.append("\n".join([*grid.format_headings(picture.columns[panel]), *rows]))
    caption = wrap_text(sanitize_text(picture.caption(layer, head)), max_width, TITLE)
    note = [] if picture.generated is None else wrap_text(GENERATED, max_width)
    return "\n".join([*caption, "\n\n".join(blocks), format_legend(grid, top, marked=bool(picture.links)), *note])


def detect_color(stream: Stream, environ: Mapping[str, str]) -> str:
    """Return the color mode of a stream: "truecolor", "256" or "ascii".

    NO_COLOR disables color, FORCE_COLOR enables it even without a terminal (0: none,
    3: truecolor); otherwise COLORTERM and TERM decide.
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
    """Layout of the cells: sizes, columns per panel and color mode."""

    label_width: int  # width of the row labels
    cell_width: int
    columns: int  # cells per panel row
    color: str

    @property
    def edge(self) -> str:
        """Border of a row of cells, needed without color."""
        return "|" if self.color == "ascii" else ""

    def format_cell(self, shade: float, *, linked: bool) -> tuple[str, str]:
        """Return the color code and the characters of a cell."""
        blank = SHADES[round(shade * (len(SHADES) - 1))] if self.color == "ascii" else " "
        left = self.cell_width // 2
        text = blank * left + MARK + blank * (self.cell_width - left - 1) if linked else blank * self.cell_width
        return get_color_code(shade, self.color), text

    def format_row(self, name: str, cells: Sequence[tuple[str, str]]) -> str:
        """Return a row: its label and its cells."""
        label = align_right(truncate(sanitize_text(name), self.label_width), self.label_width)
        return f"{label} {self.edge}{join_cells(cells)}{self.edge}"

    def format_headings(self, names: Sequence[str]) -> list[str]:
        """Return the lines above a panel: the column labels, written vertically."""
        lines = zip_longest(*(reversed(split_label(name)) for name in names), fillvalue=" ")
        indent = " " * (self.label_width + 1 + len(self.edge))
        above = [indent + "".join(align_center(cluster, self.cell_width) for cluster in line) for line in lines]
        return [line.rstrip() for line in reversed(above)]


def fit_grid(picture: AttentionMap, max_width: int, color: str) -> Grid:
    """Choose the widest cells that fit all columns, or else split them into equal panels."""
    label_width = min(LABEL, max_width // 3, max(display_width(sanitize_text(name)) for name in picture.rows))
    grid = Grid(label_width, 0, 0, color)
    space = max_width - label_width - 1 - 2 * len(grid.edge) - (0 if picture.generated is None else GENERATED_WIDTH)
    count = len(picture.columns)
    min_cell_width = max(display_width(cluster) for name in picture.columns for cluster in ("", *split_label(name)))
    if picture.links and color == "ascii":
        min_cell_width = max(min_cell_width, 2)  # room for the shade next to the mark
    for cell_width in CELL_WIDTHS:
        if cell_width >= min_cell_width and cell_width * count <= space:
            return Grid(label_width, cell_width, count, color)
    cell_width = max(2, min_cell_width)
    panels = -(-count // (space // cell_width))
    return Grid(label_width, cell_width, -(-count // panels), color)


def split_label(name: str) -> list[str]:
    """Split a column label into one character per line."""
    parts = [
        part if display_width(part) <= CELL_WIDTHS[0] else REPLACEMENT for part in split_graphemes(sanitize_text(name))
    ]
    return parts if len(parts) <= HEIGHT else [*parts[: HEIGHT - 1], ELLIPSIS]


def get_color_code(shade: float, color: str) -> str:
    """Return the escape sequence for the colors of a cell and its mark."""
    if color == "ascii":
        return ""
    if color == "256":
        return f"\x1b[38;5;{231 if shade > 0.5 else 16};48;5;{COLOR_CODES[round(shade * (len(COLOR_CODES) - 1))]}m"
    mark = "255;255;255" if shade > 0.5 else "0;0;0"
    return f"\x1b[38;2;{mark};48;2;{';'.join(map(str, shade_to_rgb(shade)))}m"


def join_cells(cells: Sequence[tuple[str, str]]) -> str:
    """Join cells, setting the color once per run of equal ones."""
    runs = [(code, "".join(text for _, text in run)) for code, run in groupby(cells, key=lambda cell: cell[0])]
    return "".join(code + text + (RESET if code else "") for code, text in runs)


def format_legend(grid: Grid, top: float, *, marked: bool) -> str:
    """Return the color scale with its maximum."""
    narrow = Grid(grid.label_width, 1, grid.columns, grid.color)
    steps = len(SHADES) - 1
    shades = join_cells([narrow.format_cell(step / steps, linked=False) for step in range(steps + 1)])
    return f"0 {shades} {top:g}" + (f"  {MARK} gold alignment" if marked else "")


def resolve_width(width: int | None) -> int:
    """Return the width in columns, or raise `RegardError` if it is too narrow."""
    if width is None:
        return max(NARROWEST_TERMINAL, shutil.get_terminal_size().columns)
    if width < NARROWEST_TERMINAL:
        raise RegardError(f"width must be at least {NARROWEST_TERMINAL}, got {width}")
    return width


def resolve_color(color: str) -> str:
    """Return the color mode, resolving "auto"."""
    if color not in COLOR_MODES:
        raise unknown_name("color", color, COLOR_MODES)
    return detect_color(sys.stdout, os.environ) if color == "auto" else color
