"""Metrics of the server in the text format of Prometheus.

metrics = Metrics()
metrics.requests.add(1, "/api/predict", "200")
print(metrics.render(pool.models.values()))
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import __version__

if TYPE_CHECKING:
    from regard.serve.served_models import ServedModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of the latency."""

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the buckets of the batch size."""

Labels = tuple[str, ...]


class Counter:
    """A number that only grows, for each combination of labels."""

    def __init__(self) -> None:
        self.values: dict[Labels, int] = {}

    def add(self, amount: int, *labels: str) -> None:
        """Add an amount for these labels."""
        self.values[labels] = self.values.get(labels, 0) + amount


class Histogram:
    """Counts of observed values in buckets, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value; a bucket includes its upper bound."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def iter_samples(self, name: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines of the histogram. The counts of the buckets are cumulative."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield format_sample(f"{name}_bucket", {**labels, "le": format_number(bound)}, total)
        yield format_sample(f"{name}_sum", labels, self.sum)
        yield format_sample(f"{name}_count", labels, total)


class Metrics:
    """What a server counts. Only the thread of the event loop updates it."""

    def __init__(self) -> None:
        self.requests = Counter()  # by route and status
        self.seconds: dict[str, Histogram] = {}  # by route
        self.closed_connections = Counter()  # by reason
        self.in_flight = 0
        self.connections = 0

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests.add(1, route, str(status))
        self.seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def render(self, models: Iterable[ServedModel]) -> str:
        """Return all metrics as text; those of a model come from its worker."""
        return "\n".join([*self._iter_server_lines(), *iter_model_lines(list(models)), *iter_process_lines(), ""])

    def _iter_server_lines(self) -> Iterator[str]:
        yield from describe("regard_info", "gauge", "Version of the server.")
        yield format_sample("regard_info", {"version": __version__}, 1)
        yield from describe("regard_requests_total", "counter", "Finished requests.")
        for (route, status), count in sorted(self.requests.values.items()):
            yield format_sample("regard_requests_total", {"route": route, "status": status}, count)
        yield from describe("regard_request_seconds", "histogram", "Time from the headers to the end of the response.")
        for route, histogram in sorted(self.seconds.items()):
            yield from histogram.iter_samples("regard_request_seconds", {"route": route})
        yield from describe("regard_requests_in_flight", "gauge", "Requests that are not finished.")
        yield format_sample("regard_requests_in_flight", {}, self.in_flight)
        yield from describe("regard_connections", "gauge", "Open connections.")
        yield format_sample("regard_connections", {}, self.connections)
        yield from describe("regard_connections_closed_total", "counter", "Connections closed without a full request.")
        for (reason,), count in sorted(self.closed_connections.values.items()):
            yield format_sample("regard_connections_closed_total", {"reason": reason}, count)


def iter_model_lines(models: Sequence[ServedModel]) -> Iterator[str]:
    """Yield the metrics of the models, read from their workers."""
    yield from describe("regard_model_ready", "gauge", "Whether the model is ready (1) or not (0).")
    for model in models:
        yield format_sample("regard_model_ready", {"model": model.name}, int(model.find_problem() is None))
    yield from describe("regard_queue_length", "gauge", "Requests that wait for the model.")
    for model in models:
        yield format_sample("regard_queue_length", {"model": model.name}, len(model.worker.waiting))
    yield from describe("regard_batch_size", "histogram", "Requests processed together.")
    for model in models:
        histogram = Histogram(BATCH_SIZES)
        for size, count in sorted(model.worker.batch_sizes.copy().items()):
            histogram.observe(size, count)
        yield from histogram.iter_samples("regard_batch_size", {"model": model.name})
    yield from describe("regard_tokens_total", "counter", "Generated tokens of the answers.")
    for model in models:
        yield format_sample("regard_tokens_total", {"model": model.name}, model.worker.tokens)


def iter_process_lines() -> Iterator[str]:
    """Yield the memory of the process, where the system tells it."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        yield from describe("process_resident_memory_bytes", "gauge", "Resident memory.")
        yield format_sample("process_resident_memory_bytes", {}, pages * os.sysconf("SC_PAGE_SIZE"))


def describe(name: str, kind: str, description: str) -> list[str]:
    """Return the two lines that precede the samples of a metric."""
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def format_sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """Format one sample."""
    pairs = ",".join(f'{label}="{escape(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {format_number(value)}" if pairs else f"{name} {format_number(value)}"


def escape(text: str) -> str:
    """Escape the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def format_number(value: float) -> str:
    """Format a number; infinity as Prometheus writes it."""
    return "+Inf" if value == float("inf") else repr(value)
