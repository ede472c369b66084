"""What a client asks of a model, as the worker of the model takes it; and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["predict", "stream", "look"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One text, and what to do with it."""

    action: Action
    text: str
    second: str | None = None  # for a classifier of pairs of texts
    context: tuple[str, ...] | None = None  # for a classifier of dialogues: the texts before, the oldest first
    settings: tuple[tuple[str, Any], ...] = ()  # names and values, as the predictor, or `look`, knows them

    @property
    def options(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(self.settings)


@dataclass(frozen=True)
class Told:
    """What the model has to say: the answer, or while it is at work what there is so far."""

    content: dict[str, Any]
    whole: bool = True


@dataclass(frozen=True)
class Failed:
    """Why there is no answer."""

    status: int
    line: str


Event = Told | Failed
