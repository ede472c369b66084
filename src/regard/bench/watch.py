"""Times a look at the attention of a Hugging Face model: not at all, with `watch`, and as Transformers offers it."""

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
    Call,
    ProcessEndedError,
    Tell,
    clock_of,
    measure_apart,
    memory_of,
    time_in_turn,
    why_too_large,
)
from regard.bench.report import verdict
from regard.bench.settings import WatchBench
from regard.errors import RegardError

if TYPE_CHECKING:
    from transformers import GPT2Model

UNWATCHED, WATCHED, EAGER = "SDPA, unwatched", "SDPA, watched", "eager, output_attentions=True"
MOST = 1.5  # times the unwatched time


@dataclass(frozen=True)
class Look:
    """What one way to run the model costs."""

    way: str
    seconds: float | None = None  # the median of its rounds
    ratio: float | None = None  # to the unwatched model: the median of these rounds
    bytes: int | None = None  # peak memory, above that before the call
    rounds: int = 0
    quiet: bool = True  # no other program was busy meanwhile
    note: str = ""  # why something was not measured


def check_transformers() -> None:
    """Raise a `RegardError` where Transformers is not installed."""
    if find_spec("transformers") is None:
        raise RegardError("bench watch: Transformers is not installed; pip install 'regard[hf]'")


def new_model(settings: WatchBench) -> GPT2Model:
    """GPT-2 without its output layer, with random parameters."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=1000, n_positions=settings.length, n_embd=settings.width, n_layer=settings.layers,
        n_head=settings.heads, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2Model(config).eval().to(settings.device, getattr(torch, settings.dtype))


def make_calls(settings: WatchBench) -> dict[str, Call]:
    """Each way to run one model over one text."""
    model = new_model(settings)
    tokens = torch.randint(0, 1000, (1, settings.length), device=settings.device)

    def look(implementation: str, *, watched: bool = False, weights: bool = False) -> Call:
        def call() -> object:
            model.set_attn_implementation(implementation)
            with torch.no_grad(), watch(model, settings.keep) if watched else nullcontext() as seen:
                return model(tokens, output_attentions=weights), seen

        return call

    return {UNWATCHED: look("sdpa"), WATCHED: look("sdpa", watched=True), EAGER: look("eager", weights=True)}


def measure_looks(settings: WatchBench, tell: Tell) -> list[Look]:
    """A row for each way: timed in turn with the others, then its memory."""
    skipped = why_too_large(settings.layers + 3, settings)  # with the scores, and what is added to them
    calls = {way: call for way, call in make_calls(settings).items() if not (skipped and way == EAGER)}
    tell("timing")
    timing = time_in_turn(calls, clock_of(torch.device(settings.device)), settings)
    rows = []
    for way in calls:
        tell(f"{way}: memory")
        try:
            (peak,), note = measure_apart(memory_of_way, settings, way), ""
        except ProcessEndedError:
            peak, note = None, "ended by the system while its memory was measured"
        times, longer = timing.seconds(way), timing.ratio(way, UNWATCHED)
        rows.append(Look(way, median(times), longer, peak, len(times), timing.quiet, note))
    return [*rows, Look(EAGER, note=skipped)] if skipped else rows


def memory_of_way(settings: WatchBench, way: str) -> list[int]:
    """The peak memory of a way, in this process."""
    return memory_of(lambda settings: [make_calls(settings)[way]], settings)


def make_table(rows: list[Look]) -> Table:
    """A line for each way."""
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


def conditions(settings: WatchBench) -> str:
    """Under which the figures hold."""
    where = f"{torch.get_num_threads()} threads" if settings.device == "cpu" else settings.device
    return (
        f"GPT-2 without its output layer: {settings.layers} layers of width {settings.width}, {settings.heads} heads, "
        f'one text of {settings.length} tokens, watched with keep="{settings.keep}", {settings.dtype}, {where}, '
        f"torch {torch.__version__}. Seconds are medians of up to {settings.repeats} rounds; a ratio is the median, "
        "over the rounds, of that to the unwatched model in the same round. Memory is the peak above that before it."
    )


def notes(rows: list[Look]) -> Iterator[str]:
    """What was not measured and why, and whether the machine was busy."""
    for row in rows:
        if row.note:
            yield f"{row.way}: {row.note}"
    if not all(row.quiet for row in rows):
        yield "other programs were busy meanwhile; these times are unsound"


def targets(rows: list[Look]) -> Iterator[str]:
    """A line for the target: met or missed."""
    yield "Targets:"
    for row in rows:
        if row.way == WATCHED:
            yield verdict(f"{WATCHED}, of {UNWATCHED}", row.ratio, MOST)
