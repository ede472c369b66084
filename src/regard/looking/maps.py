"""The map of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from regard.attention.weights import Weights
from regard.looking.alternatives import Considered
from regard.looking.sides import Side
from regard.looking.weights import map_weights
from regard.views.attention_map import AttentionMap

TITLE = 80
"""Columns of a text that a title has."""


def new_map(
    layers: Sequence[Weights],
    rows: Side,
    columns: Side,
    title: str,
    top: int | None,
    alternatives: tuple[Considered, ...] | None = None,
) -> AttentionMap:
    """The map of some layers."""
    weights = map_weights(layers, rows, columns, top)
    merged = "words" if rows.merged or columns.merged else "tokens"
    return AttentionMap(rows.names, columns.names, weights, title, merged, None, alternatives)
