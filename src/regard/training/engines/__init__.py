"""Engines: implementations of one training update, and the table that maps names to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.training.engines.eager import EagerEngine
from regard.training.loss import TrainingStep
from regard.training.settings import TrainingSettings

__all__ = ["ENGINES", "EagerEngine", "Engine", "build_engine"]


@runtime_checkable
class Engine(Protocol):
    """An implementation of the training update, with all state it changes: parameters, optimizer, recurrent state."""

    model: nn.Module

    def update(self, batches: Iterable[Any], step: int, learning_rate: float) -> Float[Tensor, "3"]:
        """Make one update from some batches; return the summed loss, the gradient norm and the number of target tokens.

        Randomness depends only on the seed and the step. The result stays on the device, so
        that nothing waits for it. If the gradient norm is not finite, nothing was updated.
        """

    def evaluation_mode(self, parameters: Mapping[str, Tensor] | None = None) -> AbstractContextManager[nn.Module]:
        """Yield the model in evaluation mode, with the given parameters or else with the moving average, if any."""

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return the state by part ("model" and others); each part becomes a file of the checkpoint."""

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load a copy of what `state_dict` returned."""


ENGINES: dict[str, Callable[[TrainingStep, TrainingSettings, str], Engine]] = {"eager": EagerEngine}


def build_engine(step: TrainingStep, settings: TrainingSettings, device: str, engine: str = "eager") -> Engine:
    """Build an engine by name, to train the model of a step on a device."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    return ENGINES[engine](step, settings, device)
