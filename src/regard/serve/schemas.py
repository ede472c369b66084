"""What clients send and get, as JSON; the descriptions are those of the interface's own pages.

The tasks say what can be sent and what an answer has, in dataclasses; the parser's models are made of these here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from regard.settings import Between
from regard.tasks import TASKS
from regard.tasks.options import merge_options

Model = Annotated[str | None, Field(description="The name of a model, as /api/models gives it; the first unless set.")]


class Asking(BaseModel):
    """What every request has."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Model = None
    text: str = Field(description="The text: a source, a prompt, or what is labelled or tagged.")

    def sent(self) -> dict[str, Any]:
        """What was set, lists as tuples; the model aside."""
        values = self.model_dump(exclude={"model"}, exclude_none=True)
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def predict_model() -> type[Asking]:
    """A text to answer, with the request options of all tasks."""
    parts = [(name, task.options.get(part)) for name, task in TASKS.items() for part in ("request", "beside")]
    kinds = [(name, kind) for name, kind in parts if kind is not None]
    return asking("Predict", kinds, "A text to answer. Which settings a model takes, /api/models lists.")


def look_model() -> type[Asking]:
    """A text to look at a model with, with the look options of all tasks."""
    kinds = [(name, task.options["look"]) for name, task in TASKS.items()]
    return asking("Look", kinds, "A text to look at a model with.")


def asking(name: str, kinds: Iterable[tuple[str, type]], description: str) -> type[Asking]:
    """A model of requests that may set the fields of some dataclasses, each of a task."""
    options: dict[str, Any] = {
        each: (setting(option.hint, option.meaning), None) for each, option in merge_options(kinds).items()
    }
    return create_model(name, __base__=Asking, __doc__=description, **options)


def setting(hint: Any, description: str) -> Any:
    """The type of a setting, which may be left out, with its bounds."""
    plain, *remarks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = next((each for each in remarks if isinstance(each, Between)), Between())
    field = Field(None, ge=bounds.least, le=bounds.greatest, gt=bounds.above, description=description)
    return Annotated[as_sent(plain) | None, field]


def as_sent(hint: Any) -> Any:
    """A type as JSON has it: lists for tuples."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(as_sent(each) for each in get_args(hint))]  # noqa: UP007  # made at run time
    return list[get_args(hint)[0]] if get_origin(hint) is tuple else hint  # type: ignore[misc]


def answer_model() -> Any:
    """An answer of any task: its record, which model gave it, and of which kind that is."""
    answers = [record_model(name, task.record) for name, task in TASKS.items()]
    return Annotated[Union[tuple(answers)], Field(discriminator="kind")]  # noqa: UP007  # made at run time


def record_model(task: str, record: type) -> type[BaseModel]:
    """The record of a task's answers."""
    hints: Mapping[str, Any] = get_type_hints(record)
    contents: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is MISSING else each.default) for each in fields(record)
    }
    whole: dict[str, Any] = {"kind": (Literal[task], ...), "model": (str, ...), **contents}
    return create_model(record.__name__, __doc__=record.__doc__, **whole)


class TopWeights(BaseModel):
    """The largest weights of each row, by layer and head; the columns they lead to; and what every column gets."""

    values: list[list[list[list[float]]]]
    indices: list[list[list[list[int]]]]
    received: list[list[list[float]]]


class Map(BaseModel):
    """An attention map: how much every row (who looks) looks at every column (what is looked at)."""

    format: Any
    title: str
    merged: Literal["tokens", "words"]
    rows: list[str]
    columns: list[str]
    links: list[tuple[int, int]] | None
    weights: list[list[list[list[float]]]] | TopWeights = Field(description="By layer, head, row and column.")
    alternatives: list[list[tuple[str, float]]] | None = None


class About(BaseModel):
    """A model of this server."""

    name: str
    kind: str = Field(description="The task that it was trained for.")
    does: str = Field(description="What it does with a text, in words.")
    preset: str
    summary: str = Field(description="What it works with: its kinds of tokens, or how many labels or tags it has.")
    parameters: int
    attention: list[str] = Field(description="The kinds of attention that can be looked at; none where it has none.")
    options: list[str] = Field(description="The settings of /api/predict that it takes.")
    defaults: dict[str, Any] = Field(description="What settings are unless they are set, where the model decides.")


class Limits(BaseModel):
    """The most that may be asked for."""

    bytes: int
    characters: int
    beam: int
    tokens: int
    seconds: float


class Models(BaseModel):
    """All models, and what may be asked of them."""

    models: list[About]
    limits: Limits


class Health(BaseModel):
    """Whether the server works."""

    status: Literal["ok"]
    version: str


class Refusal(BaseModel):
    """Why there is no answer, in one line."""

    error: str
