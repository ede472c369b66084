"""Settings shared by all tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from regard.bounds import Bounds, OpenShare, PositiveCount, Seed, check_bounds
from regard.errors import RegardError
from regard.recipe import Recipe
from regard.settings import setting

Kind = Literal["auto", "characters", "words", "bpe", "unigram", "bytes"]
VocabularyLimit = Annotated[int, Bounds(1, 10_000_000)]
CorpusSize = Annotated[int, Bounds(1, 10_000_000)]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Settings of the data."""

    task: str | None = None  # task to train for (default: from the model or the data)
    train: str | None = setting(
        None, "path", "origin", "may_change"
    )  # training data; the DATA argument on the command line
    validation: str | None = setting(
        None, "path", "may_change"
    )  # validation data (default: a share of the training data)
    validation_share: OpenShare = 0.05  # share of the training data to validate with, without --validation
    split_seed: Seed | None = None  # seed of the validation split and of a built-in corpus (default: --seed)
    corpus_size: CorpusSize = 20_000  # number of examples to generate from a built-in corpus
    corpus: dict[str, Any] = field(default_factory=dict)  # settings of a built-in corpus

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def has_validation(self) -> bool:
        """Whether validation data are given."""
        return self.validation is not None

    def check_train_given(self, expected: str) -> None:
        """Raise a `RegardError` if no training data are given; `expected` describes them."""
        if self.train is None:
            raise RegardError(f"data: training data are required: {expected}")


def get_split_seed(recipe: Recipe) -> int:
    """Return the seed of the validation split: its own, or that of the training."""
    seed: int = recipe.training.seed if recipe.data.split_seed is None else recipe.data.split_seed
    return seed


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Settings of tokenization."""

    tokenizer: Kind = "auto"  # kind of tokens
    vocab_size: VocabularyLimit | None = None  # size of the vocabulary (default: chosen from the data)
    min_frequency: PositiveCount = 1  # treat words or characters with a lower count as unknown

    def __post_init__(self) -> None:
        check_bounds(self)
