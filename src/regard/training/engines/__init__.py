"""Engines: ways to make one update of the parameters, and the one table where they meet their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.training.engines.eager import Eager
from regard.training.loss import TrainingStep
from regard.training.settings import TrainingSettings

__all__ = ["ENGINES", "Eager", "Engine", "new_engine"]


@runtime_checkable
class Engine(Protocol):
    """Makes updates, and owns all that an update changes: parameters, the optimizer's memory, what is carried on."""

    model: nn.Module

    def update(self, batches: Iterable[Any], step: int, rate: float) -> Float[Tensor, "3"]:
        """Make one update from some batches; return its summed loss, the norm of its gradient, and its target tokens.

        What is random depends on the seed and the step's number alone. Nothing here waits for the device: what is
        returned lies there, and its gradient may not have been finite, in which case nothing was changed.
        """

    def evaluating(self, parameters: Mapping[str, Tensor] | None = None) -> AbstractContextManager[nn.Module]:
        """Give the model as it is validated and written: with its averaged parameters if any, or with those given."""

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All that the next update depends on, by part: a file of a checkpoint each, `model` among them."""

    def restore(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take over a copy of what `state` gave."""


ENGINES: dict[str, Callable[[TrainingStep, TrainingSettings, str], Engine]] = {"eager": Eager}


def new_engine(step: TrainingStep, settings: TrainingSettings, device: str, engine: str = "eager") -> Engine:
    """An engine by its name, which trains the model of a step on a device."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    return ENGINES[engine](step, settings, device)
