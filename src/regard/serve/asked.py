"""What a client asks of a model, as the worker of the model takes it; and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from regard.tasks.predictor import Request

Action = Literal["predict", "stream", "look"]


@dataclass(frozen=True)
class Asked:
    """What to do with a request; to look, its subject is the text, and its options are those of a look."""

    action: Action
    request: Request


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
