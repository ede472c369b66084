"""Everything training needs, prepared by a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.card import Card
from regard.recipe import Recipe
from regard.training.loop import Batches, Validate
from regard.training.loss import TrainingStep


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Data and settings of a training run, with all defaults filled in."""

    recipe: Recipe
    tokenizers: Any
    batches: Batches
    validate: Validate
    step: Callable[[Any, float], TrainingStep]  # a model and its label smoothing -> the model with its loss
    first_batch: Any  # an example batch, as input of the model
    max_length: int = 0  # the number of positions the longest text needs
    data: Card  # the data entry of the run's card, with the checksum `sha256`
    batch_unit: str  # the unit of the batch size: tokens, tokens a side, words
    summary: str  # the amount of training data, in words

    def initialize(self, model: Any) -> None:
        """Initialize parameters of a new model that are known in advance."""
        return
