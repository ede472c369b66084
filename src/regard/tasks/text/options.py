"""Options of the task text: generation and explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.bounds import Bounds, check_bounds
from regard.tasks.actions import Flag

MaxTokensBounds = Bounds(1, 1_000_000)

BEAM = 5
"""Default beam size."""

SEEDS = 2**32
"""Number of possible seeds."""

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "seed")
"""Options that only affect sampling."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options of sampling.

    Attributes:
        max_tokens: Maximum number of tokens to generate.
        temperature: Sampling temperature; below 1 favors probable tokens (default: 1).
        top_k: Sample only from the k most probable tokens (default: all).
        top_p: Sample only from the smallest set of most probable tokens with this total probability (default: all).
        greedy: Take the most probable token at every step instead of sampling.
        seed: Seed for sampling; the same seed gives the same text (default: random).
    """

    max_tokens: Annotated[int, MaxTokensBounds] = 200
    temperature: Annotated[float | None, Bounds(0.001, 1000, hint="use {dashes}greedy for the most probable text")] = (
        None
    )
    top_k: Annotated[int | None, Bounds(1, 10**9)] = None
    top_p: Annotated[float | None, Bounds(exclusive_minimum=0, maximum=1)] = None
    greedy: Flag = False
    seed: Annotated[int | None, Bounds(0, SEEDS - 1)] = None

    @property
    def sampling_options(self) -> list[str]:
        """The names of the sampling options that are set."""
        return [name for name in SAMPLING_OPTIONS if getattr(self, name) is not None]

    def __post_init__(self) -> None:
        check_bounds(self, "generate: ")


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(SamplingOptions):
    """Options of generation: sampling or beam search.

    Attributes:
        beam: Search for the most probable text with a beam of this size instead of sampling.
        nbest: Number of texts to return from beam search, best first (default: 1).
    """

    beam: Annotated[int | None, Bounds(1, 1000)] = None
    nbest: Annotated[int | None, Bounds(1, 1000)] = None

    @property
    def uses_beam(self) -> bool:
        """Whether to use beam search instead of sampling."""
        return self.beam is not None or self.nbest is not None


@dataclass(frozen=True, kw_only=True)
class TextExplainOptions:
    """Options of an explanation.

    Attributes:
        word: Index of the word to explain, from 0 (default: the last word).
    """

    word: Annotated[int | None, Bounds(0, 1_000_000)] = None

    def __post_init__(self) -> None:
        check_bounds(self, "explain: ")
