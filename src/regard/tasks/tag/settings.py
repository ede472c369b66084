"""Settings of the task tag."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.tasks.words.settings import WordData, WordRecipe


@dataclass(frozen=True, kw_only=True)
class TagData(WordData):
    """Settings of the data."""

    columns: tuple[str, ...] = ()  # numbers of the columns of word and tag, from 1


@dataclass(frozen=True, kw_only=True)
class TagRecipe(WordRecipe):
    """All settings of a tagger."""

    data: TagData = field(default_factory=TagData)  # data files
