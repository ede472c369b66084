"""Defaults of training that suit the data, for all that the user left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from regard.errors import RegardError
from regard.training.settings import TrainingSettings

Training = TypeVar("Training", bound=TrainingSettings)


@dataclass(frozen=True, kw_only=True)
class TrainingDefaults:
    """What suits the data of a task."""

    tokens: int
    steps: Callable[[int], int]  # by the updates of an epoch
    rate: float
    warmup: int  # a tenth of the steps at the most
    validate_every: Callable[[int, int], int]  # by the updates of an epoch, and by all
    smoothing: float
    metric: str
    precision: str


def choose_training(training: Training, size: int, defaults: TrainingDefaults) -> Training:
    """Settings with nothing left open, for training data of so many tokens."""
    training = fill_in(training, tokens=defaults.tokens)
    assert training.tokens is not None
    epoch = max(1, size // (training.tokens * training.accumulate))
    training = fill_in(training, steps=defaults.steps(epoch))
    assert training.steps is not None
    return fill_in(
        training,
        rate=defaults.rate,
        warmup=min(defaults.warmup, training.steps // 10),
        validate_every=defaults.validate_every(epoch, training.steps),
        smoothing=defaults.smoothing,
        metric=defaults.metric,
        precision=defaults.precision,
    )


def fill_in(training: Training, **chosen: Any) -> Training:
    """Settings in which what is None or auto is as chosen."""
    missing = {name: value for name, value in chosen.items() if getattr(training, name) in (None, "auto")}
    return replace(training, **missing)


def thirty_times(epoch: int, steps: int) -> int:
    """Updates between validations, of which there are about thirty."""
    return min(max(steps // 30, 50), 1000)


def check_metric(training: TrainingSettings, metrics: Sequence[str]) -> None:
    """Raise a `RegardError` for a metric that validation does not find."""
    if training.metric not in ("auto", *metrics):
        raise RegardError(f"training.metric: {training.metric} is not found here; there are {', '.join(metrics)}")
