"""Prepared: everything that training needs, settled, whatever is trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.recipe import Recipe
from regard.run import Card
from regard.training.loop import Batches, Validate
from regard.training.loss import TrainingStep


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Data and settings, with nothing left open."""

    recipe: Recipe
    tokenizers: Any
    batches: Batches
    validate: Validate
    step: Callable[[Any, float], TrainingStep]  # a model and its label smoothing -> the model with its loss
    first: Any  # a batch as the model takes it
    longest: int = 0  # the most places that any text needs
    data: Card  # what the run's card says of the data, their checksum `sha256` among it
    each: str  # what a batch is counted in: tokens, tokens a side, words
    amount: str  # how much there is to train on, in words

    def initialise(self, model: Any) -> None:
        """Set those parameters of a new model that are known already."""
        return
