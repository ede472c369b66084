"""Requests to a worker, and the events it sends back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from regard.tasks.predictor import Request

ActionName = Literal["predict", "stream", "look"]


@dataclass(frozen=True)
class ServerRequest:
    """A request to predict, stream or look. For a look, the options are the look options of the task."""

    action: ActionName
    request: Request


@dataclass(frozen=True)
class Event:
    """The answer, or a partial result (`final` is False)."""

    content: dict[str, Any]
    final: bool = True
    tokens: int = 0  # generated tokens of the answer


@dataclass(frozen=True)
class Failure:
    """An error: its HTTP status and message."""

    status: int
    line: str


WorkerEvent = Event | Failure
