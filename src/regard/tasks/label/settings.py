"""Settings of the task label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from regard.bounds import Length, SmallCount
from regard.tasks.words.settings import WordData, WordRecipe


@dataclass(frozen=True, kw_only=True)
class LabelData(WordData):
    """Settings of the data."""

    format: str | None = None  # file format: tsv, csv or jsonl (default: from the file name)
    columns: tuple[str, ...] = ()  # columns or keys of text and label (and second text)
    separator: str = "|"  # separator between the labels of a text; "" for one label per text
    dialogue: str | None = None  # column with the dialogue of an utterance; a blank line also ends a dialogue
    context: SmallCount = 0  # number of previous utterances of the dialogue to read with each text
    on_empty: Literal["error", "skip"] = "error"  # what to do with a pair or example with an empty part
    max_tokens: Length = 256  # truncate texts to classify to this many words


@dataclass(frozen=True, kw_only=True)
class LabelRecipe(WordRecipe):
    """All settings of a classifier."""

    data: LabelData = field(default_factory=LabelData)  # data files
