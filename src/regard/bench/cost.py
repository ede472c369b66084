"""How the cost of a layer grows with the length of its input: time, memory, waiting steps, paths and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor, nn

from regard.attention import Additive, ScaledDot, Score, attend
from regard.bench.graph import count_path, count_sequential_steps
from regard.bench.measure import Tell, get_clock, measure_apart, measure_cuda_growth, measure_resident_growth
from regard.bench.settings import CostBench
from regard.layers import MultiHeadAttention
from regard.layers.recurrent import Recurrent
from regard.views.figure import COLORS, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_UNROLLED = 512
"""Maximum length for graphs and gradients, which run step by step."""

MAX_ERROR, MIN_GROWTH = 0.25, 2.0
"""Maximum standard error of a fitted exponent, and minimum growth of what is fitted: otherwise there is none."""

HIDDEN = "-"
"""What the table shows in place of an exponent that cannot be measured."""


class Theory(NamedTuple):
    """Exponents of the length in theory."""

    time: int
    memory: int  # of forward and backward
    steps: int  # operations that wait for each other
    path: int  # between the first and the last position


class RecurrentLayer(nn.Module):
    """A recurrent layer over a sequence, at once or step by step."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.stack = Recurrent(cell, width, width)

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        return self.stack(x)[0]

    def unroll(self, x: Sequence[Float[Tensor, "batch width"]]) -> list[Float[Tensor, "batch width"]]:
        """Return the outputs of all steps, each computed by operations of its own."""
        state, outputs = self.stack.zero_state(len(x[0]), x[0]), []
        for step in x:
            output, state = self.stack.step(step, state)
            outputs.append(output)
        return outputs


class AttentionLayer(nn.Module):
    """Self-attention without projections: every position attends to all."""

    def __init__(self, score: Score, path: str | None = None) -> None:
        super().__init__()
        self.score, self.path = score, path

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        output: Tensor = attend(x, x, x, score=self.score, path=self.path)
        return output


LAYERS: dict[str, tuple[Callable[[CostBench], nn.Module], Theory]] = {
    "recurrent (gru)": (lambda s: RecurrentLayer("gru", s.width), Theory(1, 1, 1, 1)),
    "multiplicative": (lambda s: AttentionLayer(ScaledDot()), Theory(2, 1, 0, 0)),
    "multiplicative, whole matrix": (lambda s: AttentionLayer(ScaledDot(), "reference"), Theory(2, 2, 0, 0)),
    "additive": (lambda s: AttentionLayer(Additive(s.width, s.width, s.width)), Theory(2, 1, 0, 0)),
    "additive, whole matrix": (
        lambda s: AttentionLayer(Additive(s.width, s.width, s.width), "reference"),
        Theory(2, 2, 0, 0),
    ),
    "multi-head self-attention": (lambda s: MultiHeadAttention(s.width, s.heads), Theory(2, 1, 0, 0)),
}
"""Layer -> how to build it, and the exponents of its cost in theory."""

GRADIENT_LAYERS: dict[str, Callable[[CostBench], nn.Module]] = {
    "rnn": lambda s: RecurrentLayer("rnn", s.width),
    "gru": lambda s: RecurrentLayer("gru", s.width),
    "lstm": lambda s: RecurrentLayer("lstm", s.width),
    "self-attention": lambda s: MultiHeadAttention(s.width, s.heads),
}
"""Layers whose gradient from the last output to the first input is measured."""


@dataclass(frozen=True)
class CostRow:
    """What a layer costs at one length."""

    layer: str
    length: int
    forward_seconds: float
    seconds: float  # of forward and backward
    bytes: int  # peak of forward and backward
    steps: int | None  # operations that wait for each other; None where the length is too large to unroll
    path: int | None  # operations between the first input and the last output


@dataclass(frozen=True)
class GradientRow:
    """The gradient of the last output with respect to the first input."""

    layer: str
    length: int
    norm: float


