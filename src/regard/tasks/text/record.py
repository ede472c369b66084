"""JSON schema of a generated text, for the server's API description."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GeneratedRecord:
    """A text and its log-probability."""

    text: str
    log_probability: float


@dataclass(frozen=True)
class TextRecord(GeneratedRecord):
    """A text generated from a prompt; the tokens are <bos>, the prompt and the text."""

    prompt: str
    ended: bool
    tokens: list[str]
    seed: int | None = None
    alternatives: list[GeneratedRecord] | None = None
