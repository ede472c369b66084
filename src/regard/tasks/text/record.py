"""The record of a text that was written, for the server's description of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WrittenRecord:
    """A text and the logarithm of its probability."""

    text: str
    log_probability: float


@dataclass(frozen=True)
class TextRecord(WrittenRecord):
    """What a language model wrote after a prompt; the tokens are those of both, behind <bos>."""

    prompt: str
    ended: bool
    tokens: list[str]
    seed: int | None = None
    alternatives: list[WrittenRecord] | None = None