def measure_cost(settings: CostBench, on_progress: Tell) -> Iterator[CostRow | GradientRow]:
    """Measure all layers at all lengths, then the gradients."""
    for name in LAYERS:
        for length in settings.parse_lengths():
            on_progress(f"{name}, length {length:,}")
            yield measure_layer(name, length, settings)
    for name, build in GRADIENT_LAYERS.items():
        for length in settings.parse_lengths():
            if length <= MAX_UNROLLED:
                on_progress(f"gradient, {name}, length {length:,}")
                torch.manual_seed(0)
                yield GradientRow(name, length, measure_gradient(build(settings), length, settings))


def measure_layer(name: str, length: int, settings: CostBench) -> CostRow:
    """Measure one layer at one length."""
    torch.manual_seed(0)
    forward, both = make_calls(name, length, settings)
    clock = get_clock(torch.device(settings.device))
    both()
    seconds = [(clock(forward), clock(both)) for _ in range(settings.repeats)]
    (peak,) = measure_apart(measure_peak, settings, name, length)
    steps, path = count_operations(name, length, settings) if length <= MAX_UNROLLED else (None, None)
    forward_seconds, both_seconds = (median(column) for column in zip(*seconds, strict=True))
    return CostRow(name, length, forward_seconds, both_seconds, peak, steps, path)


