"""Settings of the benchmarks; importing them does not import torch.

The remark behind a setting is the help of its option.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Literal

from regard.bounds import BatchTokens, Bounds, Heads, Layers, Width, check_bounds
from regard.errors import RegardError
from regard.settings import parse_value, setting

DType = Literal["float32", "float64", "float16", "bfloat16"]
Size = Annotated[int, Bounds(1, 1_000_000)]
Rounds = Annotated[int, Bounds(1, 1_000_000)]
Processes = Annotated[int, Bounds(1, 1000)]
Seconds = Annotated[float, Bounds(0, 86_400)]
LEARNING_RATES = Bounds(exclusive_minimum=0, maximum=10)


def parse_sizes(option: str, text: str, maximum: int) -> list[int]:
    """Parse increasing numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 10]
    increasing = all(before < after for before, after in itertools.pairwise(numbers))
    if len(numbers) != len(parts) or not increasing or not 1 <= numbers[0] <= numbers[-1] <= maximum:
        raise RegardError(f"{option}: expected increasing numbers from 1 to {maximum:,}, as in 64,128, got {text}")
    return numbers


def check_heads(settings: TrainingBench | WatchBench | CostBench) -> None:
    """Raise a `RegardError` if the width is not a multiple of the heads."""
    if settings.width % settings.heads:
        raise RegardError(f"--width must be divisible by --heads, got {settings.width} and {settings.heads}")


@dataclass(frozen=True, kw_only=True)
class AttentionBench:
    """Settings of `regard bench attention`."""

    length: Size = 2048  # Number of queries and keys.
    width: Width = 64  # Width of a head.
    heads: Heads = 4  # Number of heads.
    dtype: DType = "float32"  # Data type.
    device: str = "cpu"  # Device: cpu, cuda or cuda:1.
    repeats: Rounds = 100  # Maximum number of rounds.
    fewest: Rounds = setting(3, "no_option")  # minimum number of rounds
    patience: Seconds = setting(30.0, "no_option")  # time limit in seconds, shared by the candidates
    processes: Processes = setting(5, "no_option")  # processes, one after another, that share rounds and time

    def __post_init__(self) -> None:
        check_bounds(self, "--")


QUICK = AttentionBench(length=256, repeats=5, fewest=2, patience=0.5, processes=1)
"""Settings of `regard bench attention --quick`."""


@dataclass(frozen=True, kw_only=True)
class TrainingBench:
    """Settings of `regard bench training`."""

    words: Size = 2000  # Vocabulary size of the text.
    width: Width = 256  # Width of tokens and states.
    lstm_layers: Layers = 2  # Number of layers of lstm-lm.
    gpt_layers: Layers = 4  # Number of layers of gpt.
    heads: Heads = 4  # Number of heads of gpt.
    segment_length: Size = 64  # Maximum tokens of a row that lstm-lm reads at once.
    context_length: Size = 256  # Tokens of a row that gpt reads at once.
    batch_tokens: BatchTokens = 4096  # Maximum tokens of a batch.
    repeats: Rounds = 20  # Maximum number of rounds.
    fewest: Rounds = setting(3, "no_option")  # minimum number of rounds
    patience: Seconds = setting(30.0, "no_option")  # time limit in seconds, shared by both sides

    def __post_init__(self) -> None:
        check_bounds(self, "--")
        check_heads(self)
        for name in ("segment_length", "context_length"):
            if self.batch_tokens < getattr(self, name):
                option = f"--{name.replace('_', '-')} ({getattr(self, name)})"
                raise RegardError(f"--batch-tokens must be at least {option}, got {self.batch_tokens}")


QUICK_TRAINING = TrainingBench(
    words=500, width=64, segment_length=32, context_length=64, batch_tokens=1024, repeats=5, fewest=2, patience=2
)
"""Settings of `regard bench training --quick`."""


@dataclass(frozen=True, kw_only=True)
class WatchBench:
    """Settings of `regard bench watch`."""

    length: Size = 4096  # Number of tokens of the text.
    layers: Layers = 12  # Number of layers.
    width: Width = 768  # Width of a token.
    heads: Heads = 12  # Number of heads per layer.
    keep: str = "top:8"  # What watch keeps per call: top:8, received, entropy, argmax, dense, all.
    dtype: DType = "float32"  # Data type.
    device: str = "cpu"  # Device: cpu, cuda or cuda:1.
    repeats: Rounds = 5  # Maximum number of rounds.
    fewest: Rounds = setting(2, "no_option")  # minimum number of rounds
    patience: Seconds = setting(120.0, "no_option")  # time limit in seconds, shared by all variants

    def __post_init__(self) -> None:
        check_bounds(self, "--")
        check_heads(self)


