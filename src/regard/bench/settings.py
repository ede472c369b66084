"""What the benchmarks measure; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError

DType = Literal["float32", "float64", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The size of the attention, and how often it is timed."""

    length: int = 2048  # of queries, and of keys
    width: int = 64  # of each head
    heads: int = 4
    dtype: DType = "float32"
    device: str = "cpu"
    repeats: int = 100  # rounds at most
    fewest: int = 3  # rounds at least, however long they take
    patience: float = 30.0  # seconds, of which each candidate has its share
    processes: int = 5  # one after another, among which rounds and patience are shared out, on a CPU

    def __post_init__(self) -> None:
        for name in ("length", "width", "heads", "repeats"):
            if getattr(self, name) < 1:
                raise RegardError(f"--{name} is {getattr(self, name)}; 1 or more is needed")


QUICK = Settings(length=256, repeats=5, fewest=2, patience=0.5, processes=1)
"""What `--quick` measures."""


@dataclass(frozen=True, kw_only=True)
class TrainingBench:
    """The size of the language models that are trained, and how often an update is timed."""

    words: int = 2000  # different ones in the text
    width: int = 256  # of a token, and of a state
    lstm_layers: int = 2
    gpt_layers: int = 4
    heads: int = 4  # of gpt
    segment: int = 64  # tokens of a row in a batch of lstm-lm, at most
    context: int = 256  # tokens of a row in a batch of gpt
    tokens: int = 4096  # of a batch, at most
    repeats: int = 20  # rounds at most
    fewest: int = 3  # rounds at least, however long they take
    patience: float = 30.0  # seconds, of which both sides have a half

    def __post_init__(self) -> None:
        for name in ("words", "width", "lstm_layers", "gpt_layers", "heads", "segment", "context", "repeats"):
            if getattr(self, name) < 1:
                raise RegardError(f"--{name.replace('_', '-')} is {getattr(self, name)}; 1 or more is needed")
        if self.width % self.heads:
            raise RegardError(f"--heads is {self.heads}; what divides --width, which is {self.width}, is needed")
        for name in ("segment", "context"):
            if self.tokens < getattr(self, name):
                raise RegardError(
                    f"--tokens is {self.tokens}; --{name}, which is {getattr(self, name)}, or more is needed"
                )


QUICK_TRAINING = TrainingBench(
    words=500, width=64, segment=32, context=64, tokens=1024, repeats=5, fewest=2, patience=2
)
"""What `--quick` measures of training."""


@dataclass(frozen=True, kw_only=True)
class WatchBench:
    """The size of the model whose attention is looked at, and how often that is timed."""

    length: int = 4096  # tokens of the text
    layers: int = 12
    width: int = 768
    heads: int = 12
    keep: str = "top:8"  # of each call
    dtype: DType = "float32"
    device: str = "cpu"
    repeats: int = 5  # rounds at most
    fewest: int = 2  # rounds at least, however long they take
    patience: float = 120.0  # seconds, of which each way has its share

    def __post_init__(self) -> None:
        for name in ("length", "layers", "width", "heads", "repeats"):
            if getattr(self, name) < 1:
                raise RegardError(f"--{name} is {getattr(self, name)}; 1 or more is needed")
        if self.width % self.heads:
            raise RegardError(f"--heads is {self.heads}; what divides --width, which is {self.width}, is needed")


QUICK_WATCH = WatchBench(length=256, layers=2, width=128, heads=4, repeats=5, fewest=2, patience=2)
"""What `--quick` measures of watching."""
