"""What clients send and get, as JSON; the descriptions are those of the interface's own pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.predictor import LONGEST, WIDEST
from regard.text_predictor import MOST_TOKENS

Model = Annotated[str | None, Field(description="The name of a model, as /api/models gives it; the first unless set.")]
Beam = Annotated[int, Field(ge=1, le=WIDEST)]


class Asking(BaseModel):
    """What every request has."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Model = None
    text: str = Field(description="The text: a source, a prompt, or what is labelled or tagged.")
    second: str | None = Field(None, description="For a classifier of pairs, the second text.")
    context: list[str] | None = Field(None, description="For a classifier of dialogues, the texts before.")


class Predict(Asking):
    """A text to answer. Which settings there are depends on the model; /api/models lists them."""

    beam: Beam | None = Field(None, description="Hypotheses kept at each step; 1 is greedy.")
    nbest: Beam | None = Field(None, description="How many answers to give, the best first.")
    length_penalty: float | None = Field(None, ge=0, le=100, description="0 prefers short targets.")
    longest: int | None = Field(None, ge=1, le=LONGEST, description="Tokens of a target at the most.")
    tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="Tokens to write at the most.")
    temperature: float | None = Field(None, gt=0, le=1000, description="Below 1 the probable becomes more probable.")
    top_k: int | None = Field(None, ge=1, le=10**9, description="Draw from so many most probable tokens only.")
    top_p: float | None = Field(None, gt=0, le=1, description="Draw from the fewest tokens that have this share.")
    greedy: bool | None = Field(None, description="Always take the most probable token.")
    seed: int | None = Field(None, ge=0, lt=2**32, description="The same seed gives the same text.")
    threshold: float | None = Field(None, ge=0, le=1, description="Of several labels, how probable they must be.")


class Look(Asking):
    """A text to look at a model with."""

    target: str | None = Field(None, description="Look at how this target is read, not at what the model writes.")
    words: bool = Field(True, description="Merge tokens to words.")
    kind: Literal["cross", "encoder", "decoder", "self", "pooling"] | None = Field(
        None, description="Which attention, of those that /api/models lists; the first unless set."
    )
    top: int | None = Field(None, ge=1, le=10**6, description="Give only so many weights of each row, the largest.")


class Scored(BaseModel):
    """A text and the logarithm of its probability."""

    text: str
    log_probability: float


class Ranked(BaseModel):
    """A label and its probability."""

    label: str
    probability: float


class Span(BaseModel):
    """Words from the first to the last, and what they are."""

    type: str
    first: int
    last: int


class Translation(Scored):
    """The target of a source; both sides end in <eos>."""

    kind: Literal["pairs"]
    model: str
    source_tokens: list[str]
    target_tokens: list[str]
    alternatives: list[Scored]


class Continuation(Scored):
    """What a language model wrote after a prompt; the tokens are those of both, behind <bos>."""

    kind: Literal["text"]
    model: str
    ended: bool
    tokens: list[str]
    alternatives: list[Scored]


class Labels(BaseModel):
    """The labels of a text."""

    kind: Literal["label"]
    model: str
    labels: list[str]
    ranked: list[Ranked]
    words: list[str]


class Tags(BaseModel):
    """The tags of the words of a text."""

    kind: Literal["tag"]
    model: str
    words: list[str]
    tags: list[str]
    probabilities: list[float]
    spans: list[Span]


Answer = Annotated[Translation | Continuation | Labels | Tags, Field(discriminator="kind")]


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
    kind: Literal["pairs", "text", "label", "tag"]
    preset: str
    parameters: int
    attention: list[str] = Field(description="The kinds of attention that can be looked at; none where it has none.")
    options: list[str] = Field(description="The settings of /api/predict that it takes.")
    beam: int | None = Field(description="How wide a translator searches unless told otherwise.")
    labels: int | None = Field(description="How many labels a classifier tells apart.")


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
