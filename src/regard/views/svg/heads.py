"""All layers and heads as SVG: a grid of small maps, layers downwards and heads across."""

from __future__ import annotations

from regard.views.attention_map import AttentionMap, check_map
from regard.views.display import harmless
from regard.views.shades import ceiling
from regard.views.svg.pixels import shade_picture
from regard.views.svg.writer import GREY, LINE, MARGIN, add, add_scale, paper, svg_text

SIDE, GAP = 96.0, 8.0  # pixels: the longer side of a small map, and the space between two
FINEST = 192  # pixels of the picture in it, so that it can be enlarged


def heads_svg(picture: AttentionMap) -> str:
    """The small maps as an SVG file, all on one scale."""
    check_map("heads_svg", picture)
    maps = [[picture.select(layer, head) for head in range(picture.heads)] for layer in range(picture.layers)]
    most = max(ceiling(weights) for line in maps for weights in line)
    cell = SIDE / max(len(picture.rows), len(picture.columns))
    wide, high = max(8.0, cell * len(picture.columns)), max(8.0, cell * len(picture.rows))
    left, top = MARGIN + 56, MARGIN + 2 * LINE + 6
    width, height = left + picture.heads * (wide + GAP), top + picture.layers * (high + GAP)
    drawing = paper(max(width, 260.0) + MARGIN, height + LINE + MARGIN, harmless(picture.title))
    for head in range(picture.heads):
        middle = left + head * (wide + GAP) + wide / 2
        name = f"head {head}" if wide >= 48 else str(head)
        add(drawing, "text", name, x=middle, y=top - 6, text_anchor="middle", font_size=10)
    for layer, line in enumerate(maps):
        y = top + layer * (high + GAP)
        add(drawing, "text", f"layer {layer}", x=MARGIN, y=y + high / 2, dominant_baseline="central", font_size=10)
        for head, weights in enumerate(line):
            place = {"x": left + head * (wide + GAP), "y": y, "width": wide, "height": high}
            href = shade_picture(weights, most, FINEST)
            style = {"preserveAspectRatio": "none", "style": "image-rendering: pixelated"}
            small = add(drawing, "image", href=href, data_layer=str(layer), data_head=str(head), **place, **style)
            add(small, "title", f"layer {layer}, head {head}")
            add(drawing, "rect", fill="none", stroke=GREY, stroke_width=0.6, **place)
    add_scale(drawing, left, height + 6, most)
    return svg_text(drawing)
