"""From weights to shades, alike in every view."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

RAMP = (  # from paper to deep blue; each step is darker by the same 8 of CIE L*
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

DARK_RAMP = (  # the same for a dark page: from its paper to pale blue, each step lighter by 8
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
    """The weight that gets the darkest shade: the smallest round number that none exceeds.

    Attention that is sure of itself is always shown on 0 to 1; a faint average can still be seen.
    """
    return min((top for top in CEILINGS if weights.max(initial=0) <= top), default=1.0)


Colour = tuple[int, int, int]


def rgb(shade: float, ramp: tuple[Colour, ...] = RAMP) -> Colour:
    """The colour of a shade between 0 and 1."""
    places = np.linspace(0, 1, len(ramp))
    red, green, blue = (round(float(np.interp(shade, places, channel))) for channel in zip(*ramp, strict=True))
    return red, green, blue


def ink(paper: Colour) -> Colour:
    """Black or white, whichever is easier to read on a colour."""
    parts = np.array(paper) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)  # on 0.179 the contrast of both is 4.6


def hexadecimal(colour: Colour) -> str:
    """A colour as SVG and CSS write it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
