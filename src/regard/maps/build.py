"""Build the attention map of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from regard.attention.weights import Weights
from regard.maps.alternatives import TokenAlternatives
from regard.maps.sides import Side
from regard.maps.weights import build_map_weights
from regard.views.attention_map import AttentionMap

TITLE = 80
"""Maximum width of a text in a title."""


def build_map(
    layers: Sequence[Weights],
    rows: Side,
    columns: Side,
    title: str,
    top: int | None,
    alternatives: tuple[TokenAlternatives, ...] | None = None,
    alternatives_for: str = "row",
) -> AttentionMap:
    """Build a map from the weights of several layers."""
    weights = build_map_weights(layers, rows, columns, top)
    merged = "words" if rows.merged or columns.merged else "tokens"
    return AttentionMap(rows.names, columns.names, weights, title, merged, None, alternatives, alternatives_for)
