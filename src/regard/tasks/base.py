"""Task: all that is special to answering pairs, writing text, labelling or tagging, as one object.

Importing a task costs nothing: its methods import torch and the models when they are called,
so that `regard --help` stays fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.settings import from_part, shown

if TYPE_CHECKING:
    from regard.models import Model
    from regard.recipe import Recipe
    from regard.run import Card, Run
    from regard.tasks.actions import Action
    from regard.tasks.predictor import Predictor
    from regard.training.prepared import Prepared
    from regard.training.talk import Talk


@dataclass(frozen=True)
class DataSizes:
    """What the card of a run says of its data."""

    origin: str
    train: int
    valid: int


class Task(ABC):
    """What a model learns, from the file it reads to the answer it gives.

    Everything else (training, the command line, the server, `look`, `explain`) asks the task
    and knows none by name. `TASKS` lists them.
    """

    name: ClassVar[str]  # in recipes, in the cards of runs and in `TASKS`
    does: ClassVar[str]  # "answers texts": what a run of it does, for messages
    reads: ClassVar[str]  # what can be trained on, for help
    example: ClassVar[str]  # a command that trains one
    next_step: ClassVar[str]  # a command to go on with after training; {run} stands for the folder
    recipe: ClassVar[type[Recipe]]  # the dataclass of its recipe, a field for each section
    presets: ClassVar[tuple[str, ...]]  # the models to choose among where none is named
    unit: ClassVar[str]  # what its data are counted in: pair
    batch_unit: ClassVar[str] = "token"  # what its batches are counted in
    learnt_unit: ClassVar[str] = "target token"  # what is counted while it learns
    options: ClassVar[Mapping[str, type]]
    """Dataclasses of what can be said in a "request", "beside" its text (if anything), to "look" and to "explain"."""
    actions: ClassVar[Mapping[str, type[Action]]]  # command -> what it does with a run of this task
    record: ClassVar[type]  # the dataclass of an answer's record, for the server's description of itself

    def claims(self, data: Mapping[str, Any]) -> bool:
        """Whether the [data] of a recipe, as plain values that nobody has checked, looks like data of this task."""
        return False

    def check_base(self, recipe: Any, base: Run, where: str) -> None:
        """Raise a `RegardError` for settings that make no sense in a run that starts from another."""
        return

    @abstractmethod
    def prepare(self, recipe: Any, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
        """Read and check the data, learn the tokenizers or take those of the run `home`, and choose what is not set."""

    def pretrain(self, run: Run, ready: Any, model: Model, device: str, talk: Talk) -> None:
        """Train the model before its main training, where the recipe asks for that."""
        return

    def clean_up(self, run: Run) -> None:
        """Remove what a run has no use for once it is trained."""
        return

    def load_tokenizers(self, run: Run) -> Any:
        """The tokenizers of a run: of source and target, unless a task has others."""
        from regard.training.going_on import tokenizers_of

        return tokenizers_of(run)

    @abstractmethod
    def predictor_class(self) -> type[Predictor[Any]]:
        """What a trained model works as."""

    def describe(self, card: Card, run: Run) -> list[str]:
        """The lines of `regard inspect` about data and vocabulary."""
        sizes = from_part(DataSizes, card.get("data"), f"{run.card_file}: [data]")
        return [
            f"data: {sizes.origin}; {count_of(sizes.train, self.unit)} to train on, {sizes.valid:,} to validate with",
            self.describe_vocabulary(card.get("vocabulary"), run),
        ]

    @abstractmethod
    def describe_vocabulary(self, table: Any, run: Run) -> str:
        """The line of `regard inspect` about the vocabulary, of which the card of the run has this table."""


def count_of(count: int | None, what: str) -> str:
    """How many there are, in words: 1 pair, 1,000 pairs."""
    return f"{shown(count) if count is None else f'{count:,}'} {what}{'' if count == 1 else 's'}"
