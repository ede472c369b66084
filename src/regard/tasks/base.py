"""Task: everything specific to one kind of model (pairs, text, label, tag) in one object.

Importing a task is fast: its methods import torch and the models when they are called,
so that `regard --help` stays fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.settings import format_value, parse_known_settings

if TYPE_CHECKING:
    from regard.card import Card
    from regard.models import Model
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.tasks.actions import Action
    from regard.tasks.item_scores import ItemScores
    from regard.tasks.predictor import Predictor
    from regard.training.prepared import Prepared
    from regard.training.reporter import Reporter


@dataclass(frozen=True)
class DataSizes:
    """The data section of a run's card."""

    origin: str
    train: int
    validation: int


class Task(ABC):
    """What a model is trained for: how to read its data, train it and answer with it.

    Training, the command line, the server, `look` and `explain` use this interface and know no
    task by name. `TASKS` lists all tasks.
    """

    name: ClassVar[str]  # in recipes, in the cards of runs and in `TASKS`
    description: ClassVar[str]  # what a run of this task does, for messages
    data_help: ClassVar[str]  # the data to train on, for help
    example: ClassVar[str]  # a command that trains a model
    next_command: ClassVar[str]  # a command to run after training, with {run} for the folder
    recipe: ClassVar[type[Recipe]]  # the recipe class, with one field per section
    presets: ClassVar[tuple[str, ...]]  # the models to choose from if the recipe names none
    unit: ClassVar[str]  # unit of the data: pair
    batch_unit: ClassVar[str] = "token"  # unit of a batch
    learned_unit: ClassVar[str] = "target token"  # unit of training speed
    options: ClassVar[Mapping[str, type]]
    """Option classes: of a "request", of what comes with its text ("beside"), of "look" and of "explain"."""
    actions: ClassVar[Mapping[str, type[Action]]]  # command -> its action on a run of this task
    record: ClassVar[type]  # the dataclass of an answer's record, for the server's API schema

    def claims(self, data: Mapping[str, Any]) -> bool:
        """Return whether the [data] section of a recipe, not yet checked, looks like data of this task."""
        return False

    def check_base(self, recipe: Any, base: Run, location: str) -> None:
        """Raise a `RegardError` for settings that are invalid in a run that starts from another run."""
        return

    @abstractmethod
    def prepare(self, recipe: Any, run: Run, existing_run: Run | None, device: str, reporter: Reporter) -> Prepared:
        """Read and check the data, learn the tokenizers or load those of `existing_run`, and choose unset settings."""

    def pretrain(self, run: Run, prepared: Any, model: Model, device: str, reporter: Reporter) -> None:
        """Pretrain the model, if the recipe says so."""
        return

    def clean_up(self, run: Run) -> None:
        """Remove files that a trained run no longer needs."""
        return

    def load_tokenizers(self, run: Run) -> Any:
        """Load the tokenizers of a run: source and target by default."""
        from regard.training.resume import load_tokenizers

        return load_tokenizers(run)

    @abstractmethod
    def get_predictor_class(self) -> type[Predictor[Any]]:
        """Return the predictor class of the task."""

    def score_items(self, predictor: Any, test: str | None) -> ItemScores:
        """Score a run item by item on a test file, or on new examples or its validation part, for `regard compare`."""
        raise RegardError(f"compare is not available for the task {self.name}")

    def describe(self, card: Card, run: Run) -> list[str]:
        """Return the lines of `regard inspect` about data and vocabulary."""
        sizes = parse_known_settings(DataSizes, card.get("data"), f"{run.card_file}: [data]")
        return [
            f"data: {sizes.origin}; {format_count(sizes.train, self.unit)} for training, "
            f"{sizes.validation:,} for validation",
            self.describe_vocabulary(card.get("vocabulary"), run),
        ]

    @abstractmethod
    def describe_vocabulary(self, table: Any, run: Run) -> str:
        """Return the line of `regard inspect` about the vocabulary; `table` is from the card of the run."""


def format_count(count: int | None, unit: str) -> str:
    """Format a count with its unit: 1 pair, 1,000 pairs."""
    return f"{format_value(count) if count is None else f'{count:,}'} {unit}{'' if count == 1 else 's'}"
