"""All layers and heads as SVG: a grid of small maps with a row per layer and a column per head."""

from __future__ import annotations

from regard.views.attention_map import AttentionMap, check_map
from regard.views.display import sanitize_text
from regard.views.shades import ceiling
from regard.views.svg.pixels import encode_png_url
from regard.views.svg.writer import GREY, LINE, MARGIN, add, add_scale, new_drawing, serialize_svg

SIDE, GAP = 96.0, 8.0  # longer side of a small map, and the space between two, in pixels
FINEST = 192  # maximum size of its image in pixels, so that it can be enlarged


def draw_heads_svg(picture: AttentionMap) -> str:
    """Return all heads as SVG, on one color scale."""
    check_map("draw_heads_svg", picture)
    maps = [[picture.select(layer, head) for head in range(picture.heads)] for layer in range(picture.layers)]
    vmax = max(ceiling(weights) for line in maps for weights in line)
    cell = SIDE / max(len(picture.rows), len(picture.columns))
    map_width, map_height = max(8.0, cell * len(picture.columns)), max(8.0, cell * len(picture.rows))
    left, top = MARGIN + 56, MARGIN + 2 * LINE + 6
    width, height = left + picture.heads * (map_width + GAP), top + picture.layers * (map_height + GAP)
    drawing = new_drawing(max(width, 260.0) + MARGIN, height + LINE + MARGIN, sanitize_text(picture.title))
    for head in range(picture.heads):
        middle = left + head * (map_width + GAP) + map_width / 2
        name = f"head {head}" if map_width >= 48 else str(head)
        add(drawing, "text", name, x=middle, y=top - 6, text_anchor="middle", font_size=10)
    for layer, line in enumerate(maps):
        y = top + layer * (map_height + GAP)
        add(
            drawing, "text", f"layer {layer}", x=MARGIN, y=y + map_height / 2, dominant_baseline="central", font_size=10
        )
        for head, weights in enumerate(line):
            box = {"x": left + head * (map_width + GAP), "y": y, "width": map_width, "height": map_height}
            href = encode_png_url(weights, vmax, FINEST)
            style = {"preserveAspectRatio": "none", "style": "image-rendering: pixelated"}
            image = add(drawing, "image", href=href, data_layer=str(layer), data_head=str(head), **box, **style)
            add(image, "title", f"layer {layer}, head {head}")
            add(drawing, "rect", fill="none", stroke=GREY, stroke_width=0.6, **box)
    add_scale(drawing, left, height + 6, vmax)
    return serialize_svg(drawing)
