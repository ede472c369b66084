"""JSON schema of a prediction, for the server's API description."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TargetRecord:
    """One target. Both token lists end in <eos>; weights are indexed by layer, head, target and source token.

    Targets are ranked by `ranking_score`, the log-probability divided by the length penalty. For a model that copies,
    `generated` is the probability of each step to generate its token rather than copy one.
    """

    text: str
    log_probability: float
    ranking_score: float
    source_tokens: list[str]
    target_tokens: list[str]
    generated: list[float] | None = None
    weights: list[list[list[list[float]]]] | None = None


@dataclass(frozen=True, kw_only=True)
class PairRecord(TargetRecord):
    """The best target of a source, and all alternatives, best first."""

    source: str
    alternatives: list[TargetRecord]
