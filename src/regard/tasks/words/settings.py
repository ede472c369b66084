"""Settings shared by the tasks label and tag."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from regard.bounds import BatchTokens, ClosedShare, Count, LearningRate, PositiveCount, Share, SmallCount, check_bounds
from regard.recipe import Recipe
from regard.settings import make_metadata, setting
from regard.tasks.settings import CorpusSize, DataSettings, TextSettings
from regard.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class WordData(DataSettings):
    """Settings of the data."""

    corpus_size: CorpusSize = 5_000  # number of examples to generate from a built-in corpus
    vectors: str | None = setting(
        None, "path", "read_once"
    )  # pretrained word vectors: a word2vec or GloVe file, or the run of a language model
    unlabeled: str | None = setting(
        None, "path", "read_once"
    )  # unlabeled text to pretrain on: a file, or a folder of files


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """Settings of pretraining on unlabeled text, as a bidirectional language model."""

    steps: PositiveCount = 3000  # number of pretraining steps
    batch_tokens: BatchTokens = 4000  # words per batch, including padding
    learning_rate: LearningRate = 2e-3  # peak learning rate
    dropout: Share = 0.3  # dropout on input words and before the output layer
    target_words: PositiveCount = 10_000  # number of most frequent words to predict; all others count as one
    max_words: Count = 100_000  # maximum number of words to add from the unlabeled text
    labeled_repeats: SmallCount = 3  # number of passes over the labeled texts per pass over the unlabeled text

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class WordTraining(TrainingSettings):
    """Settings of training."""

    class_weights: ClosedShare = 0.0  # weight of rare labels: 0 weights all examples equally, 1 all labels equally


@dataclass(frozen=True, kw_only=True)
class WordRecipe(Recipe):
    """All settings of a classifier or tagger."""

    data: WordData = field(default_factory=WordData)  # data files
    text: TextSettings = field(default_factory=TextSettings)  # preprocessing and tokenization
    model: dict[str, Any] = field(default_factory=dict)
    pretraining: PretrainingSettings = field(
        default_factory=PretrainingSettings, metadata=make_metadata("whole_name")
    )  # pretraining on --unlabeled text; options need the prefix, as in --pretraining.steps
    training: WordTraining = field(default_factory=WordTraining)  # settings without a default are chosen from the data
