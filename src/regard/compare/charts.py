"""The charts of a comparison: quality by length and learning curves, a line for each model."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.compare.report import Report
from regard.views.figure import COLORS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Chart:
    """A chart of a report; it is drawn when it is rendered."""

    name: str  # of its file
    title: str
    draw: Callable[[Axes], None]
    by_length: bool = False
    known_only: bool = False  # of items without unknown words

    def render(self, file_format: str) -> bytes:
        """Return the chart as the content of a file: png or svg."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        content = io.BytesIO()
        with rc_context(STYLE):
            figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
            axes = figure.subplots()
            self.draw(axes)
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", frameon=False)
            figure.savefig(content, format=file_format, metadata={"Date": None} if file_format == "svg" else {})
        return content.getvalue()


def build_charts(report: Report) -> list[Chart]:
    """Return the charts of a report."""
    unit = report.models[0].items[0].length_unit if report.metric is report.curve_metric else "tokens of context"
    draw = partial(draw_bands, report=report, unit=unit)
    charts = [
        Chart("by-length", "Quality by length", partial(draw, known_only=False), by_length=True),
        Chart("learning-seconds", "Learning curves by time", partial(draw_learning, report=report, axis="seconds")),
        Chart("learning-tokens", "Learning curves by tokens", partial(draw_learning, report=report, axis="tokens")),
    ]
    if any(model.known_bands for model in report.models):
        title = "Quality by length, items without unknown words"
        draw_known = partial(draw, known_only=True)
        charts.insert(1, Chart("by-length-known", title, draw_known, by_length=True, known_only=True))
    return charts


def get_line_style(index: int) -> dict[str, Any]:
    """Return the color and the dashes of a model's lines."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index // len(COLORS) % len(DASHES)]}


def draw_bands(axes: Axes, *, report: Report, unit: str, known_only: bool) -> None:
    """Draw the score of each model by length, with its interval as a band."""
    for index, model in enumerate(report.models):
        bands, style = model.known_bands if known_only else model.bands, get_line_style(index)
        x = [(band.shortest + band.longest) / 2 for band in bands]
        axes.plot(x, [band.score.value for band in bands], marker="o", markersize=3.5, label=model.name, **style)
        low, high = ([getattr(band.score, side) for band in bands] for side in ("low", "high"))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0)
    axes.set(xlabel=unit, ylabel=report.curve_metric.title)


def draw_learning(axes: Axes, *, report: Report, axis: str) -> None:
    """Draw the validation of each model against time or tokens, one line per seed."""
    for index, model in enumerate(report.models):
        for number, curve in enumerate(model.curves):
            x, y = [line[axis] for line in curve], [line[f"valid_{model.curve_metric}"] for line in curve]
            axes.plot(x, y, label=model.name if number == 0 else None, linewidth=1.5, **get_line_style(index))
    label = "seconds of training" if axis == "seconds" else "target tokens of training"
    axes.set(xlabel=label, ylabel=f"validation {report.models[0].curve_metric.replace('_', ' ')}")
