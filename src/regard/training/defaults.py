"""Choose training settings that the user did not set, based on the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from regard.errors import RegardError
from regard.training.settings import TrainingSettings

Training = TypeVar("Training", bound=TrainingSettings)


def choose_validation_interval(epoch: int, steps: int) -> int:
    """Return the number of updates between validations, for about 30 validations in total."""
    return min(max(steps // 30, 50), 1000)


def choose_training(
    training: Training,
    data_tokens: int,
    *,
    batch_tokens: int,
    steps: Callable[[int], int],
    warmup_steps: int = 100,
    validate_every: Callable[[int, int], int] = choose_validation_interval,
    **defaults: Any,
) -> Training:
    """Fill in all settings that are None or "auto".

    Args:
        training: The settings.
        data_tokens: Number of tokens in the training data.
        batch_tokens: Default of `batch_tokens`.
        steps: Number of updates, given those of an epoch.
        warmup_steps: Number of warmup updates; at most a tenth of all updates.
        validate_every: Updates between validations, given those of an epoch and in total.
        defaults: Defaults of other settings.
    """
    training = fill_defaults(training, batch_tokens=batch_tokens)
    assert training.batch_tokens is not None
    epoch = max(1, data_tokens // (training.batch_tokens * training.gradient_accumulation))
    training = fill_defaults(
        training, steps=steps(epoch) if training.epochs is None else max(1, round(training.epochs * epoch))
    )
    assert training.steps is not None
    interval = validate_every(epoch, training.steps)
    return fill_defaults(
        training, warmup_steps=min(warmup_steps, training.steps // 10), validate_every=interval, **defaults
    )


def fill_defaults(training: Training, **defaults: Any) -> Training:
    """Replace settings that are None or "auto"."""
    missing = {name: value for name, value in defaults.items() if getattr(training, name) in (None, "auto")}
    return replace(training, **missing)


def check_metric(training: TrainingSettings, metrics: Sequence[str]) -> None:
    """Raise a `RegardError` if validation does not compute the metric."""
    if training.metric not in ("auto", *metrics):
        raise RegardError(
            f"training.metric {training.metric} is not available for this task; choose from {', '.join(metrics)}"
        )
