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

CEILINGS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def ceiling(weights: Float[np.ndarray, "..."]) -> float:
    """The weight that gets the darkest shade: the smallest round number that none exceeds.

    Attention that is sure of itself is always shown on 0 to 1; a faint average can still be seen.
    """
    return min((top for top in CEILINGS if weights.max() <= top), default=1.0)


def rgb(shade: float) -> tuple[int, int, int]:
    """The colour of a shade between 0 and 1."""
    places = np.linspace(0, 1, len(RAMP))
    red, green, blue = (round(float(np.interp(shade, places, channel))) for channel in zip(*RAMP, strict=True))
    return red, green, blue