QUICK_WATCH = WatchBench(length=256, layers=2, width=128, heads=4, repeats=5, fewest=2, patience=2)
"""Settings of `regard bench watch --quick`."""


@dataclass(frozen=True, kw_only=True)
class CostBench:
    """Settings of `regard bench cost`."""

    lengths: str = "64,128,256,512,1024,2048"  # Lengths of the sequence, separated by commas.
    width: Width = 64  # Width of the input and of the states.
    heads: Heads = 4  # Number of heads of multi-head self-attention.
    device: str = "cpu"  # Device: cpu, cuda or cuda:1.
    repeats: Rounds = 5  # Number of rounds.

    def __post_init__(self) -> None:
        check_bounds(self, "--")
        check_heads(self)
        self.parse_lengths()

    def parse_lengths(self) -> list[int]:
        """Return the lengths as numbers."""
        return parse_sizes("--lengths", self.lengths, 2**20)


QUICK_COST = CostBench(lengths="32,64,128", width=16, repeats=2)
"""Settings of `regard bench cost --quick`."""


@dataclass(frozen=True, kw_only=True)
class ScalingBench:
    """Settings of `regard bench scaling`."""

    widths: str = "4,16,64,256,1024"  # Widths of queries and keys, separated by commas.
    keys: Size = 32  # Number of keys.
    samples: Size = 2000  # Number of random queries for variances and gradients.
    steps: Rounds = 300  # Number of updates of each training.
    learning_rates: str = "1e-3,3e-3"  # Learning rates of Adam to try; the best is reported.
    seeds: Size = 3  # Number of trainings for each score, width and learning rate.

    def __post_init__(self) -> None:
        check_bounds(self, "--")
        self.parse_widths()
        self.parse_learning_rates()

    def parse_widths(self) -> list[int]:
        """Return the widths as numbers."""
        return parse_sizes("--widths", self.widths, 2**16)

    def parse_learning_rates(self) -> list[float]:
        """Return the learning rates as numbers."""
        rates = [parse_value(part.strip(), float, "--learning-rates") for part in self.learning_rates.split(",")]
        for rate in rates:
            LEARNING_RATES.check("--learning-rates", rate)
        return rates


QUICK_SCALING = ScalingBench(widths="4,64", samples=200, steps=20, learning_rates="3e-3", seeds=1)
"""Settings of `regard bench scaling --quick`."""


@dataclass(frozen=True, kw_only=True)
class GpuBench:
    """Settings of `regard bench gpu`."""

    length: Size = 16_384  # Number of queries and keys of dot products, and of tokens of GPT-2.
    heads: Heads = 16  # Number of heads.
    width: Width = 64  # Width of a head.
    short_length: Size = 1024  # Number of queries and keys of additive attention and of short calls.
    sequences: Size = 64  # Number of sequences of additive attention.
    kernel_length: Size = 4096  # Number of queries and keys of boxcar and Epanechnikov kernels.
    long_length: Size = 131_072  # Number of tokens of one long head.
    layers: Layers = 12  # Number of layers of GPT-2.
    dtype: DType = "bfloat16"  # Data type.
    device: str = "cuda"  # Device: cuda, cuda:1, or cpu to see that it works.
    compiled: bool = setting(True, "no_option")  # whether to measure torch.compile and FlexAttention, too
    repeats: Rounds = 50  # Maximum number of rounds of a case.
    fewest: Rounds = setting(5, "no_option")  # minimum number of rounds
    seconds: Seconds = setting(4.0, "no_option")  # time limit of the rounds of a case
    patience: Seconds = setting(420.0, "no_option")  # time after which no case is started
    calls: Rounds = setting(50, "no_option")  # calls of a round where one call is too short

    def __post_init__(self) -> None:
        check_bounds(self, "--")


QUICK_GPU = GpuBench(
    length=40, heads=2, width=16, short_length=33, sequences=2, kernel_length=40, long_length=70, layers=1,
    compiled=False, repeats=2, fewest=1, calls=1,
)  # fmt: skip
"""Settings of `regard bench gpu --quick`."""


TimedBench = AttentionBench | TrainingBench | WatchBench
"""Benchmarks whose candidates are timed in turn."""

Bench = AttentionBench | TrainingBench | WatchBench | CostBench | ScalingBench | GpuBench
