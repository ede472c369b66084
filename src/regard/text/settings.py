"""How text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError
from regard.text.steps import TextSteps


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How text becomes tokens."""

    kind: Literal["auto", "characters", "words", "bpe", "unigram", "bytes"] = "auto"  # of tokens, on both sides
    source_kind: Literal["auto", "characters", "words", "bpe", "unigram", "bytes"] = "auto"  # of the source alone
    target_kind: Literal["auto", "characters", "words", "bpe", "unigram", "bytes"] = "auto"  # of the target alone
    size: int | None = None  # of a vocabulary; to suit the data unless set
    least_count: int = 1  # a word (or character) that is rarer is unknown
    joint: bool | Literal["auto"] = "auto"  # one vocabulary for both sides; auto: where they share most words
    lowercase: bool = False  # both sides
    moses_source: str | None = None  # a language, whose punctuation is normalised and set apart as Moses does
    moses_target: str | None = None  # a language, likewise
    bpe_dropout: float = 0.0  # the share of merges left out in training; batches then have more tokens than planned

    def __post_init__(self) -> None:
        if not 0 <= self.bpe_dropout < 1:
            raise RegardError(f"bpe_dropout is {self.bpe_dropout}; a number from 0 to below 1 is needed")

    def steps(self, moses: str | None) -> TextSteps:
        """What is done to the texts of a side whose Moses language this is."""
        return TextSteps(lowercase=self.lowercase, normalise_punctuation=moses is not None, moses=moses)
