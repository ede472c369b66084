"""Predictor: a trained model at work, and Answer: what it gives, whatever its task.

The command line, the server, `look` and `explain` know these two alone. A predictor answers
requests; an answer can write itself as a record and as lines, and has its attention weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

import torch

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.models import Model
from regard.recipe import Recipe
from regard.run import Card
from regard.tasks.base import Task
from regard.tasks.options import names_of
from regard.tasks.progress import Progress

if TYPE_CHECKING:
    from regard.explaining.methods import Subject
    from regard.views.attention_map import AttentionMap

Result = TypeVar("Result")


@runtime_checkable
class Answer(Protocol):
    """What a predictor gives for one request."""

    @property
    def weights(self) -> Any:
        """The attention weights, None unless they were asked for."""

    def record(self) -> dict[str, Any]:
        """The answer as JSON has it, for `--jsonl` and for the server."""

    def lines(self, options: Any) -> list[str]:
        """The answer as `regard predict` writes it, by the options of that command."""


class Request(NamedTuple):
    """What to answer, in the form its predictor reads, and how: the request options of its task."""

    subject: Any
    options: Any


class Answering(TypedDict, total=False):
    """What every `predict` can be told."""

    return_weights: bool
    progress: Progress | None


class Part(NamedTuple):
    """A part of an answer that is still growing, as JSON has it."""

    content: dict[str, Any]


AnswerT = TypeVar("AnswerT", bound=Answer)


class Predictor(ABC, Generic[AnswerT]):
    """A trained model with its tokenizers."""

    task_name: ClassVar[str]

    def __init__(
        self, model: Model, tokenizers: Any, recipe: Recipe, card: Card, device: str | torch.device = "cpu"
    ) -> None:
        self.model: Any = model.to(device).eval()
        self.tokenizers, self.recipe, self.card, self.device = tokenizers, recipe, card, str(device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.summary}, {self.parameters:,} parameters, on {self.device})"

    @property
    def task(self) -> Task:
        """What the model was trained for."""
        from regard.tasks import TASKS

        return TASKS[self.task_name]

    @property
    def name(self) -> str:
        """The preset of the model."""
        return str(self.recipe.model["name"])

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    @abstractmethod
    def summary(self) -> str:
        """What it works with, in a few words."""

    def check_attention(self) -> None:
        """Raise a `RegardError` if the model has no attention to show."""
        if not self.model.attentions:
            raise RegardError(f"{self.name}: this model has no attention, so no weights to show")

    @abstractmethod
    def subject(self, text: str, **further: Any) -> Any:
        """What a request is about, in the form that `answer` reads, from a text and what belongs to it.

        Of `further` there is what `takes` names and the request options do not have.
        """

    @property
    def defaults(self) -> dict[str, Any]:
        """The request options that are another value than those of the dataclass unless they are set."""
        return {}

    @property
    def takes(self) -> frozenset[str]:
        """What a request may say besides its text: names of request options, and of what belongs to the text."""
        return frozenset(names_of(self.task.options["request"]))

    @abstractmethod
    def check(self, options: Any) -> None:
        """Raise a `RegardError` for request options that this model cannot answer by."""

    @abstractmethod
    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[AnswerT]:
        """Answer requests that have equal options, or at least an equal `batch_key`."""

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """Requests with equal keys can be answered together; one whose key is None cannot."""
        return request.options

    def steps(self, requests: Sequence[Request], *, streamed: bool = False) -> Iterator[list[AnswerT | Part | None]]:
        """Answer requests with an equal `batch_key` step by step: of each a part, its answer, or nothing.

        Where it is not `streamed`, nobody waits for the parts.
        """
        yield list(self.answer(requests))

    def limited(self, options: Any, subject: Any, most_tokens: int) -> Any:
        """Request or look options by which no more than `most_tokens` tokens are written for a subject."""
        return options

    @abstractmethod
    def attention_map(self, answer: Any) -> AttentionMap:
        """The weights of an answer as a record that every view draws."""

    @abstractmethod
    def look(self, text: str, options: Any) -> AttentionMap:
        """Where the model looks while it reads a text; `options` are those of its task."""

    @abstractmethod
    def explain(self, text: Any, options: Any) -> Subject:
        """What is to be explained of a text; `options` are those of its task."""

    @torch.no_grad()
    def watched(self, run: Callable[[], Result]) -> tuple[Result, Mapping[str, list[Weights]]]:
        """Run something of the model, and give with it the weights of each attention, kind -> layers."""
        with watch(self.model) as seen:
            result = run()
        attentions = self.model.attentions.items()
        return result, {
            kind: [seen.joined(path) for path in paths]
            for kind, paths in attentions
            if all(path in seen for path in paths)  # something may run a part of the model alone
        }


def as_record(answer: Answer, kind: type[Any]) -> dict[str, Any]:
    """What an answer has of the fields of a record, as JSON has it; those that are None are left out."""
    values = {each.name: getattr(answer, each.name) for each in fields(kind)}
    values = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
    return {name: value for name, value in values.items() if value is not None}


def as_texts(what: str, given: Any) -> list[str]:
    """One text or several as a list, or a `RegardError`."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise RegardError(f"{what}: found {type(given).__name__}; a text or a list of texts is needed")
    texts = list(given)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise RegardError(f"{what}: text {number} is {text!r}; a text is needed")
    return texts
