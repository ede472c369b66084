"""Measure the overhead of `watch` on a Hugging Face model, compared with `output_attentions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

import torch
from rich.table import Table

from regard.attention import watch
from regard.bench.measure import (
    ProcessEndedError,
    Tell,
    TimedCall,
    get_clock,
    measure_apart,
    memory_of,
    time_in_turn,
    why_too_large,
)
from regard.bench.report import format_verdict
from regard.bench.settings import WatchBench
from regard.errors import RegardError

if TYPE_CHECKING:
    from transformers import GPT2Model

UNWATCHED, WATCHED, EAGER = "SDPA, unwatched", "SDPA, watched", "eager, output_attentions=True"
MAX_RATIO = 1.5  # maximum time relative to the unwatched model


@dataclass(frozen=True)
class WatchRow:
    """Time and memory of one way to run the model."""

    way: str
    seconds: float | None = None  # median over rounds
    ratio: float | None = None  # time relative to the unwatched model, median over rounds
    bytes: int | None = None  # peak memory, without what was used before the call
    rounds: int = 0
    quiet: bool = True  # no other program was busy
    note: str = ""  # why something was not measured


def check_transformers() -> None:
    """Raise a `RegardError` if Transformers is not installed."""
    if find_spec("transformers") is None:
        raise RegardError("bench watch: Transformers is not installed; pip install transformers")


def build_gpt2(settings: WatchBench) -> GPT2Model:
    """Build GPT-2 without its output layer, with random parameters."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=1000, n_positions=settings.length, n_embd=settings.width, n_layer=settings.layers,
        n_head=settings.heads, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2Model(config).eval().to(settings.device, getattr(torch, settings.dtype))


def make_watch_calls(settings: WatchBench) -> dict[str, TimedCall]:
    """Return the functions that run the model: unwatched, watched, and with `output_attentions`."""
    model = build_gpt2(settings)
    tokens = torch.randint(0, 1000, (1, settings.length), device=settings.device)

    def make_call(implementation: str, *, watched: bool = False, weights: bool = False) -> TimedCall:
        def run_model() -> object:
            model.set_attn_implementation(implementation)
            with torch.no_grad(), watch(model, settings.keep) if watched else nullcontext() as watched_weights:
                return model(tokens, output_attentions=weights), watched_weights

        return run_model

    return {
        UNWATCHED: make_call("sdpa"),
        WATCHED: make_call("sdpa", watched=True),
        EAGER: make_call("eager", weights=True),
    }


def measure_watch_rows(settings: WatchBench, on_progress: Tell) -> list[WatchRow]:
    """Measure each way to run the model: time in turn, then memory."""
    skipped = why_too_large(settings.layers + 3, settings)  # plus scores, mask and their sum
    calls = {way: call for way, call in make_watch_calls(settings).items() if not (skipped and way == EAGER)}
    on_progress("timing")
    timing = time_in_turn(calls, get_clock(torch.device(settings.device)), settings)
    rows = []
    for way in calls:
        on_progress(f"{way}: memory")
        try:
            (peak,), note = measure_apart(memory_of_way, settings, way), ""
        except ProcessEndedError:
            peak, note = None, "ended by the system while its memory was measured"
        times, longer = timing.get_seconds(way), timing.median_ratio(way, UNWATCHED)
        rows.append(WatchRow(way, median(times), longer, peak, len(times), timing.quiet, note))
    return [*rows, WatchRow(EAGER, note=skipped)] if skipped else rows


def memory_of_way(settings: WatchBench, way: str) -> list[int]:
    """Measure the peak memory of one way to run the model, in this process."""
    return memory_of(lambda settings: [make_watch_calls(settings)[way]], settings)


def make_table(rows: list[WatchRow]) -> Table:
    """Format a table with one line per way to run the model."""
    table = Table()
    table.add_column("attention", no_wrap=True)
    for heading in ("seconds", "ratio", "memory, MB"):
        table.add_column(heading, justify="right")
    for row in rows:
        seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
        times = "" if row.ratio is None else f"{row.ratio:.2f}x"
        memory = "" if row.bytes is None else f"{row.bytes / 1e6:,.0f}"
        table.add_row(row.way, seconds, times, memory, style="bold" if row.way == WATCHED else None)
    return table


def describe_conditions(settings: WatchBench) -> str:
    """Describe the conditions of the measurement."""
    hardware = f"{torch.get_num_threads()} threads" if settings.device == "cpu" else settings.device
    return (
        f"GPT-2 without its output layer: {settings.layers} layers of width {settings.width}, {settings.heads} heads, "
        f'one text of {settings.length} tokens, watched with keep="{settings.keep}", {settings.dtype}, {hardware}, '
        f"torch {torch.__version__}. Seconds are medians of up to {settings.repeats} rounds; a ratio is the median, "
        "over the rounds, of that to the unwatched model in the same round. Memory is the peak above that before it."
    )


def iter_notes(rows: list[WatchRow]) -> Iterator[str]:
    """Return notes on what was not measured and why, and whether the machine was busy."""
    for row in rows:
        if row.note:
            yield f"{row.way}: {row.note}"
    if not all(row.quiet for row in rows):
        yield "other programs were running; these times are unreliable"


def check_targets(rows: list[WatchRow]) -> Iterator[str]:
    """Return a line for the target: met or missed."""
    yield "Targets:"
    for row in rows:
        if row.way == WATCHED:
            yield format_verdict(f"{WATCHED}, of {UNWATCHED}", row.ratio, MAX_RATIO)
