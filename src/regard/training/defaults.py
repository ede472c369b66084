"""Defaults of training that suit the data, for all that the user left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from regard.errors import RegardError
from regard.training.settings import TrainingSettings

Training = TypeVar("Training", bound=TrainingSettings)


def thirty_times(epoch: int, steps: int) -> int:
    """Updates between validations, of which there are about thirty."""
    return min(max(steps // 30, 50), 1000)


def choose_training(
    training: Training,
    size: int,
    *,
    tokens: int,
    steps: Callable[[int], int],
    warmup: int = 100,
    validate_every: Callable[[int, int], int] = thirty_times,
    **chosen: Any,
) -> Training:
    """Settings with nothing left open.

    Args:
        training: The settings.
        size: Tokens of the training data.
        tokens: Of a batch.
        steps: Updates, by those of an epoch.
        warmup: Updates; a tenth of all at the most.
        validate_every: Updates between validations, by those of an epoch and all.
        chosen: The other settings, by name.
    """
    training = fill_in(training, tokens=tokens)
    assert training.tokens is not None
    epoch = max(1, size // (training.tokens * training.accumulate))
    training = fill_in(training, steps=steps(epoch))
    assert training.steps is not None
    every = validate_every(epoch, training.steps)
    return fill_in(training, warmup=min(warmup, training.steps // 10), validate_every=every, **chosen)


def fill_in(training: Training, **chosen: Any) -> Training:
    """Settings in which what is None or auto is as chosen."""
    missing = {name: value for name, value in chosen.items() if getattr(training, name) in (None, "auto")}
    return replace(training, **missing)


def check_metric(training: TrainingSettings, metrics: Sequence[str]) -> None:
    """Raise a `RegardError` for a metric that validation does not find."""
    if training.metric not in ("auto", *metrics):
        raise RegardError(f"training.metric: {training.metric} is not found here; there are {', '.join(metrics)}")
