"""Compare the training speed of `lstm-lm` and `gpt2` with plain PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import nn

from regard.batch import TextBatch
from regard.bench.measure import Tell, TimedCall, Timing, time_in_turn
from regard.bench.plain import PlainLoop, build_plain_lstm, build_transformers_gpt2
from regard.bench.settings import TrainingBench
from regard.data.documents import Chunk
from regard.data.pair_check import pluralize
from regard.data.segments import SegmentBatches, get_document_spans
from regard.data.token_file import TokenFile, write_tokens
from regard.models import Gpt, GptConfig, LanguageModel, RecurrentLm, RecurrentLmConfig
from regard.run import Run
from regard.text import Tokenizer, learn_lm_tokenizer
from regard.training.engines import build_engine
from regard.training.loop import Trainer, ValidationResult
from regard.training.loss import TextStep
from regard.training.reporter import Reporter
from regard.training.settings import TrainingSettings

OURS = "regard"
MIN_RATIO = 1.0  # minimum ratio of tokens per second to the peer
BATCHES = 16  # number of batches in the text if all are full


@dataclass(frozen=True)
class SpeedComparison:
    """A model of regard, and the same model in plain PyTorch."""

    name: str
    peer: str  # name of the plain model
    sizes: str  # description of the sizes
    segment_length: int  # tokens per row of a batch
    segments: int  # segments per document of the text
    build_ours: Callable[[Any], LanguageModel]
    config: Any  # config of regard's model, without the vocabulary size
    build_peer: Callable[[Any], nn.Module]  # builds the plain model with the same parameters


@dataclass(frozen=True)
class Speed:
    """Training speed of one side of a comparison."""

    model: str
    by: str
    sizes: str
    vocabulary: int
    parameters: int
    tokens: float  # mean number per update
    seconds: float  # per token, median over rounds
    ratio: float  # tokens per second relative to the other side, median over rounds
    rounds: int
    quiet: bool  # no other program was busy


def list_comparisons(settings: TrainingBench) -> list[SpeedComparison]:
    """Return all comparisons; that of `gpt2` only if Transformers is installed."""
    wide, segment, context = settings.width, settings.segment_length, settings.context_length
    lstm = RecurrentLmConfig(
        vocab_size=1, embedding=wide, hidden=wide, layers=settings.lstm_layers, variational_dropout=True
    )
    unlocked = replace(lstm, variational_dropout=False)
    gpt = GptConfig(vocab_size=1, width=wide, heads=settings.heads, layers=settings.gpt_layers, context_length=context)
    sizes = f"{pluralize(lstm.layers, 'layer')} of width {wide}, segments of up to {segment}"
    comparisons = [
        SpeedComparison(
            "lstm-lm, variational_dropout=false",
            "nn.LSTM",
            sizes,
            segment,
            BATCHES,
            RecurrentLm,
            unlocked,
            build_plain_lstm,
        ),
        SpeedComparison(
            "lstm-lm", "nn.LSTM, layer by layer", sizes, segment, BATCHES, RecurrentLm, lstm, build_plain_lstm
        ),
    ]
    if has_transformers():
        sizes = f"{pluralize(gpt.layers, 'layer')} of width {wide}, {pluralize(gpt.heads, 'head')}, context {context}"
        comparisons.append(
            SpeedComparison("gpt2", "Transformers' GPT-2", sizes, context, 1, Gpt, gpt, build_transformers_gpt2)
        )
    return comparisons


def has_transformers() -> bool:
    """Return whether Transformers is installed."""
    return find_spec("transformers") is not None


def write_random_text(path: Path, comparison: SpeedComparison, settings: TrainingBench) -> tuple[TokenFile, Tokenizer]:
    """Build documents of random words with Zipf frequencies, enough to fill all batches."""
    words = np.array([f"w{index}" for index in range(settings.words)])
    shares = 1 / np.arange(1, settings.words + 1)
    rows = settings.batch_tokens // comparison.segment_length
    shape = (rows * BATCHES // comparison.segments, comparison.segments * comparison.segment_length - 1)  # and <eos>
    sampled_words = np.random.Generator(np.random.PCG64(0)).choice(words, shape, p=shares / shares.sum())
    tokenizer = learn_lm_tokenizer("words", [" ".join(words)])
    return write_tokens(
        path, [Chunk(" ".join(document), last=True) for document in sampled_words], tokenizer
    ), tokenizer


def measure_contests(settings: TrainingBench, tell: Tell) -> Iterator[Speed]:
    """Measure both sides of each comparison."""
    with TemporaryDirectory() as folder:
        for contest in list_comparisons(settings):
            tell(f"{contest.name}: timing")
            yield from measure_comparison(contest, settings, Path(folder))


def measure_comparison(comparison: SpeedComparison, settings: TrainingBench, folder: Path) -> list[Speed]:
    """Time updates of both sides in turn; in each round both read the same batch."""
    trainer, loop = build_both_sides(comparison, settings, folder)
    calls = {OURS: lambda: run_update(trainer), comparison.peer: loop.update}
    timing = time_in_turn(calls, measure_seconds_per_token, settings)
    counters = trainer.counters
    parameters = count_parameters(loop.model)
    assert count_parameters(trainer.engine.model) == parameters
    assert isinstance(trainer.batches, SegmentBatches)
    vocabulary, tokens = trainer.batches.tokenizer.size, counters.tokens / counters.step
    return compute_speeds(comparison, timing, vocabulary=vocabulary, parameters=parameters, tokens=tokens)


def build_both_sides(comparison: SpeedComparison, settings: TrainingBench, folder: Path) -> tuple[Trainer, PlainLoop]:
    """Return functions that train both sides from the same parameters with the same batches."""
    file, tokenizer = write_random_text(folder / "text.tokens", comparison, settings)
    torch.manual_seed(0)
    model = comparison.build_ours(replace(comparison.config, vocab_size=tokenizer.size))
    peer_model = comparison.build_peer(model)
    spans, length = get_document_spans(file), comparison.segment_length
    batches = SegmentBatches(file, spans, tokenizer, settings.batch_tokens, length, model.stateful, seed=0)  # fmt: skip
    training = TrainingSettings(steps=1, learning_rate=1e-3, schedule="constant", warmup_steps=0, precision="float32")
    engine, reporter = build_engine(TextStep(model), training, "cpu"), Reporter(quiet=True)
    trainer = Trainer(engine, batches, lambda _: ValidationResult({}), training, Run(folder), reporter)
    return trainer, PlainLoop(peer_model, iter_batches(batches), training)


def iter_batches(batches: SegmentBatches) -> Iterator[TextBatch]:
    """Yield the batches of all epochs in the order of `Trainer`."""
    for epoch in count():
        for rows in batches.plan(epoch):
            yield batches.batch(rows, epoch)


def run_update(trainer: Trainer) -> int:
    """Make one update as `regard train` does, and return the number of predicted tokens."""
    before = trainer.counters.tokens
    trainer.update()
    return trainer.counters.tokens - before


def measure_seconds_per_token(update: TimedCall) -> float:
    """Return the seconds per token of an update."""
    start = time.perf_counter()
    tokens = update()
    assert isinstance(tokens, int)
    return (time.perf_counter() - start) / tokens


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def compute_speeds(
    comparison: SpeedComparison, timing: Timing, *, vocabulary: int, parameters: int, tokens: float
) -> list[Speed]:
    """Return the rows of both sides, each relative to the other."""

    def speed(name: str, other: str) -> Speed:
        times, faster = timing.get_seconds(name), timing.median_ratio(other, name)
        return Speed(
            comparison.name, name, comparison.sizes, vocabulary, parameters, tokens, median(times), faster,
            len(times), timing.quiet,
        )  # fmt: skip

    return [speed(comparison.peer, OURS), speed(OURS, comparison.peer)]


def make_table(rows: list[Speed]) -> Table:
    """Format a table with one line per side."""
    table = Table()
    for heading in ("model", "trained by"):
        table.add_column(heading, no_wrap=True)
    for heading in ("parameters", "tokens\na batch", "ms\na batch", "tokens\na second", "\nratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        ours = row.by == OURS
        figures = (f"{row.parameters:,}", f"{row.tokens:,.0f}", f"{1000 * row.seconds * row.tokens:,.1f}")
        speed = (f"{1 / row.seconds:,.0f}", f"{row.ratio:.2f}x" if ours else "")
        table.add_row("" if ours else row.model, row.by, *figures, *speed, style="bold" if ours else None)
        if ours:
            table.add_section()
    return table


def describe_conditions(rows: list[Speed], settings: TrainingBench) -> Iterator[str]:
    """Describe the conditions of the measurement."""
    for row in rows:
        if row.by == OURS:
            yield f"{row.model}: {row.sizes}, vocabulary {row.vocabulary:,}"
    lstm, gpt = RecurrentLmConfig(vocab_size=1).dropout, GptConfig(vocab_size=1).dropout
    yield (
        f"Both sides of a pair start with the same parameters and read the same batches. Dropout is {lstm} on "
        "embeddings, between layers and before the output of an LSTM, "
        "for each token anew with variational_dropout=false, "
        f"else the same for all tokens of a row; {gpt} on embeddings and residuals of GPT, none on attention. "
        "The others are trained by a plain loop with torch.optim.AdamW."
    )
    yield (
        f"float32, cpu, {torch.get_num_threads()} threads, torch {torch.__version__}. Speeds are medians of up to "
        f"{settings.repeats} rounds; a ratio is the median, over the rounds, of our tokens a second to theirs in the "
        "same round."
    )


def iter_notes(rows: list[Speed]) -> Iterator[str]:
    """Yield notes on what was not measured and why, and what was measured on a busy machine."""
    if not has_transformers():
        yield "gpt2: skipped: Transformers is not installed; pip install transformers"
    for row in rows:
        if row.by == OURS and not row.quiet:
            yield f"{row.model}: other programs were running; these times are unreliable"


def check_targets(rows: list[Speed]) -> Iterator[str]:
    """Return a line per target: met or missed."""
    yield "Targets:"
    for peer, row in zip(rows[::2], rows[1::2], strict=True):
        met = "met " if row.ratio >= MIN_RATIO else "MISS"
        yield f"{met}  tokens a second of {row.model}, of {peer.by}: {row.ratio:.3f}x, at least {MIN_RATIO:.2f}x"
