"""The recipe of classifiers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from regard.tasks.words.settings import WordData, WordRecipe


@dataclass(frozen=True, kw_only=True)
class LabelData(WordData):
    """Where labelled texts come from."""

    format: str | None = None  # tsv, csv, jsonl; by the name of the file unless set
    columns: tuple[str, ...] = ()  # which columns or keys are text and label
    separator: str = "|"  # between several labels of a text; "" takes all of it for one
    dialogue: str | None = None  # the column that names the dialogue of an utterance; a blank line ends one, too
    context: int = 0  # utterances before, of its dialogue, that a text to label is read with
    empty: Literal["error", "skip"] = "error"  # what to do with a pair or example of which a part is empty
    most_tokens: int = 256  # of longer texts to label so many words are read


@dataclass(frozen=True, kw_only=True)
class LabelRecipe(WordRecipe):
    """All settings of a classifier."""

    data: LabelData = field(default_factory=LabelData)  # where examples come from
