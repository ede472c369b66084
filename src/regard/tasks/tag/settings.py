"""The recipe of taggers."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.tasks.words.settings import WordData, WordRecipe


@dataclass(frozen=True, kw_only=True)
class TagData(WordData):
    """Where tagged sentences come from."""

    columns: tuple[str, ...] = ()  # which columns, by number, are word and tag


@dataclass(frozen=True, kw_only=True)
class TagRecipe(WordRecipe):
    """All settings of a tagger."""

    data: TagData = field(default_factory=TagData)  # where examples come from
