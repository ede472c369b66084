"""Settings of the benchmarks; importing them does not import torch.

The remark behind a setting is the help of its option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

from regard.errors import RegardError
from regard.settings import Bounds, setting

DType = Literal["float32", "float64", "float16", "bfloat16"]
Size = Annotated[int, Bounds(1)]


def check_sizes(settings: Bench) -> None:
    """Raise a `RegardError` for a size below 1."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        if hint == Size and getattr(settings, name) < 1:
            raise RegardError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(settings, name)}")


def check_heads(settings: TrainingBench | WatchBench) -> None:
    """Raise a `RegardError` if the width is not a multiple of the heads."""
    if settings.width % settings.heads:
        raise RegardError(f"--width must be divisible by --heads, got {settings.width} and {settings.heads}")


@dataclass(frozen=True, kw_only=True)
class AttentionBench:
    """Settings of `regard bench attention`."""

    length: Size = 2048  # Number of queries and keys.
    width: Size = 64  # Width of a head.
    heads: Size = 4  # Number of heads.
    dtype: DType = "float32"  # Data type.
    device: str = "cpu"  # Device: cpu, cuda or cuda:1.
    repeats: Size = 100  # Maximum number of rounds.
    fewest: int = setting(3, "no_option")  # minimum number of rounds
    patience: float = setting(30.0, "no_option")  # time limit in seconds, shared by the candidates
    processes: int = setting(
        5, "no_option"
    )  # number of processes, one after another, which share rounds and time, on a CPU

    def __post_init__(self) -> None:
        check_sizes(self)


QUICK = AttentionBench(length=256, repeats=5, fewest=2, patience=0.5, processes=1)
"""Settings of `regard bench attention --quick`."""


@dataclass(frozen=True, kw_only=True)
class TrainingBench:
    """Settings of `regard bench training`."""

    words: Size = 2000  # Vocabulary size of the text.
    width: Size = 256  # Width of tokens and states.
    lstm_layers: Size = 2  # Number of layers of lstm-lm.
    gpt_layers: Size = 4  # Number of layers of gpt.
    heads: Size = 4  # Number of heads of gpt.
    segment_length: Size = 64  # Maximum tokens of a row that lstm-lm reads at once.
    context_length: Size = 256  # Tokens of a row that gpt reads at once.
    batch_tokens: int = 4096  # Maximum tokens of a batch.
    repeats: Size = 20  # Maximum number of rounds.
    fewest: int = setting(3, "no_option")  # minimum number of rounds
    patience: float = setting(30.0, "no_option")  # time limit in seconds, shared by both sides

    def __post_init__(self) -> None:
        check_sizes(self)
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
    layers: Size = 12  # Number of layers.
    width: Size = 768  # Width of a token.
    heads: Size = 12  # Number of heads per layer.
    keep: str = "top:8"  # What watch keeps per call: top:8, received, entropy, argmax, dense, all.
    dtype: DType = "float32"  # Data type.
    device: str = "cpu"  # Device: cpu, cuda or cuda:1.
    repeats: Size = 5  # Maximum number of rounds.
    fewest: int = setting(2, "no_option")  # minimum number of rounds
    patience: float = setting(120.0, "no_option")  # time limit in seconds, shared by all variants

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)


QUICK_WATCH = WatchBench(length=256, layers=2, width=128, heads=4, repeats=5, fewest=2, patience=2)
"""Settings of `regard bench watch --quick`."""

Bench = AttentionBench | TrainingBench | WatchBench
