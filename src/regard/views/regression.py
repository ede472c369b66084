"""Nadaraya-Watson regression as attention pooling: estimate and weights of several kernels in one figure.

The training points are the keys and values: an estimate at x is the mean of the values,
weighted by the distance of their keys from x.
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

SPAN = 5.0  # x ranges from 0 to this

POINTS, CURVE, TRUTH = "#56B4E9", "#D55E00", "#4D4D4D"  # color-blind safe
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "regard",  # for reproducible files
}


@dataclass(frozen=True)
class Regression:
    """Noisy samples of a curve, and its estimate by attention."""

    x_train: Float[np.ndarray, " points"]
    y_train: Float[np.ndarray, " points"]
    x_query: Float[np.ndarray, " queries"]
    truth: Float[np.ndarray, " queries"]
    estimate: Float[np.ndarray, " queries"]
    weights: Float[np.ndarray, "queries points"]


def estimate_regression(
    score: str | Score, points: int = 40, queries: int = 200, *, noise: float = 0.5, seed: int = 0
) -> Regression:
    """Estimate y = 2 sin x + x from noisy points by attention with this score.

    The points are sorted by x, so neighboring keys are neighboring columns of the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    x_train = (torch.rand(points, generator=generator) * SPAN).double().sort().values
    y_train = true_curve(x_train) + noise * torch.randn(points, generator=generator).double()
    x_query = torch.linspace(0, SPAN, queries, dtype=torch.float64)
    estimate, weights = attend(x_query[:, None], x_train[:, None], y_train[:, None], score=score, return_weights=True)
    tensors = (x_train, y_train, x_query, true_curve(x_query), estimate[:, 0], weights.dense())
    return Regression(*(tensor.detach().numpy() for tensor in tensors))


def true_curve(x: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """Return the curve without noise."""
    return 2 * x.sin() + x


def build_panels() -> dict[tuple[str, str], Score]:
    """Return the scores by (name, formula). As densities, the three kernels have a standard deviation of about 0.4."""
    return {
        ("gaussian", r"$e^{-u^2/2},\ \ u = |q - k|\,/\,0.4$"): Gaussian(0.4),
        ("boxcar", r"$1$ where $u \leq 1,\ \ u = |q - k|\,/\,0.7$"): Boxcar(0.7),
        ("epanechnikov", r"$\max(0,\ 1 - u),\ \ u = |q - k|$"): Epanechnikov(1.0),
        ("uniform", "equal weights: the mean"): Uniform(),
    }


def draw_regression(path: Path) -> Path:
    """Save the estimates and weights of all kernels as .png or .svg; return the path."""
    if path.suffix not in (".png", ".svg"):
        raise RegardError(f'{path}: expected .png or .svg, got "{path.suffix}"')
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise RegardError("pictures require matplotlib: pip install matplotlib") from None
    content = io.BytesIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 5.6), dpi=130, layout="constrained")
        draw_panels(figure)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(content, format=path.suffix[1:], metadata=metadata)
    write_bytes(path, content.getvalue())
    return path


def draw_panels(figure: Figure) -> None:
    """Draw one column per kernel: the curves, and the weights below."""
    scores = build_panels()
    axes = figure.subplots(2, len(scores), sharex="row", sharey="row")
    for ((name, formula), score), above, below in zip(scores.items(), *axes, strict=True):
        result = estimate_regression(score)
        draw_curves(above, result)
        above.set_title(f"{name}\n", fontweight="bold")
        above.text(0.5, 1.03, formula, transform=above.transAxes, ha="center", color=TRUTH)
        image = draw_weights(below, result)
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("query x")
    bar = figure.colorbar(image, ax=axes[1], label="attention weight", aspect=12, pad=0.015)
    bar.outline.set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def draw_curves(axes: Axes, result: Regression) -> None:
    """Draw the points, the true curve and its estimate."""
    axes.plot(result.x_query, result.truth, color=TRUTH, linestyle="--", linewidth=1.5, label="true curve")
    axes.scatter(
        result.x_train,
        result.y_train,
        s=20,
        color=POINTS,
        alpha=0.8,
        linewidths=0,
        label="training points: keys x, values y",
    )
    axes.plot(result.x_query, result.estimate, color=CURVE, linewidth=2.2, label="attend(x, keys, values)")
    axes.set_xlabel("x")


def draw_weights(axes: Axes, result: Regression) -> AxesImage:
    """Draw a heat map with a row per query and a column per training point."""
    count = len(result.x_train)
    image = axes.imshow(
        result.weights,
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
