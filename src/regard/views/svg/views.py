"""Draw an attention map as SVG by the name of the view."""

from __future__ import annotations

from pathlib import Path

from regard.errors import RegardError, unknown_name
from regard.files import write_text
from regard.views.attention_map import AttentionMap, IndexOrMean
from regard.views.svg.heads import draw_heads_svg
from regard.views.svg.lines import draw_lines_svg
from regard.views.svg.matrix import draw_matrix_svg

VIEWS = ("matrix", "lines", "heads")


def draw_svg(picture: AttentionMap, view: str, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
    """Return one view as SVG."""
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    if view == "heads":
        return draw_heads_svg(picture)
    draw = draw_matrix_svg if view == "matrix" else draw_lines_svg
    return draw(picture, layer=layer, head=head)


def save_svg(
    picture: AttentionMap, path: str | Path, *, view: str, layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
) -> Path:
    """Save one view as .svg (atomically); return the path."""
    path = Path(path)
    content = draw_svg(picture, view, layer=layer, head=head)
    if path.suffix.lower() != ".svg":
        raise RegardError(f'{path}: the {view} view requires .svg, got "{path.suffix}"')
    write_text(path, content)
    return path
