"""AttentionMap: who looks at what, as plain arrays and words; every view is drawn from one.

    picture = AttentionMap(("katzen", "schlafen"), ("cats", "sleep"), weights)
    picture.select(layer=0, head="mean")  # (rows, columns)
    print(picture.draw())  # in the terminal
    picture.picture("look.png")
    picture.html("look.html")  # in the browser
    picture.save("look.json")

Nothing here needs torch, so that a map can be drawn where no model is.
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
from regard.files import reading, write_text
from regard.views.fields import (
    FORMAT,
    Alternatives,
    as_alternatives,
    as_labels,
    as_links,
    check_format,
    check_links,
)
from regard.views.weights import (
    MapWeights,
    TopWeights,
    check_weights,
    known_weights,
    largest,
    mean_matrix,
    mean_received,
    same_weights,
    weights_record,
)

FIELDS = ("title", "merged", "rows", "columns", "links", "weights")
OPTIONAL = ("alternatives",)
MERGED = ("tokens", "words")
PICTURES = (".png", ".svg", ".pdf")

Choice = int | str | None
"""One layer or head by number (from 0, or from the end with -1), or "mean" over all; None is "mean" too."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """How much every row (target: who looks) looks at every column (source: what is looked at)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: MapWeights  # (layers, heads, rows, columns), kept as float32; or the largest of each row
    title: str = ""
    merged: str = "tokens"  # what a row and a column is: tokens, or words merged from them
    links: frozenset[tuple[int, int]] | None = None  # the true alignment: (column, row), that is (source, target)
    alternatives: Alternatives | None = None  # what a row might have been: texts and probabilities, best first

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", as_labels("rows", self.rows))
        object.__setattr__(self, "columns", as_labels("columns", self.columns))
        object.__setattr__(self, "weights", known_weights(self.weights))
        object.__setattr__(self, "links", as_links(self.links))
        object.__setattr__(self, "alternatives", as_alternatives(self.alternatives, len(self.rows)))
        if self.merged not in MERGED:
            raise unknown_name("attention map: merged", self.merged, MERGED)
        check_weights(self.weights, len(self.rows), len(self.columns))
        check_links(self.links or frozenset(), len(self.columns), len(self.rows))

    def __repr__(self) -> str:
        sizes = zip(("layers", "heads", "rows", "columns"), self.weights.shape, strict=True)
        shape = ", ".join(f"{name} {size}" for name, size in sizes)
        kept = f", the largest {self.kept} of a row" if self.kept else ""
        return f"AttentionMap({self.title!r}: {shape}, by {self.merged}{kept})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionMap):
            return NotImplemented
        return self._words() == other._words() and same_weights(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash(self._words())

    def _words(self) -> tuple[object, ...]:
        """All but the weights."""
        return (self.rows, self.columns, self.title, self.merged, self.links, self.alternatives)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.weights.shape[0]

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return self.weights.shape[1]

    @property
    def kept(self) -> int | None:
        """How many weights of each row there are; None where all are."""
        return self.weights.kept if isinstance(self.weights, TopWeights) else None

    def select(self, layer: Choice = "mean", head: Choice = "mean") -> Float32[np.ndarray, "rows columns"]:
        """The weights of one layer and head, or their mean over all layers, all heads, or both."""
        layers = chosen("layer", layer, self.layers)
        heads = chosen("head", head, self.heads)
        return mean_matrix(self.weights, layers, heads)

    def received(self, layer: Choice = "mean", head: Choice = "mean") -> Float32[np.ndarray, " columns"]:
        """What every column gets from all rows together."""
        return mean_received(self.weights, chosen("layer", layer, self.layers), chosen("head", head, self.heads))

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
    ) -> AttentionMap:
        """A map of the largest weights of each row, which `Weights.top` and `Weights.received` give.

        A row that has fewer holds -1 in `indices`, and 0 in `values`.
        """
        weights = TopWeights(values, indices, received)
        return cls(tuple(rows), tuple(columns), weights, title, merged, links, alternatives)

    def keep_top(self, count: int) -> AttentionMap:
        """The same map with the largest `count` weights of each row alone."""
        if count < 1:
            raise RegardError(f"keep_top: found {count}; give a whole number above 0")
        return replace(self, weights=largest(self.weights, count))

    def caption(self, layer: Choice = "mean", head: Choice = "mean") -> str:
        """The title, and which layer and head are shown where there are several."""
        shown = []
        for name, choice, count in (("layer", layer, self.layers), ("head", head, self.heads)):
            start = chosen(name, choice, count).start
            if count > 1:
                shown.append(f"mean of {count} {name}s" if choice in ("mean", None) else f"{name} {start}")
        if self.kept:
            shown.append(f"the largest {self.kept} of a row")
        return " · ".join(part for part in (self.title, ", ".join(shown)) if part)

    def record(self) -> dict[str, Any]:
        """The map as plain data, ready for JSON; `from_record` reads the same weights from it, to the bit."""
        record = {
            "format": FORMAT,
            "title": self.title,
            "merged": self.merged,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "links": None if self.links is None else [list(link) for link in sorted(self.links)],
            "weights": weights_record(self.weights),
        }
        if self.alternatives is not None:
            record["alternatives"] = [[list(each) for each in several] for several in self.alternatives]
        return record

    @classmethod
    def from_record(cls, record: object) -> AttentionMap:
        """The map that `record` described."""
        if not isinstance(record, Mapping):
            raise RegardError(f"found {type(record).__name__}; an attention map is a JSON object")
        check_format(record.get("format"))
        for name in FIELDS:
            if name not in record:
                raise RegardError(f'has no "{name}"; an attention map has {", ".join(FIELDS)}')
        for name in record:
            if name not in ("format", *FIELDS, *OPTIONAL):
                raise unknown_name("attention map", name, (*FIELDS, *OPTIONAL))
        for name in ("title", "merged"):
            if not isinstance(record[name], str):
                raise RegardError(f"attention map: {name} is {record[name]!r}; give a text")
        rows, columns = as_labels("rows", record["rows"]), as_labels("columns", record["columns"])
        weights, links = known_weights(record["weights"]), as_links(record["links"])
        alternatives = as_alternatives(record.get("alternatives"), len(rows))
        return cls(rows, columns, weights, record["title"], record["merged"], links, alternatives)

    def draw(self, *, layer: Choice = "mean", head: Choice = "mean") -> str:
        """The map as text for the terminal; `regard.views.terminal.draw` has more options."""
        from regard.views.terminal import draw

        return draw(self, layer=layer, head=head)

    def svg(self, view: str = "matrix", *, layer: Choice = "mean", head: Choice = "mean") -> str:
        """The map as an SVG drawing: "matrix", "lines", or "heads", which shows them all."""
        from regard.views.svg.views import view_svg

        return view_svg(self, view, layer=layer, head=head)

    def picture(self, path: str | Path, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> Path:
        """Draw the map into a .svg file or, as a matrix, into .png or .pdf too; returns the path."""
        from regard.views.matrix import save_matrix
        from regard.views.svg.views import save_svg

        save = save_matrix if view == "matrix" else partial(save_svg, view=view)
        return save(self, path, layer=layer, head=head)

    def page(self, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> str:
        """The map as one HTML file, whole in itself, in which all views can be turned over, and what it shows first."""
        from regard.views.page import map_page

        return map_page(self, view=view, layer=layer, head=head)

    def html(self, path: str | Path, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> Path:
        """Write `page` into a file; returns the path."""
        write_text(Path(path), self.page(view=view, layer=layer, head=head))
        return Path(path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from regard.views.page import frame

        return frame(self)

    def save(self, path: str | Path) -> None:
        """Write the map as JSON, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() in PICTURES:
            raise RegardError(f'{path}: save writes JSON; for a picture call picture("{path}")')
        write_text(path, json.dumps(self.record()) + "\n")  # in ASCII: any token, half a surrogate too

    @classmethod
    def load(cls, path: str | Path) -> AttentionMap:
        """Read a map that `save` wrote."""
        try:
            with reading(Path(path)):
                text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise RegardError(f"{path}: is not text; an attention map is a JSON file") from None
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:  # the last for thousands of lists within lists
            raise RegardError(f"{path}: is not JSON: {error}") from None
        try:
            return cls.from_record(record)
        except RegardError as error:
            raise RegardError(f"{path}: {error}") from None


def check_map(what: str, found: object) -> None:
    """Raise a `RegardError` for what is no map, such as the prediction that one can be made of."""
    if not isinstance(found, AttentionMap):
        raise RegardError(
            f"{what}: found {type(found).__name__}; an AttentionMap is needed, as model.attention_map(prediction) gives"
        )


def chosen(name: str, choice: Choice, count: int) -> slice:
    """The layers or heads that a choice means."""
    if choice is None or choice == "mean":
        return slice(0, count)
    if not isinstance(choice, int) or not -count <= choice < count:
        raise RegardError(f'{name}: there is no "{choice}"; give a number from 0 to {count - 1}, or "mean"')
    return slice(choice % count, choice % count + 1)
