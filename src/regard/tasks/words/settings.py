"""What the recipes of classifiers and taggers have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from regard.errors import RegardError
from regard.recipe import Recipe
from regard.settings import check_least, setting, with_marks
from regard.tasks.settings import DataSettings, TextSettings
from regard.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class WordData(DataSettings):
    """Where labels and words come from."""

    vectors: str | None = setting(
        None, "path", "read_once"
    )  # of words, learnt elsewhere: a word2vec or GloVe file, or a run of a language model
    unlabelled: str | None = setting(
        None, "path", "read_once"
    )  # text that is read before labels or tags are learnt: a file, or a folder of files


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """How unlabelled text is read before labels or tags are learnt: as by a language model, in both directions."""

    steps: int = 3000  # updates
    tokens: int = 4000  # words of a batch, padding included
    rate: float = 2e-3  # learning rate at its peak
    dropout: float = 0.3  # on words as they come in, and on the states that tell their neighbours
    targets: int = 10_000  # the commonest words, which are told; all others are told as one
    words: int = 100_000  # the most words that are known only from the unlabelled text
    repeats: int = 3  # how often the labelled texts are read while the unlabelled text is read once

    def __post_init__(self) -> None:
        check_least(self, 1, "steps", "tokens", "targets")
        check_least(self, 0, "words", "repeats")
        if not self.rate > 0:
            raise RegardError(f"rate is {self.rate}; a number above 0 is needed")
        if not 0 <= self.dropout < 1:
            raise RegardError(f"dropout is {self.dropout}; a share from 0 to below 1 is needed")


@dataclass(frozen=True, kw_only=True)
class WordTraining(TrainingSettings):
    """How a classifier or a tagger is trained."""

    class_weights: float = 0.0  # from 0, where all examples count alike, to 1, where rare labels count as much in all

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.class_weights <= 1:
            raise RegardError(f"class_weights is {self.class_weights}; a number from 0 to 1 is needed")


@dataclass(frozen=True, kw_only=True)
class WordRecipe(Recipe):
    """All settings of a model that reads words."""

    data: WordData = field(default_factory=WordData)  # where examples come from
    text: TextSettings = field(default_factory=TextSettings)  # how text becomes tokens
    model: dict[str, Any] = field(default_factory=dict)
    reading: ReadingSettings = field(
        default_factory=ReadingSettings, metadata=with_marks("whole_name")
    )  # of --unlabelled text; only by their whole names
    training: WordTraining = field(default_factory=WordTraining)  # what has no default is chosen to suit the data
