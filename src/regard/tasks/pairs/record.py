"""The record of a prediction, for the server's description of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TargetRecord:
    """One target of a source; both sides end in <eos>. Weights are by layer, head, target and source token."""

    text: str
    log_probability: float
    source_tokens: list[str]
    target_tokens: list[str]
    weights: list[list[list[list[float]]]] | None = None


@dataclass(frozen=True, kw_only=True)
class PairRecord(TargetRecord):
    """The best target of a source, and all that were asked for, itself first."""

    source: str
    alternatives: list[TargetRecord]
