"""Why dot products are scaled: variance of scores, gradient through the softmax and trained quality against width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from regard.attention import Additive, Dot, ScaledDot, Score
from regard.bench.measure import Tell
from regard.bench.settings import ScalingBench
from regard.views.figure import COLORS, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORES = ("dot", "scaled_dot", "additive")
INPUT, CLASSES, BATCH = 32, 16, 64
NOISE = 0.5
"""The task: keys are random vectors of width INPUT, a query is one of them plus noise; answer with its class."""


@dataclass(frozen=True)
class ScalingRow:
    """What one score does at one width."""

    score: str
    width: int
    variance: float  # of the scores of queries and keys with unit variance
    gradient: float  # mean Frobenius norm of ∂ weights / ∂ scores
    loss: float  # after training with the best learning rate, mean over seeds, in nats
    spread: float  # standard deviation of the loss over seeds; 0 for one seed
    learning_rate: float  # the best


def build_score(name: str, width: int) -> Score:
    """Return a score; the additive one has the width of queries and keys as its hidden width."""
    return {"dot": Dot, "scaled_dot": ScaledDot}[name]() if name != "additive" else Additive(width, width, width)


def measure_scaling(settings: ScalingBench, on_progress: Tell) -> Iterator[ScalingRow]:
    """Measure all scores at all widths."""
    for name in SCORES:
        for width in settings.parse_widths():
            on_progress(f"{name}, width {width:,}")
            variance, gradient = measure_scores(name, width, settings)
            losses = {rate: train_seeds(name, width, rate, settings) for rate in settings.parse_learning_rates()}
            best = min(losses, key=lambda rate: float(losses[rate].mean()))
            spread = float(losses[best].std()) if settings.seeds > 1 else 0.0
            yield ScalingRow(name, width, variance, gradient, float(losses[best].mean()), spread, best)


@torch.no_grad()
def measure_scores(name: str, width: int, settings: ScalingBench) -> tuple[float, float]:
    """Return the variance of scores of independent queries and keys, and the gradient that their softmax lets pass."""
    torch.manual_seed(0)
    score = build_score(name, width)
    query, keys = torch.randn(settings.samples, 1, width), torch.randn(settings.samples, settings.keys, width)
    scores = score(query, keys).squeeze(1)
    return float(scores.var()), float(softmax_gradient_norm(scores.softmax(-1)).mean())


def softmax_gradient_norm(weights: Float[Tensor, "queries keys"]) -> Float[Tensor, " queries"]:
    """Return the Frobenius norm of the Jacobian diag(w) - w wᵀ of a softmax, for each query."""
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return jacobian.flatten(1).norm(dim=1)


class Lookup(nn.Module):
    """Find the key that a noisy query was made from, and answer with its class: attention and nothing else.

    The projections need their biases for the additive score: without, w·tanh(W q + V k) changes its sign with
    query and key, but -q matches -k as well as q matches k, so that it could not tell a match from its opposite.
    """

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.query, self.keys = nn.Linear(INPUT, width), nn.Linear(INPUT, width)
        for projection in (self.query, self.keys):  # so that queries and keys have unit variance
            nn.init.normal_(projection.weight, std=1 / math.sqrt(INPUT))
            nn.init.zeros_(projection.bias)
        self.score = build_score(name, width)

    def forward(
        self, query: Float[Tensor, "batch input"], keys: Float[Tensor, "batch keys input"], values: Tensor
    ) -> Float[Tensor, "batch classes"]:
        """Return the log-probabilities of the classes."""
        scores = self.score(self.query(query)[:, None], self.keys(keys)).squeeze(1)
        return torch.einsum("bk,bkc->bc", scores.softmax(-1), values).clamp_min(1e-9).log()


def draw_batch(settings: ScalingBench, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw queries, keys, values (one-hot classes of the keys) and the right classes."""
    keys = torch.randn(BATCH, settings.keys, INPUT, generator=generator)
    classes = torch.randint(CLASSES, (BATCH, settings.keys), generator=generator)
    right = torch.randint(settings.keys, (BATCH,), generator=generator)
    rows = torch.arange(BATCH)
    query = keys[rows, right] + NOISE * torch.randn(BATCH, INPUT, generator=generator)
    return query, keys, functional.one_hot(classes, CLASSES).float(), classes[rows, right]


def train_seeds(name: str, width: int, learning_rate: float, settings: ScalingBench) -> Float[Tensor, " seeds"]:
    """Train a look-up with every seed; return the losses."""
    return torch.tensor([train_lookup(name, width, learning_rate, seed, settings) for seed in range(settings.seeds)])


def train_lookup(name: str, width: int, learning_rate: float, seed: int, settings: ScalingBench) -> float:
    """Train a look-up with Adam; return its loss on new data."""
    torch.manual_seed(seed)
    model, generator = Lookup(name, width), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(settings.steps):
        query, keys, values, classes = draw_batch(settings, generator)
        optimizer.zero_grad()
        functional.nll_loss(model(query, keys, values), classes).backward()
        optimizer.step()
    with torch.no_grad():
        batches = [draw_batch(settings, generator) for _ in range(10)]
        return sum(float(functional.nll_loss(model(*batch[:3]), batch[3])) for batch in batches) / len(batches)


def make_table(rows: Sequence[ScalingRow]) -> Table:
    """Return a table with a line for each score and width."""
    table = Table()
    for heading in (
        "score",
        "width",
        "variance of scores",
        "gradient of softmax",
        "loss after training",
        "learning rate",
    ):
        table.add_column(heading, justify="left" if heading == "score" else "right")
    for row in rows:
        spread = f" ± {row.spread:.3f}" if row.spread else ""
        cells = (f"{row.width:,}", f"{row.variance:.2f}", f"{row.gradient:.4f}", f"{row.loss:.3f}{spread}")
        table.add_row(row.score, *cells, f"{row.learning_rate:g}")
    return table


def describe_conditions(settings: ScalingBench) -> str:
    """Return the conditions of the figures."""
    return (
        f"Queries and keys of unit variance, {settings.keys} keys; in theory the variance is the width for dot, and 1 "
        f"for scaled_dot. The gradient is the mean norm of ∂ weights / ∂ scores over {settings.samples:,} queries. "
        f"Training: name the class of the key that a noisy query was made from; {settings.steps:,} updates of {BATCH}, "
        f"Adam, the best of the learning rates {settings.learning_rates}, {settings.seeds} seeds; ± is their standard "
        "deviation. "
        f"Chance is {math.log(CLASSES):.2f} nats."
    )


def draw_scaling(rows: Sequence[ScalingRow], path: Path) -> Path:
    """Save the picture: variance, gradient and loss against the width."""
    panels = (("variance", "variance of scores"), ("gradient", "|∂ weights / ∂ scores|"), ("loss", "loss, nats"))

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (quantity, label) in zip(axes, panels, strict=False):
            for index, name in enumerate(SCORES):
                points = [(row.width, getattr(row, quantity)) for row in rows if row.score == name]
                axis.plot(*zip(*points, strict=True), marker="o", markersize=3, color=COLORS[index], label=name)
            axis.set(xscale="log", yscale="linear" if quantity == "loss" else "log", xlabel="width", ylabel=label)
        axes[0].legend(frameon=False)
        axes[3].set_axis_off()

    return save_figure(path, draw, panels=4)