def make_calls(name: str, length: int, settings: CostBench) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the forward pass of a layer, and forward and backward, as functions to time."""
    layer = LAYERS[name][0](settings).to(settings.device)
    x = torch.randn(1, length, settings.width, device=settings.device, requires_grad=True)

    def forward() -> object:
        with torch.no_grad():
            return layer(x)

    def both() -> object:
        return torch.autograd.grad(layer(x).sum(), x)

    return forward, both


def measure_peak(settings: CostBench, name: str, length: int) -> list[int]:
    """Return the peak memory of forward and backward, in this process; a short call wakes up the libraries first."""
    make_calls(name, min(length, 32), settings)[1]()
    growth = measure_cuda_growth if torch.device(settings.device).type == "cuda" else measure_resident_growth
    return growth(make_calls(name, length, settings)[1])


def count_operations(name: str, length: int, settings: CostBench) -> tuple[int, int | None]:
    """Return the longest chain of operations, and the path from the first input to the last output."""
    first, output = run_on_positions(LAYERS[name][0](settings), length, settings)
    return count_sequential_steps(output), count_path(output, first)


def run_on_positions(layer: nn.Module, length: int, settings: CostBench) -> tuple[Tensor, Tensor]:
    """Run a layer on inputs that are separate tensors; return the first input and the last output."""
    x = [torch.randn(1, settings.width, requires_grad=True) for _ in range(length)]
    outputs = layer.unroll(x) if isinstance(layer, RecurrentLayer) else layer(torch.stack(x, dim=1)).unbind(1)
    return x[0], outputs[-1]


def measure_gradient(layer: nn.Module, length: int, settings: CostBench) -> float:
    """Return the Frobenius norm of the Jacobian of the last output by the first input."""
    first, last = run_on_positions(layer, length, settings)
    rows = [
        torch.autograd.grad(last[0, index], first, retain_graph=True)[0].flatten() for index in range(last.shape[-1])
    ]
    return float(torch.stack(rows).norm())


def fit_exponent(lengths: Sequence[int], values: Sequence[float | None]) -> float | None:
    """Return the slope of log(value) against log(length), by least squares over the longer half of the lengths."""
    fit = fit_line(lengths, values, 2)
    return None if fit is None else fit[0]


def fit_growth(lengths: Sequence[int], values: Sequence[float | None]) -> float | None:
    """Return the exponent of a measured time or memory, or None where fixed costs or noise hide the growth.

    That is where the value does not double over the fitted lengths, or the standard error of the exponent is above
    `MAX_ERROR`; fewer than three lengths have no error.
    """
    fit = fit_line(lengths, values, 3)
    return None if fit is None or fit[1] > MAX_ERROR or fit[2] < MIN_GROWTH else fit[0]


def fit_line(lengths: Sequence[int], values: Sequence[float | None], least: int) -> tuple[float, float, float] | None:
    """Fit log(value) to log(length) over the longer half, at least `least` points; None if there are fewer.

    Returns:
        The slope, its standard error (infinite for two points), and the last value as a multiple of the first.
    """
    points = [(math.log(n), math.log(v)) for n, v in zip(lengths, values, strict=True) if v is not None and v > 0]
    points = points[-max(least, (len(points) + 1) // 2) :]
    if len(points) < least:
        return None
    x_mean, y_mean = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    variance = sum((x - x_mean) ** 2 for x, _ in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / variance
    squares = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points)
    error = math.sqrt(squares / (len(points) - 2) / variance) if len(points) > 2 else math.inf
    return slope, error, math.exp(points[-1][1] - points[0][1])


def make_table(rows: Sequence[CostRow]) -> Table:
    """Return a table of the measured exponents beside those of theory, with the figures at the largest length."""
    table = Table()
    table.add_column("layer", no_wrap=True)
    for heading in ("ms", "MB", "steps", "path", "time", "memory", "steps", "path"):
        table.add_column(heading, justify="right")
    for name, (_, theory) in LAYERS.items():
        cells = [row for row in rows if row.layer == name]
        lengths, last = [row.length for row in cells], cells[-1]
        unrolled = [row for row in cells if row.steps is not None]
        exponents = (
            fit_growth(lengths, [row.seconds for row in cells]),
            fit_growth(lengths, [row.bytes for row in cells]),
            fit_exponent(lengths, [row.steps for row in cells]),
            fit_exponent(lengths, [row.path for row in cells]),
        )
        measured = [
            f"{HIDDEN if value is None else format(value, '.1f')} ({expected})"
            for value, expected in zip(exponents, theory, strict=True)
        ]
        counts = [f"{unrolled[-1].steps:,}", f"{unrolled[-1].path:,}"] if unrolled else ["", ""]
        table.add_row(name, f"{1000 * last.seconds:.1f}", f"{last.bytes / 1e6:,.1f}", *counts, *measured)
    return table


def describe_conditions(settings: CostBench) -> str:
    """Return the conditions of the figures."""
    lengths = settings.parse_lengths()
    hardware = f"{torch.get_num_threads()} threads" if settings.device == "cpu" else settings.device
    return (
        f"Forward and backward of one layer of width {settings.width}, one sequence, float32, {hardware}, "
        f"torch {torch.__version__}. ms and MB at length {lengths[-1]:,}; steps (operations that wait for each other) "
        f"and path (operations between the first input and the last output) at {min(lengths[-1], MAX_UNROLLED):,}, "
        "counted in autograd's graph. Then the exponents of the length: measured over the longer half of the lengths, "
        f"in brackets those of theory; {HIDDEN} where fixed costs or noise hide the growth: pass larger --lengths."
    )


def draw_cost(rows: Sequence[CostRow], gradients: Sequence[GradientRow], path: Path) -> Path:
    """Save the picture: time, memory, waiting steps and gradients against the length."""

    def draw(axes: Sequence[Axes]) -> None:
        panels = {"seconds": "seconds, with backward", "bytes": "bytes", "steps": "operations in a row"}
        for axis, (quantity, label) in zip(axes, panels.items(), strict=False):
            lines = {name: [(r.length, getattr(r, quantity)) for r in rows if r.layer == name] for name in LAYERS}
            draw_lines(axis, lines, label)
        norms = {name: [(r.length, r.norm) for r in gradients if r.layer == name] for name in GRADIENT_LAYERS}
        draw_lines(axes[3], norms, "|∂ last output / ∂ first input|")
        for axis in (axes[0], axes[3]):
            axis.legend(frameon=False, fontsize=8)

    return save_figure(path, draw, panels=4)


def draw_lines(axes: Axes, lines: Mapping[str, Sequence[tuple[int, float | None]]], label: str) -> None:
    """Draw a line for each layer, both axes logarithmic; figures that are zero or were not measured are left out."""
    positive = {name: [(length, value) for length, value in points if value] for name, points in lines.items()}
    for index, (name, points) in enumerate(positive.items()):
        x, y = [length for length, _ in points], [value for _, value in points]
        axes.plot(x, y, marker="o", markersize=3, color=COLORS[index], label=name)
    axes.set(xlabel="length", ylabel=label)
    if any(positive.values()):
        axes.set(xscale="log", yscale="log")
