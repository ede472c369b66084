"""Every view of an attention map that can be written as SVG, by its name."""

from __future__ import annotations

from pathlib import Path

from regard.errors import RegardError, unknown_name
from regard.files import write_text
from regard.views.attention_map import AttentionMap, Choice
from regard.views.svg.heads import heads_svg
from regard.views.svg.lines import lines_svg
from regard.views.svg.matrix import matrix_svg

VIEWS = ("matrix", "lines", "heads")


def view_svg(picture: AttentionMap, view: str, *, layer: Choice = "mean", head: Choice = "mean") -> str:
    """One view as an SVG file."""
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    if view == "heads":
        return heads_svg(picture)
    draw = matrix_svg if view == "matrix" else lines_svg
    return draw(picture, layer=layer, head=head)


def save_svg(
    picture: AttentionMap, path: str | Path, *, view: str, layer: Choice = "mean", head: Choice = "mean"
) -> Path:
    """Draw one view into a .svg file, whole or not at all; returns the path."""
    path = Path(path)
    content = view_svg(picture, view, layer=layer, head=head)
    if path.suffix.lower() != ".svg":
        raise RegardError(f'{path}: {view} are written as .svg; found "{path.suffix}"')
    write_text(path, content)
    return path
