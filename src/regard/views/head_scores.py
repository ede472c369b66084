"""HeadScores: what each head of a model does, in numbers: as a table in the terminal, a picture or JSON.

    scores = HeadScores("GPT2Model", ("h.0.attn",), ({"induction": (0.1, 0.8)},), tokens=1024, queries=1024)
    print(scores.draw(sort="induction"))
    scores.save_picture("heads.svg")
    scores.save("heads.json")

This module does not import torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from regard.errors import unknown_name
from regard.files import write_text
from regard.views.display import sanitize_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "regard.heads/1"


@dataclass(frozen=True)
class HeadScores:
    """Scores of every head: for each layer, a number per head for each measure; None where it is undefined.

    Args:
        title: The name of the model.
        layers: The paths of the attention modules, in order.
        scores: For each layer, the numbers of its heads by measure.
        tokens: Number of tokens of the text.
        queries: Number of queries measured.
        definitions: What each measure is.
    """

    title: str
    layers: tuple[str, ...]
    scores: tuple[Mapping[str, tuple[float | None, ...]], ...]
    tokens: int
    queries: int
    definitions: Mapping[str, str]

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(self.scores[0])

    @property
    def caption(self) -> str:
        """The title, the number of tokens, and how many queries were measured."""
        measured = "" if self.queries == self.tokens else f", {self.queries:,} queries measured"
        return f"{self.title}: {self.tokens:,} tokens{measured}"

    def select(self, measure: str) -> Float[np.ndarray, "layers heads"]:
        """Return one measure of all heads; NaN where it is undefined or a layer has fewer heads."""
        if measure not in self.measures:
            raise unknown_name("heads: measure", measure, self.measures)
        heads = max(len(layer[measure]) for layer in self.scores)
        rows = [[*layer[measure], *[None] * (heads - len(layer[measure]))] for layer in self.scores]
        return np.array([[math.nan if value is None else value for value in row] for row in rows])

    def draw(self, *, sort: str | None = None) -> str:
        """Return a table with a line for each head, by layer, or in descending order of a measure."""
        lines = [
            (layer, head, [scores[name][head] for name in self.measures])
            for layer, scores in enumerate(self.scores)
            for head in range(len(scores[self.measures[0]]))
        ]
        if sort is not None:
            values = self.select(sort)
            lines.sort(key=lambda line: (math.isnan(value := values[line[0], line[1]]), -value))
        header = "layer  head  " + "  ".join(f"{name:>9}" for name in self.measures)
        body = [
            f"{layer:>5}  {head:>4}  " + "  ".join(f"{format_score(value):>9}" for value in row)
            for layer, head, row in lines
        ]
        return "\n".join([sanitize_text(self.caption), "", header, *body])

    def __str__(self) -> str:
        return self.draw()

    def record(self) -> dict[str, Any]:
        """Return the scores as JSON-serializable data."""
        return {
            "format": FORMAT,
            "title": self.title,
            "tokens": self.tokens,
            "queries": self.queries,
            "definitions": dict(self.definitions),
            "layers": [
                {"path": path, **{name: list(values) for name, values in scores.items()}}
                for path, scores in zip(self.layers, self.scores, strict=True)
            ],
        }

    def save(self, path: str | Path) -> None:
        """Save the scores as JSON (atomically)."""
        write_text(Path(path), json.dumps(self.record()) + "\n")

    def save_picture(self, path: str | Path) -> Path:
        """Save a picture, .png or .svg, with a panel for each measure: layers down, heads across; return the path."""
        from regard.views.figure import save_figure

        def draw(panels: Sequence[Axes]) -> None:
            for axes, name in zip(panels, self.measures, strict=False):
                values = self.select(name)
                top = {"entropy": None, "distance": None}.get(name, 1.0)
                image = axes.imshow(values, cmap="Blues", vmin=0, vmax=top, aspect="auto", interpolation="nearest")
                axes.set(title=name, xlabel="head", ylabel="layer")
                axes.figure.colorbar(image, ax=axes)
            for axes in panels[len(self.measures) :]:
                axes.set_visible(False)
            panels[0].figure.suptitle(sanitize_text(self.caption), parse_math=False)

        return save_figure(Path(path), draw, panels=len(self.measures))


def format_score(value: float | None) -> str:
    """Format a number in at most nine characters."""
    return "-" if value is None else f"{value:.3f}" if abs(value) < 1000 else f"{value:.0f}"
