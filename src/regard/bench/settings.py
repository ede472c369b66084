"""What a benchmark of attention measures; needs no torch."""

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
    repeats: int = 20  # rounds at most
    fewest: int = 3  # rounds at least, however long they take
    patience: float = 20.0  # seconds after which there are no more than these

    def __post_init__(self) -> None:
        for name in ("length", "width", "heads", "repeats"):
            if getattr(self, name) < 1:
                raise RegardError(f"--{name} is {getattr(self, name)}; 1 or more is needed")


QUICK = Settings(length=256, repeats=5, fewest=2, patience=0.5)
"""What `--quick` measures."""
