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
    beside: tuple[tuple[str, Any], ...] = ()  # names and values of what belongs to the text
    options: Any = None  # how to answer or look: a dataclass of the model's task


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
