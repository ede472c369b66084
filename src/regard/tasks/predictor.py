"""Predictor and Answer: the interface of trained models, the same for every task.

The command line, the server, `look` and `explain` use only these two. A predictor answers
requests; an answer has attention weights and can be formatted as a record or as lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

import torch

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.card import Card
from regard.errors import RegardError
from regard.maps.options import check_not_empty
from regard.models import Model
from regard.recipe import Recipe
from regard.tasks.base import Task
from regard.tasks.options import get_field_names
from regard.tasks.progress import Progress

if TYPE_CHECKING:
    from regard.attribution.explanation import Explanation
    from regard.attribution.methods import Subject
    from regard.views.attention_map import AttentionMap
    from regard.views.head_scores import HeadScores

Result = TypeVar("Result")


@runtime_checkable
class Answer(Protocol):
    """The answer of a predictor to one request."""

    @property
    def weights(self) -> Any:
        """The attention weights, or None if they were not requested."""

    def record(self) -> dict[str, Any]:
        """Return the answer as a JSON object, for `--jsonl` and the server."""

    def lines(self, options: Any) -> list[str]:
        """Return the answer as `regard predict` prints it; `options` are those of the command."""


class Request(NamedTuple):
    """The input of a predictor, and the request options of its task."""

    input: Any
    options: Any


class PredictOptions(TypedDict, total=False):
    """The options of every `predict` method."""

    return_weights: bool
    progress: Progress | None


class PartialAnswer(NamedTuple):
    """A part of an unfinished answer, as a JSON object."""

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
        """The task of the model."""
        from regard.tasks import TASKS

        return TASKS[self.task_name]

    @property
    def name(self) -> str:
        """The preset name of the model; of an ensemble, also the number of its members."""
        name = str(self.recipe.model["name"])
        return f"{name} x {len(self.model.members)}" if self.is_ensemble else name

    @property
    def is_ensemble(self) -> bool:
        """Whether the model averages several."""
        from regard.models.ensemble import Ensemble

        return isinstance(self.model, Ensemble)

    @property
    def attentions(self) -> Mapping[str, Sequence[str]]:
        """The kinds of attention of the model, each with the paths of its modules."""
        attentions: Mapping[str, Sequence[str]] = self.model.attentions
        return attentions

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    @abstractmethod
    def summary(self) -> str:
        """A short description of its tokens or labels, for `repr`."""

    def check_attention(self) -> None:
        """Raise a `RegardError` if the model has no attention to show."""
        if not self.model.attentions:
            raise RegardError(f"{self.name} has no attention weights to show")

    @abstractmethod
    def build_input(self, text: str, **further: Any) -> Any:
        """Build the input of a request from a text and its extra fields, such as a second text.

        `further` has the names in `accepted_options` that are not request options.
        """

    @property
    def default_options(self) -> dict[str, Any]:
        """Defaults of request options that differ from those of the option class."""
        return {}

    @property
    def accepted_options(self) -> frozenset[str]:
        """The names of request options and extra fields that the model accepts."""
        return frozenset(get_field_names(self.task.options["request"]))

    @abstractmethod
    def check(self, options: Any) -> None:
        """Raise a `RegardError` for request options that the model does not support."""

    @abstractmethod
    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[AnswerT]:
        """Answer requests with equal options, or at least an equal `batch_key`."""

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """Return a key for batching: requests with equal keys are answered together, those with None alone."""
        return request.options

    def answer_in_steps(
        self, requests: Sequence[Request], *, streamed: bool = False
    ) -> Iterator[list[AnswerT | PartialAnswer | None]]:
        """Answer requests with an equal `batch_key` step by step.

        Each step yields, for each request, a part of its answer, the answer, or None. Parts are used only
        if `streamed`.
        """
        yield list(self.answer(requests))

    def limit_tokens(self, options: Any, input_: Any, max_tokens: int) -> Any:
        """Return request or look options that limit the output to `max_tokens` tokens."""
        return options

    @abstractmethod
    def attention_map(self, answer: Any) -> AttentionMap:
        """Return the weights of an answer as an attention map."""

    def look(self, text: str, options: Any = None) -> AttentionMap:
        """Return the attention map of a text; `options` are the look options of the task."""
        if not isinstance(text, str):
            raise RegardError(f"look: expected a string, got {type(text).__name__}")
        return self.build_map(check_not_empty(text), self.task.options["look"]() if options is None else options)

    @abstractmethod
    def build_map(self, text: str, options: Any) -> AttentionMap:
        """Return the attention map of a text; `options` are the look options of the task."""

    def explain(self, text: Any, options: Any = None) -> Explanation:
        """Return how much each word of a text matters; `options` are the explain options of the task."""
        from regard.attribution.methods import explain_subject

        if self.is_ensemble:
            raise RegardError("explain: an ensemble cannot be explained; pass one of its runs")
        return explain_subject(self.build_subject(text, self.task.options["explain"]() if options is None else options))

    @abstractmethod
    def build_subject(self, text: Any, options: Any) -> Subject:
        """Return the prediction to explain for a text; `options` are the explain options of the task."""

    def heads(self, text: Any, queries: int | None = None) -> HeadScores:
        """Measure the heads of the model while it reads a text; see `regard.heads`."""
        raise RegardError(f"heads: {self.name} is not a language model; regard.look shows its attention")

    @torch.no_grad()
    def run_watched(self, run: Callable[[], Result]) -> tuple[Result, Mapping[str, list[Weights]]]:
        """Run a function, and return its result and the recorded weights: attention kind -> layers."""
        with watch(self.model) as recorded:
            result = run()
        attentions = self.model.attentions.items()
        return result, {
            kind: [recorded.join_steps(path) for path in paths]
            for kind, paths in attentions
            if all(path in recorded for path in paths)  # the function may run only a part of the model
        }


def build_record(answer: Answer, kind: type[Any]) -> dict[str, Any]:
    """Build the record of an answer as a JSON object, without fields that are None."""
    values = {field.name: getattr(answer, field.name) for field in fields(kind)}
    values = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
    return {name: value for name, value in values.items() if value is not None}


def as_texts(caller: str, value: Any) -> list[str]:
    """Return one or several texts as a list; raise a `RegardError` for other types."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise RegardError(f"{caller}: expected a string or a list of strings, got {type(value).__name__}")
    texts = list(value)
    for index, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise RegardError(f"{caller}: text {index}: expected a string, got {type(text).__name__}")
    return texts
