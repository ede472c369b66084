"""How predictions are made."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """How predictions are made unless `predict` is told otherwise."""

    beam: int = 5  # hypotheses kept at each step; 1 is greedy
    length_penalty: float = 1.0  # 0 prefers short ones

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise RegardError(f"beam is {self.beam}; 1 is the least")
