"""AttentionMap: who looks at what, as plain arrays and words; every view is drawn from one.

    picture = AttentionMap(("katzen", "schlafen"), ("cats", "sleep"), weights)
    picture.select(layer=0, head="mean")  # (rows, columns)
    print(picture.draw())  # in the terminal
    picture.picture("look.png")
    picture.save("look.json")

Nothing here needs torch, so that a map can be drawn where no model is.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from regard.errors import RegardError, unknown_name

FORMAT = "regard.attention_map/1"
FIELDS = ("title", "merged", "rows", "columns", "links", "weights")
MERGED = ("tokens", "words")
PICTURES = (".png", ".svg", ".pdf")

EXCESS = 0.01  # how far a sum of bfloat16 weights may pass one

Choice = int | str | None
"""One layer or head by number (from 0, or from the end with -1), or "mean" over all; None is "mean" too."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """How much every row (target: who looks) looks at every column (source: what is looked at)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Float[np.ndarray, "..."]  # (layers, heads, rows, columns); kept as float32
    title: str = ""
    merged: str = "tokens"  # what a row and a column is: tokens, or words merged from them
    links: frozenset[tuple[int, int]] | None = None  # the true alignment: (column, row), that is (source, target)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", as_labels("rows", self.rows))
        object.__setattr__(self, "columns", as_labels("columns", self.columns))
        object.__setattr__(self, "weights", as_weights(self.weights))
        object.__setattr__(self, "links", as_links(self.links))
        if self.merged not in MERGED:
            raise unknown_name("attention map: merged", self.merged, MERGED)
        check_weights(self.weights, (len(self.rows), len(self.columns)))
        check_links(self.links or frozenset(), len(self.columns), len(self.rows))
        self.weights.flags.writeable = False

    def __repr__(self) -> str:
        sizes = zip(("layers", "heads", "rows", "columns"), self.weights.shape, strict=True)
        shape = ", ".join(f"{name} {size}" for name, size in sizes)
        return f"AttentionMap({self.title!r}: {shape}, by {self.merged})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionMap):
            return NotImplemented
        return self._words() == other._words() and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash(self._words())

    def _words(self) -> tuple[object, ...]:
        """All but the weights."""
        return (self.rows, self.columns, self.title, self.merged, self.links)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.weights.shape[0]

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return self.weights.shape[1]

    def select(self, layer: Choice = "mean", head: Choice = "mean") -> Float32[np.ndarray, "rows columns"]:
        """The weights of one layer and head, or their mean over all layers, all heads, or both."""
        layers = chosen("layer", layer, self.layers)
        heads = chosen("head", head, self.heads)
        return self.weights[layers, heads].mean((0, 1), dtype=np.float64).astype(np.float32)

    def caption(self, layer: Choice = "mean", head: Choice = "mean") -> str:
        """The title, and which layer and head are shown where there are several."""
        shown = []
        for name, choice, count in (("layer", layer, self.layers), ("head", head, self.heads)):
            start = chosen(name, choice, count).start
            if count > 1:
                shown.append(f"mean of {count} {name}s" if choice in ("mean", None) else f"{name} {start}")
        return " · ".join(part for part in (self.title, ", ".join(shown)) if part)

    def record(self) -> dict[str, Any]:
        """The map as plain data, ready for JSON; `from_record` reads it.

        Nine digits tell every float32 from its neighbours, so reading gives the same weights.
        """
        digits = [float(f"{weight:.9g}") for weight in self.weights.ravel().tolist()]
        return {
            "format": FORMAT,
            "title": self.title,
            "merged": self.merged,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "links": None if self.links is None else [list(link) for link in sorted(self.links)],
            "weights": np.reshape(digits, self.weights.shape).tolist(),
        }

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
            if name not in ("format", *FIELDS):
                raise unknown_name("attention map", name, FIELDS)
        for name in ("title", "merged"):
            if not isinstance(record[name], str):
                raise RegardError(f"attention map: {name} is {record[name]!r}; give a text")
        rows, columns = as_labels("rows", record["rows"]), as_labels("columns", record["columns"])
        weights, links = as_weights(record["weights"]), as_links(record["links"])
        return cls(rows, columns, weights, record["title"], record["merged"], links)

    def draw(self, *, layer: Choice = "mean", head: Choice = "mean") -> str:
        """The map as text for the terminal; `regard.views.terminal.draw` has more options."""
        from regard.views.terminal import draw

        return draw(self, layer=layer, head=head)

    def picture(self, path: str | Path, *, layer: Choice = "mean", head: Choice = "mean") -> Path:
        """Draw the map into a .png, .svg or .pdf file; returns the path."""
        from regard.views.matrix import save_matrix

        return save_matrix(self, path, layer=layer, head=head)

    def save(self, path: str | Path) -> None:
        """Write the map as JSON, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() in PICTURES:
            raise RegardError(f'{path}: save writes JSON; for a picture call picture("{path}")')
        beside = path.with_name(path.name + ".part")
        try:
            beside.write_text(json.dumps(self.record()) + "\n", encoding="ascii")  # any token, half a surrogate too
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise RegardError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> AttentionMap:
        """Read a map that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise RegardError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise RegardError(f"{path}: is not text; an attention map is a JSON file") from None
        try:
            return cls.from_record(json.loads(text))
        except json.JSONDecodeError as error:
            raise RegardError(f"{path}: is not JSON: {error}") from None
        except RegardError as error:
            raise RegardError(f"{path}: {error}") from None


