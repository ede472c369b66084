"""Request and response schemas of the API, as Pydantic models.

They are built from the option and answer dataclasses of the tasks; the descriptions appear in /docs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from regard.bounds import Bounds
from regard.tasks import TASKS
from regard.tasks.options import merge_options

ModelName = Annotated[
    str | None, Field(description="Name of the model, as listed by /api/models (default: the first).")
]


class RequestBody(BaseModel):
    """Fields of every request."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: ModelName = None
    text: str = Field(
        description="Input text: the source to translate, the prompt to continue, or the text to classify or tag."
    )

    def to_fields(self) -> dict[str, Any]:
        """Return the fields that were set, except `model`, with lists as tuples."""
        values = self.model_dump(exclude={"model"}, exclude_none=True)
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def build_predict_body() -> type[RequestBody]:
    """Build the body of /api/predict: a text and the request options of all tasks."""
    parts = [(name, task.options.get(part)) for name, task in TASKS.items() for part in ("request", "beside")]
    option_types = [(name, options_type) for name, options_type in parts if options_type is not None]
    return create_body_type(
        "Predict", option_types, "A text to predict. /api/models lists the options each model accepts."
    )


def build_look_body() -> type[RequestBody]:
    """Build the body of /api/look: a text and the look options of all tasks."""
    option_types = [(name, task.options["look"]) for name, task in TASKS.items()]
    return create_body_type("Look", option_types, "A text to compute the attention of.")


def create_body_type(name: str, option_types: Iterable[tuple[str, type]], description: str) -> type[RequestBody]:
    """Create a request model whose optional fields are those of the given (task, dataclass) pairs."""
    options: dict[str, Any] = {
        option_name: (build_field(option.hint, option.markdown), None)
        for option_name, option in merge_options(option_types).items()
    }
    return create_model(name, __base__=RequestBody, __doc__=description, **options)


def build_field(hint: Any, description: str) -> Any:
    """Return the annotated type of an optional field, with its bounds."""
    base_type, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = next((item for item in metadata if isinstance(item, Bounds)), Bounds())
    field = Field(
        None,
        ge=bounds.minimum,
        le=bounds.maximum,
        gt=bounds.exclusive_minimum,
        lt=bounds.exclusive_maximum,
        description=description,
    )
    return Annotated[to_json_type(base_type) | None, field]


def to_json_type(hint: Any) -> Any:
    """Convert a type hint to its JSON equivalent: lists for tuples."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(to_json_type(member) for member in get_args(hint))]  # noqa: UP007  # made at run time
    return list[get_args(hint)[0]] if get_origin(hint) is tuple else hint  # type: ignore[misc]


def build_answer_type() -> Any:
    """Build the response type of /api/predict: a union of the records of all tasks."""
    answers = [build_record_type(name, task.record) for name, task in TASKS.items()]
    return Annotated[Union[tuple(answers)], Field(discriminator="kind")]  # noqa: UP007  # made at run time


def build_record_type(task: str, record: type) -> type[BaseModel]:
    """Build the response model of one task."""
    hints: Mapping[str, Any] = get_type_hints(record)
    contents: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default) for field in fields(record)
    }
    model_fields: dict[str, Any] = {"kind": (Literal[task], ...), "model": (str, ...), **contents}
    return create_model(record.__name__, __doc__=record.__doc__, **model_fields)


class TopWeightsRecord(BaseModel):
    """The largest weights per row, their column indices, and the total weight each column receives."""

    values: list[list[list[list[float]]]]
    indices: list[list[list[list[int]]]]
    received: list[list[list[float]]]


class AttentionMapRecord(BaseModel):
    """An attention map: the weight of every column (key) for every row (query)."""

    format: Any
    title: str
    merged: Literal["tokens", "words"]
    rows: list[str]
    columns: list[str]
    links: list[tuple[int, int]] | None
    weights: list[list[list[list[float]]]] | TopWeightsRecord = Field(
        description="Indexed by layer, head, row and column."
    )
    alternatives: list[list[tuple[str, float]]] | None = None
    generated: list[float] | None = Field(None, description="For a model that copies, the probability to generate.")


class ModelInfo(BaseModel):
    """A model of the server."""

    name: str
    kind: str = Field(description="Task the model was trained for.")
    description: str = Field(description="Short description of the task.")
    preset: str
    summary: str = Field(description="Token types of the model, or its number of labels or tags.")
    parameters: int
    attention: list[str] = Field(
        description="Kinds of attention that /api/look can show; empty for a model without attention."
    )
    options: list[str] = Field(description="Options of /api/predict that the model accepts.")
    defaults: dict[str, Any] = Field(description="Defaults of options that depend on the model.")


class Limits(BaseModel):
    """Limits of the server."""

    max_bytes: int
    max_characters: int
    max_beam: int
    max_tokens: int
    timeout: float = Field(description="Seconds.")


class ModelList(BaseModel):
    """All models and the limits of the server."""

    models: list[ModelInfo]
    limits: Limits


class Health(BaseModel):
    """The status of the server."""

    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    """The models of a server that is ready."""

    status: Literal["ready"]
    models: list[str]


class ErrorResponse(BaseModel):
    """An error, as one line of text."""

    error: str
