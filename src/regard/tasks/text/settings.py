"""Settings of the task text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from regard.bounds import Length
from regard.data.corpora import CORPORA
from regard.recipe import Recipe
from regard.tasks.settings import CorpusSize, DataSettings, TextSettings
from regard.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class TextData(DataSettings):
    """Settings of the data."""

    corpus_size: CorpusSize = 5_000  # number of examples to generate from a built-in corpus
    documents: Literal["file", "line", "paragraph"] = "file"  # unit of text to treat as a document

    @property
    def document_unit(self) -> Literal["file", "line", "paragraph"]:
        """The unit of text that is a document: in a built-in corpus every example, otherwise `documents`."""
        return "line" if self.train in CORPORA else self.documents


@dataclass(frozen=True, kw_only=True)
class TextTokens(TextSettings):
    """Settings of preprocessing and tokenization."""

    normal_form: Literal["none", "nfc", "nfkc"] = "none"  # Unicode normal form of the text
    lowercase: bool = False  # lowercase all text


@dataclass(frozen=True, kw_only=True)
class TextTraining(TrainingSettings):
    """Settings of training."""

    segment_length: Length | None = None  # tokens per segment of text; for gpt, set --context-length instead


@dataclass(frozen=True, kw_only=True)
class TextRecipe(Recipe):
    """All settings of a language model."""

    data: TextData = field(default_factory=TextData)  # data files
    text: TextTokens = field(default_factory=TextTokens)  # preprocessing and tokenization
    model: dict[str, Any] = field(default_factory=dict)
    training: TextTraining = field(default_factory=TextTraining)  # settings without a default are chosen from the data
