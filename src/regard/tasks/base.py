"""Task: all that is special to answering pairs, writing text, labelling or tagging, as one object.

Importing a task costs nothing: its methods import torch and the models when they are called,
so that `regard --help` stays fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from regard.models import Model
    from regard.recipe import Recipe
    from regard.run import Card, Run
    from regard.tasks.predictor import Predictor
    from regard.training.prepared import Prepared
    from regard.training.talk import Talk


class Task(ABC):
    """What a model learns, from the file it reads to the answer it gives.

    Everything else (training, the command line, the server, `look`, `explain`) asks the task
    and knows none by name. `TASKS` lists them.
    """

    name: ClassVar[str]  # in recipes, in the cards of runs and in `TASKS`
    does: ClassVar[str]  # "answers texts": what a run of it does, for messages
    example: ClassVar[str]  # a command that trains one
    sections: ClassVar[Mapping[str, type]]  # the sections of its recipe, each a dataclass; that of the model aside
    presets: ClassVar[tuple[str, ...]]  # the models to choose among where none is named
    actions: ClassVar[Mapping[str, type]]  # command -> the dataclass of its options for this task
    serves: ClassVar[str] = "predict"  # the action that the server's /api/predict and /api/stream carry out

    def claims(self, data: Mapping[str, Any]) -> bool:
        """Whether the [data] of a recipe, as plain values, looks like data of this task."""
        return False

    @abstractmethod
    def prepare(self, recipe: Recipe, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
        """Read and check the data, learn the tokenizers or take those of the run `home`, and choose what is not set."""

    def pretrain(self, run: Run, ready: Prepared, model: Model, device: str, talk: Talk) -> None:
        """Train the model before its main training, where the recipe asks for that."""
        return

    @abstractmethod
    def load_tokenizers(self, run: Run) -> Any:
        """The tokenizers of a run."""

    @abstractmethod
    def predictor(self, model: Any, tokenizers: Any, recipe: Recipe, card: Card, device: str) -> Predictor[Any]:
        """A trained model at work."""

    @abstractmethod
    def describe(self, card: Card, run: Run) -> list[str]:
        """The lines of `regard inspect` about data and vocabulary."""
