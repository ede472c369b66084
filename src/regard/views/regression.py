"""Nadaraya-Watson regression as attention pooling: each kernel, its curve and its weights in one picture.

The training points are the keys and values of a look-up: an estimate at x is the
values averaged by how near their keys lie.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Boxcar, Epanechnikov, Gaussian, Score, Uniform, attend
from regard.errors import RegardError
from regard.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

SPAN = 5.0  # x runs from 0 to here

POINTS, CURVE, TRUTH = "#56B4E9", "#D55E00", "#4D4D4D"  # told apart by every kind of colour vision
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "regard",  # the same picture is the same file
}


@dataclass(frozen=True)
class Regression:
    """Noisy points of a curve, and what attention makes of them."""

    x_train: Float[np.ndarray, " points"]
    y_train: Float[np.ndarray, " points"]
    x_query: Float[np.ndarray, " queries"]
    truth: Float[np.ndarray, " queries"]
    estimate: Float[np.ndarray, " queries"]
    weights: Float[np.ndarray, "queries points"]


def regression(
    score: str | Score, points: int = 40, queries: int = 200, *, noise: float = 0.5, seed: int = 0
) -> Regression:
    """Estimate y = 2 sin x + x from noisy points, by attention with this score.

    The points are sorted by x, so that near keys are near columns of the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    x_train = (torch.rand(points, generator=generator) * SPAN).double().sort().values
    y_train = curve(x_train) + noise * torch.randn(points, generator=generator).double()
    x_query = torch.linspace(0, SPAN, queries, dtype=torch.float64)
    estimate, weights = attend(x_query[:, None], x_train[:, None], y_train[:, None], score=score, return_weights=True)
    found = (x_train, y_train, x_query, curve(x_query), estimate[:, 0], weights.dense())
    return Regression(*(tensor.detach().numpy() for tensor in found))


def curve(x: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """What the points are scattered about."""
    return 2 * x.sin() + x


def panels() -> dict[tuple[str, str], Score]:
    """The scores of the picture by name and formula; as densities, the three kernels have a deviation of about 0.4."""
    return {
        ("gaussian", r"$e^{-u^2/2},\ \ u = |q - k|\,/\,0.4$"): Gaussian(0.4),
        ("boxcar", r"$1$ where $u \leq 1,\ \ u = |q - k|\,/\,0.7$"): Boxcar(0.7),
        ("epanechnikov", r"$\max(0,\ 1 - u),\ \ u = |q - k|$"): Epanechnikov(1.0),
        ("uniform", "every key alike: the average"): Uniform(),
    }


def draw_regression(path: Path) -> Path:
    """Draw the estimate of each kernel above its weights, as a .png or .svg file; returns the path."""
    if path.suffix not in (".png", ".svg"):
        raise RegardError(f'{path}: pictures are written as .png or .svg; found "{path.suffix}"')
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise RegardError("the picture needs matplotlib: pip install 'regard[plot]'") from None
    content = io.BytesIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 5.6), dpi=130, layout="constrained")
        draw_panels(figure)
        dated = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(content, format=path.suffix[1:], metadata=dated)
    write_bytes(path, content.getvalue())
    return path


def draw_panels(figure: Figure) -> None:
    """One column for each kernel: the curves, and beneath them the weights."""
    scores = panels()
    axes = figure.subplots(2, len(scores), sharex="row", sharey="row")
    for ((name, formula), score), above, below in zip(scores.items(), *axes, strict=True):
        found = regression(score)
        draw_curves(above, found)
        above.set_title(f"{name}\n", fontweight="bold")
        above.text(0.5, 1.03, formula, transform=above.transAxes, ha="center", color=TRUTH)
        image = draw_weights(below, found)
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("query x")
    bar = figure.colorbar(image, ax=axes[1], label="attention weight", aspect=12, pad=0.015)
    bar.outline.set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def draw_curves(axes: Axes, found: Regression) -> None:
    """The points, the curve they come from, and its estimate."""
    axes.plot(found.x_query, found.truth, color=TRUTH, linestyle="--", linewidth=1.5, label="the true curve")
    axes.scatter(
        found.x_train,
        found.y_train,
        s=20,
        color=POINTS,
        alpha=0.8,
        linewidths=0,
        label="training points: keys x, values y",
    )
    axes.plot(found.x_query, found.estimate, color=CURVE, linewidth=2.2, label="attend(x, keys, values)")
    axes.set_xlabel("x")


def draw_weights(axes: Axes, found: Regression) -> AxesImage:
    """A heat map: a row for each query, a column for each training point."""
    count = len(found.x_train)
    image = axes.imshow(
        found.weights,
        extent=(0.5, count + 0.5, 0, SPAN),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        vmax=0.25,
    )
    axes.set_xlabel("training point, sorted by x")
    axes.set_xticks([1, *range(10, count + 1, 10)])
    return image
