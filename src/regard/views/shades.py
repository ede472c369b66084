"""Map weights to colors; shared by all views."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

RAMP = (  # from the background to deep blue in equal steps of 8 in CIE L*
    (242, 248, 252),
    (201, 228, 247),
    (163, 207, 241),
    (128, 185, 232),
    (97, 163, 221),
    (72, 140, 207),
    (52, 117, 188),
    (39, 95, 166),
    (30, 73, 140),
    (24, 54, 111),
    (18, 36, 81),
)

DARK_RAMP = (  # for dark mode: from the background to pale blue, each step lighter by 8
    (30, 34, 44),
    (43, 49, 77),
    (47, 67, 115),
    (36, 87, 156),
    (47, 108, 179),
    (63, 130, 199),
    (85, 152, 214),
    (113, 174, 227),
    (146, 196, 236),
    (181, 217, 244),
    (221, 237, 249),
)

CEILINGS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def ceiling(weights: Float[np.ndarray, "..."]) -> float:
    """Return the weight of the darkest shade: the smallest round number that no weight exceeds.

    So a peaked distribution is shown on a scale of 0 to 1, and a flat average is still visible.
    """
    return min((top for top in CEILINGS if weights.max(initial=0) <= top), default=1.0)


Color = tuple[int, int, int]


def shade_to_rgb(shade: float, ramp: tuple[Color, ...] = RAMP) -> Color:
    """Return the color of a shade between 0 and 1."""
    stops = np.linspace(0, 1, len(ramp))
    red, green, blue = (round(float(np.interp(shade, stops, channel))) for channel in zip(*ramp, strict=True))
    return red, green, blue


def choose_text_color(background: Color) -> Color:
    """Return black or white, whichever has more contrast with the background."""
    channels = np.array(background) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)  # at 0.179 both have a contrast of 4.6


def to_hex(color: Color) -> str:
    """Format a color as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