def check_map(what: str, found: object) -> None:
    """Raise a `RegardError` for what is no map, such as the prediction that one can be made of."""
    if not isinstance(found, AttentionMap):
        raise RegardError(
            f"{what}: found {type(found).__name__}; an AttentionMap is needed, as model.attention_map(prediction) gives"
        )


def as_labels(name: str, found: Any) -> tuple[str, ...]:
    """The words of one side, as a tuple, or a `RegardError`."""
    labels = (None,) if isinstance(found, str) or not hasattr(found, "__iter__") else tuple(found)
    if not all(isinstance(label, str) for label in labels):
        raise RegardError(f"attention map: {name} are {found!r}; give a sequence of texts")
    if not labels:
        raise RegardError(f"attention map: there are no {name}; give at least one")
    return labels


def as_weights(found: Any) -> Float32[np.ndarray, "..."]:
    """The weights as a float32 array of their own, or a `RegardError`."""
    try:
        array = np.asarray(found)
    except (TypeError, ValueError) as error:
        raise RegardError(f"attention map: weights are no array: {error}") from None
    if array.dtype.kind not in "fiu":
        raise RegardError(f"attention map: weights are of type {array.dtype}; numbers are needed")
    with np.errstate(over="ignore"):  # what is too large is refused later, as infinite
        return array.astype(np.float32)


def check_weights(weights: Float32[np.ndarray, "..."], sizes: tuple[int, int]) -> None:
    """Raise a `RegardError` unless there is a weight between 0 and 1 for every row and column."""
    if weights.ndim != 4 or weights.shape[2:] != sizes or 0 in weights.shape:
        raise RegardError(
            f"attention map: weights have shape {weights.shape}; "
            f"(layers, heads, {sizes[0]} rows, {sizes[1]} columns) are needed"
        )
    wrong = np.argwhere(~((weights >= 0) & (weights <= 1 + EXCESS)))  # a NaN is wrong as well
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise RegardError(
            f"attention map: the weight at layer, head, row, column {place} is {weights[place]:g}; "
            "weights lie between 0 and 1"
        )


def as_links(found: Any) -> frozenset[tuple[int, int]] | None:
    """The links as pairs of whole numbers, or a `RegardError`."""
    if found is None:
        return None
    try:
        return frozenset((operator.index(column), operator.index(row)) for column, row in found)
    except (TypeError, ValueError):
        raise RegardError(f"attention map: links are {found!r}; give pairs of whole numbers, (column, row)") from None


def check_links(links: frozenset[tuple[int, int]], columns: int, rows: int) -> None:
    """Raise a `RegardError` unless every link lies in the map."""
    for column, row in sorted(links):
        if not (0 <= column < columns and 0 <= row < rows):
            raise RegardError(
                f"attention map: the link (column {column}, row {row}) lies outside; "
                f"columns go from 0 to {columns - 1}, rows from 0 to {rows - 1}"
            )


def chosen(name: str, choice: Choice, count: int) -> slice:
    """The layers or heads that a choice means."""
    if choice is None or choice == "mean":
        return slice(0, count)
    if not isinstance(choice, int) or not -count <= choice < count:
        raise RegardError(f'{name}: there is no "{choice}"; give a number from 0 to {count - 1}, or "mean"')
    return slice(choice % count, choice % count + 1)


def check_format(found: object) -> None:
    """Raise a `RegardError` unless this version of regard reads the format."""
    if found == FORMAT:
        return
    name, version = FORMAT.split("/")
    match = re.fullmatch(rf"{re.escape(name)}/([0-9]+)", found) if isinstance(found, str) else None
    if match and int(match[1]) > int(version):
        raise RegardError(f'has format "{found}", of a newer regard; this one reads "{FORMAT}"')
    raise RegardError(f'has format {json.dumps(found)}; an attention map says "{FORMAT}"')
