"""AttentionMap: attention weights with their row and column labels, the input of every view.

    attention_map = AttentionMap(("katzen", "schlafen"), ("cats", "sleep"), weights)
    attention_map.select(layer=0, head="mean")  # (rows, columns)
    print(attention_map.draw())  # in the terminal
    attention_map.save_picture("look.png")
    attention_map.save_html("look.html")  # in the browser
    attention_map.save("look.json")

This module does not import torch, so maps can be drawn without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int

from regard.errors import RegardError, unknown_name
from regard.files import parse_json, wrap_read_errors, write_text
from regard.views.fields import (
    FORMAT,
    Alternatives,
    as_alternatives,
    as_generated,
    as_labels,
    as_links,
    check_format,
    check_links,
)
from regard.views.weights import (
    MapWeights,
    TopWeights,
    as_map_weights,
    check_weights,
    is_same_weights,
    keep_largest,
    mean_matrix,
    mean_received,
    to_weights_record,
)

FIELDS = ("title", "merged", "rows", "columns", "links", "weights")
OPTIONAL = ("alternatives", "alternatives_for", "generated")
MERGED = ("tokens", "words")
ALTERNATIVES_FOR = ("row", "next")
PICTURES = (".png", ".svg", ".pdf")

IndexOrMean = int | str | None
"""A layer or head index (negative counts from the end), or "mean" over all; None is the same as "mean"."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """Attention weights of every row (query, target) over every column (key, source), by layer and head.

    Args:
        rows: Labels of the rows.
        columns: Labels of the columns.
        weights: An array of shape (layers, heads, rows, columns), stored as float32, or `TopWeights`.
        title: Title of the map.
        merged: What a row and a column is: "tokens", or "words" merged from them.
        links: The gold alignment, as pairs (column, row), that is (source, target).
        alternatives: For every row, the texts the model considered and their probabilities, best first.
        alternatives_for: What a step considered: "row", if its row is the token it wrote, or "next", if its row is the
            token it read; the last row then has the texts that may come next.
        generated: For every row, the probability that its token was generated rather than copied from a column, for a
            model that copies.

    Raises:
        RegardError: The labels, weights, links or alternatives are invalid or do not match.

    Example:
        >>> attention_map = AttentionMap(("a", "b"), ("x", "y"), [[[[0.9, 0.1], [0.2, 0.8]]]])
        >>> attention_map.select().shape
        (2, 2)
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: MapWeights
    title: str = ""
    merged: str = "tokens"
    links: frozenset[tuple[int, int]] | None = None
    alternatives: Alternatives | None = None
    alternatives_for: str = "row"
    generated: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", as_labels("rows", self.rows))
        object.__setattr__(self, "columns", as_labels("columns", self.columns))
        object.__setattr__(self, "weights", as_map_weights(self.weights))
        object.__setattr__(self, "links", as_links(self.links))
        object.__setattr__(self, "alternatives", as_alternatives(self.alternatives, len(self.rows)))
        object.__setattr__(self, "generated", as_generated(self.generated, len(self.rows)))
        if self.merged not in MERGED:
            raise unknown_name("attention map: merged", self.merged, MERGED)
        if self.alternatives_for not in ALTERNATIVES_FOR:
            raise unknown_name("attention map: alternatives_for", self.alternatives_for, ALTERNATIVES_FOR)
        check_weights(self.weights, len(self.rows), len(self.columns))
        check_links(self.links or frozenset(), len(self.columns), len(self.rows))

    def __repr__(self) -> str:
        sizes = zip(("layers", "heads", "rows", "columns"), self.weights.shape, strict=True)
        shape = ", ".join(f"{name} {size}" for name, size in sizes)
        suffix = f", top {self.top_k} weights per row" if self.top_k else ""
        return f"AttentionMap({self.title!r}: {shape}, by {self.merged}{suffix})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionMap):
            return NotImplemented
        return self._get_labels() == other._get_labels() and is_same_weights(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash(self._get_labels())

    def _get_labels(self) -> tuple[object, ...]:
        """Return all fields except the weights."""
        alternatives = None if self.alternatives is None else (self.alternatives, self.alternatives_for)
        return (self.rows, self.columns, self.title, self.merged, self.links, alternatives, self.generated)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.weights.shape[0]

    @property
    def heads(self) -> int:
        """Number of heads per layer."""
        return self.weights.shape[1]

    @property
    def top_k(self) -> int | None:
        """Number of weights kept per row, or None if all are kept."""
        return self.weights.top_k if isinstance(self.weights, TopWeights) else None

    def select(self, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> Float32[np.ndarray, "rows columns"]:
        """Return the weights of one layer and head, or their mean over all layers, all heads, or both."""
        layers = to_slice("layer", layer, self.layers)
        heads = to_slice("head", head, self.heads)
        return mean_matrix(self.weights, layers, heads)

    def received(self, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> Float32[np.ndarray, " columns"]:
        """Return the total weight that every column receives from all rows."""
        return mean_received(self.weights, to_slice("layer", layer, self.layers), to_slice("head", head, self.heads))

    @classmethod
    def from_top(
        cls,
        rows: Sequence[str],
        columns: Sequence[str],
        values: Float[np.ndarray, "layers heads rows kept"],
        indices: Int[np.ndarray, "layers heads rows kept"],
        received: Float[np.ndarray, "layers heads columns"],
        *,
        title: str = "",
        merged: str = "tokens",
        links: frozenset[tuple[int, int]] | None = None,
        alternatives: Alternatives | None = None,
        alternatives_for: str = "row",
    ) -> AttentionMap:
        """Build a map from the largest weights per row, as returned by `Weights.top` and `Weights.received`.

        Args:
            rows: Labels of the rows.
            columns: Labels of the columns.
            values: The largest weights of every row; 0 where a row has fewer.
            indices: Their columns; -1 where a row has fewer.
            received: The total weight of every column.
            title: Title of the map.
            merged: "tokens" or "words".
            links: The gold alignment, as pairs (column, row).
            alternatives: For every row, texts and their probabilities, best first.
            alternatives_for: "row" or "next".
        """
        weights = TopWeights(values, indices, received)
        return cls(tuple(rows), tuple(columns), weights, title, merged, links, alternatives, alternatives_for)

    def keep_top(self, count: int) -> AttentionMap:
        """Return the map with only the largest `count` weights of each row."""
        if count < 1:
            raise RegardError(f"keep_top: count must be a positive integer, got {count}")
        return replace(self, weights=keep_largest(self.weights, count))

    def caption(self, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
        """Return the title, followed by the layer and head if the map has several."""
        parts = []
        for name, choice, count in (("layer", layer, self.layers), ("head", head, self.heads)):
            start = to_slice(name, choice, count).start
            if count > 1:
                parts.append(f"mean of {count} {name}s" if choice in ("mean", None) else f"{name} {start}")
        if self.top_k:
            parts.append(f"top {self.top_k} weights per row")
        return " · ".join(part for part in (self.title, ", ".join(parts)) if part)

    def record(self) -> dict[str, Any]:
        """Return the map as JSON-serializable data; `from_record` restores the weights bit by bit."""
        record = {
            "format": FORMAT,
            "title": self.title,
            "merged": self.merged,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "links": None if self.links is None else [list(link) for link in sorted(self.links)],
            "weights": to_weights_record(self.weights),
        }
        if self.alternatives is not None:
            record["alternatives"] = [
                [list(alternative) for alternative in row_alternatives] for row_alternatives in self.alternatives
            ]
            record["alternatives_for"] = self.alternatives_for
        if self.generated is not None:
            record["generated"] = list(self.generated)
        return record

    @classmethod
    def from_record(cls, record: object) -> AttentionMap:
        """Build a map from the output of `record`.

        Raises:
            RegardError: The record is invalid or has an unsupported format.
        """
        if not isinstance(record, Mapping):
            raise RegardError(f"expected a JSON object, got {type(record).__name__}")
        check_format(record.get("format"))
        for name in FIELDS:
            if name not in record:
                raise RegardError(f'attention map: "{name}" is required')
        for name in record:
            if name not in ("format", *FIELDS, *OPTIONAL):
                raise unknown_name("attention map: field", name, (*FIELDS, *OPTIONAL))
        for name in ("title", "merged"):
            if not isinstance(record[name], str):
                raise RegardError(f"attention map: {name}: expected a string, got {type(record[name]).__name__}")
        rows, columns = as_labels("rows", record["rows"]), as_labels("columns", record["columns"])
        weights, links = as_map_weights(record["weights"]), as_links(record["links"])
        alternatives = as_alternatives(record.get("alternatives"), len(rows))
        alternatives_for = record.get("alternatives_for", "row")
        labels = (record["title"], record["merged"])
        generated = as_generated(record.get("generated"), len(rows))
        return cls(rows, columns, weights, *labels, links, alternatives, alternatives_for, generated)

    def draw(self, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
        """Return the map as text for the terminal. `regard.views.terminal.draw` has more options."""
        from regard.views.terminal import draw

        return draw(self, layer=layer, head=head)

    def to_svg(self, view: str = "matrix", *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
        """Return the map as SVG. Views are "matrix", "lines" and "heads" (a grid of all heads)."""
        from regard.views.svg.views import draw_svg

        return draw_svg(self, view, layer=layer, head=head)

    def save_picture(
        self, path: str | Path, *, view: str = "matrix", layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
    ) -> Path:
        """Save the map as .svg, or in the matrix view also as .png or .pdf; return the path."""
        from regard.views.matrix import save_matrix
        from regard.views.svg.views import save_svg

        save = save_matrix if view == "matrix" else partial(save_svg, view=view)
        return save(self, path, layer=layer, head=head)

    def to_html(self, *, view: str = "matrix", layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
        """Return a self-contained interactive HTML page that opens with this view, layer and head."""
        from regard.views.page import build_map_page

        return build_map_page(self, view=view, layer=layer, head=head)

    def save_html(
        self, path: str | Path, *, view: str = "matrix", layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
    ) -> Path:
        """Save the page of `to_html`; return the path."""
        write_text(Path(path), self.to_html(view=view, layer=layer, head=head))
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the HTML representation for notebooks."""
        from regard.views.page import build_iframe

        return build_iframe(self)

    def to_json(self) -> str:
        """Return the map as JSON, in one line that ends with a line break."""
        return json.dumps(self.record()) + "\n"  # ASCII, since a token may hold a lone surrogate

    def save(self, path: str | Path) -> None:
        """Save the map as JSON (atomically)."""
        path = Path(path)
        if path.suffix.lower() in PICTURES:
            raise RegardError(f'{path}: save writes JSON; use save_picture("{path}") for a picture')
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> AttentionMap:
        """Load a map written by `save`.

        Raises:
            RegardError: The file cannot be read or is not an attention map.
        """
        try:
            with wrap_read_errors(Path(path)):
                text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise RegardError(f"{path} is not valid JSON: not UTF-8 text") from None
        record = parse_json(text, str(path))
        try:
            return cls.from_record(record)
        except RegardError as error:
            raise RegardError(f"{path}: {error}") from None


def check_map(function: str, value: object) -> None:
    """Raise `RegardError` if the value is not an attention map."""
    if not isinstance(value, AttentionMap):
        raise RegardError(
            f"{function}: expected an AttentionMap, got {type(value).__name__}; call model.attention_map(...)"
        )


def to_slice(name: str, choice: IndexOrMean, count: int) -> slice:
    """Convert a layer or head choice to a slice."""
    if choice is None or choice == "mean":
        return slice(0, count)
    if not isinstance(choice, int) or not -count <= choice < count:
        raise RegardError(f'{name} must be from 0 to {count - 1} or "mean", got {choice}')
    return slice(choice % count, choice % count + 1)
