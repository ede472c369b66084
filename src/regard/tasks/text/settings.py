"""The recipe of language models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from regard.recipe import Recipe
from regard.settings import check_least
from regard.tasks.settings import DataSettings, TextSettings
from regard.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class TextData(DataSettings):
    """Where text comes from."""

    documents: Literal["file", "line", "blank"] = "file"  # what a document of a text is: a file, a line, a paragraph


@dataclass(frozen=True, kw_only=True)
class TextTokens(TextSettings):
    """How text becomes tokens."""

    lowercase: bool = False  # all text


@dataclass(frozen=True, kw_only=True)
class TextTraining(TrainingSettings):
    """How a language model is trained."""

    segment: int | None = None  # tokens of a text that are read at once; those of gpt are --longest

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "segment")


@dataclass(frozen=True, kw_only=True)
class TextRecipe(Recipe):
    """All settings of a language model."""

    data: TextData = field(default_factory=TextData)  # where examples come from
    text: TextTokens = field(default_factory=TextTokens)  # how text becomes tokens
    model: dict[str, Any] = field(default_factory=dict)
    training: TextTraining = field(default_factory=TextTraining)  # what has no default is chosen to suit the data
