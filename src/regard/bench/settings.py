"""What the benchmarks measure; needs no torch.

The remark behind a setting is the help of its option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

from regard.errors import RegardError
from regard.settings import Between, setting

DType = Literal["float32", "float64", "float16", "bfloat16"]
Size = Annotated[int, Between(1)]


def check_sizes(settings: Bench) -> None:
    """Raise a `RegardError` for a size of nothing."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        if hint == Size and getattr(settings, name) < 1:
            raise RegardError(f"--{name.replace('_', '-')} is {getattr(settings, name)}; 1 or more is needed")


def check_heads(settings: TrainingBench | WatchBench) -> None:
    """Raise a `RegardError` for heads that cannot share the width."""
    if settings.width % settings.heads:
        raise RegardError(f"--heads is {settings.heads}; what divides --width, which is {settings.width}, is needed")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The size of the attention, and how often it is timed."""

    length: Size = 2048  # How many queries, and keys.
    width: Size = 64  # The width of a head.
    heads: Size = 4  # How many heads.
    dtype: DType = "float32"  # The type of all numbers.
    device: str = "cpu"  # Where to measure: cpu, cuda, cuda:1.
    repeats: Size = 100  # How many rounds at most.
    fewest: int = setting(3, "no_option")  # rounds at least, however long they take
    patience: float = setting(30.0, "no_option")  # seconds, of which each candidate has its share
    processes: int = setting(5, "no_option")  # one after another, which share rounds and patience, on a CPU

    def __post_init__(self) -> None:
        check_sizes(self)


QUICK = Settings(length=256, repeats=5, fewest=2, patience=0.5, processes=1)
"""What `--quick` measures."""


@dataclass(frozen=True, kw_only=True)
class TrainingBench:
    """The size of the language models that are trained, and how often an update is timed."""

    words: Size = 2000  # How many different ones the text has.
    width: Size = 256  # The width of a token, and of a state.
    lstm_layers: Size = 2  # The layers of lstm-lm.
    gpt_layers: Size = 4  # The layers of gpt.
    heads: Size = 4  # The heads of gpt.
    segment: Size = 64  # How many tokens of a row lstm-lm reads at once, at most.
    context: Size = 256  # How many tokens of a row gpt reads at once.
    tokens: int = 4096  # How many tokens a batch has, at most.
    repeats: Size = 20  # How many rounds at most.
    fewest: int = setting(3, "no_option")  # rounds at least, however long they take
    patience: float = setting(30.0, "no_option")  # seconds, of which both sides have a half

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
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

    length: Size = 4096  # How many tokens the text has.
    layers: Size = 12  # The layers of the model.
    width: Size = 768  # The width of a token.
    heads: Size = 12  # How many heads each layer has.
    keep: str = "top:8"  # What watch keeps of each call: top:8, received, entropy, argmax, dense, all.
    dtype: DType = "float32"  # The type of all numbers.
    device: str = "cpu"  # Where to measure: cpu, cuda, cuda:1.
    repeats: Size = 5  # How many rounds at most.
    fewest: int = setting(2, "no_option")  # rounds at least, however long they take
    patience: float = setting(120.0, "no_option")  # seconds, of which each way has its share

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)


QUICK_WATCH = WatchBench(length=256, layers=2, width=128, heads=4, repeats=5, fewest=2, patience=2)
"""What `--quick` measures of watching."""

Bench = Settings | TrainingBench | WatchBench
