"""The recipe of pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from regard.errors import RegardError
from regard.recipe import Recipe
from regard.settings import check_least, setting
from regard.tasks.settings import DataSettings, Kind, TextSettings
from regard.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class PairData(DataSettings):
    """Where pairs come from."""

    source: str | None = setting(None, "path", "origin", "may_change")  # or two files, line by line: the sources
    target: str | None = setting(None, "path", "may_change")  # and the targets
    valid_source: str | None = setting(None, "path", "may_change")  # two files to validate with: the sources
    valid_target: str | None = setting(None, "path", "may_change")  # and the targets
    format: str | None = None  # tmx, po, mo, tsv, csv, jsonl; by the name of the file unless set
    columns: tuple[str, ...] = ()  # which columns, keys or languages are source and target
    empty: Literal["error", "skip"] = "error"  # what to do with a pair or example of which a part is empty
    most_tokens: int = 256  # of a side; longer pairs are left out
    count: int = 20_000  # examples to make of a built-in corpus
    corpus: dict[str, Any] = field(default_factory=dict)  # settings of a built-in corpus


@dataclass(frozen=True, kw_only=True)
class PairText(TextSettings):
    """How sources and targets become tokens."""

    source_kind: Kind = "auto"  # of the source alone
    target_kind: Kind = "auto"  # of the target alone
    joint: bool | Literal["auto"] = "auto"  # one vocabulary for both sides; auto: where they share most words
    lowercase: bool = False  # all text
    moses_source: str | None = None  # a language, whose punctuation is normalised and set apart as Moses does
    moses_target: str | None = None  # a language, likewise
    bpe_dropout: float = 0.0  # the share of merges left out in training; batches then have more tokens than planned

    def __post_init__(self) -> None:
        if not 0 <= self.bpe_dropout < 1:
            raise RegardError(f"bpe_dropout is {self.bpe_dropout}; a number from 0 to below 1 is needed")


@dataclass(frozen=True, kw_only=True)
class PairTraining(TrainingSettings):
    """How a model of pairs is trained."""

    validate_most: int = setting(1000, "may_change")  # examples that are decoded in a validation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "validate_most")


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """How predictions are made unless `predict` is told otherwise."""

    beam: int = 5  # hypotheses kept at each step; 1 is greedy
    length_penalty: float = 1.0  # 0 prefers short ones

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise RegardError(f"beam is {self.beam}; 1 is the least")


@dataclass(frozen=True, kw_only=True)
class PairRecipe(Recipe):
    """All settings of a model of pairs."""

    data: PairData = field(default_factory=PairData)  # where examples come from
    text: PairText = field(default_factory=PairText)  # how text becomes tokens
    model: dict[str, Any] = field(default_factory=dict)
    training: PairTraining = field(default_factory=PairTraining)  # what has no default is chosen to suit the data
    decoding: DecodingSettings = field(default_factory=DecodingSettings)  # unless regard predict is told otherwise
