"""Choose training settings that the user did not set, based on the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from regard.errors import RegardError
from regard.training.settings import TrainingSettings

Training = TypeVar("Training", bound=TrainingSettings)


WIDTH, GROWTH = 2.38, 0.3
"""The width of a model of data that hold so many bits is `WIDTH * bits ** GROWTH`.

Fitted to the widths that were chosen one data set at a time, and equal to them after rounding: 128 for 0.6 million bits
(10,000 Finnish forms) and 1.2 million (20,000 sentences of toy-en-de), 256 for 3.8 million (29,000 captions of
Multi30k) and 4.0 million (the words of CMUdict).
"""

WIDTH_STEP = 64
"""Widths are multiples of this, which is what matrix products like."""

MIN_WIDTH, MAX_WIDTH = 128, 512


def count_bits(counts: ArrayLike, tokens: int) -> float:
    """Return how many bits a text holds: its tokens times their entropy.

    Args:
        counts: Count of each token, in the text or in a part of it.
        tokens: Number of tokens of the text.
    """
    array = np.asarray(counts, dtype=np.float64)
    shares = array[array > 0] / max(array.sum(), 1.0)
    return float(-(shares * np.log2(shares)).sum()) * tokens


def choose_width(bits: float) -> int:
    """Return the width of a model for data that hold so many bits."""
    width = WIDTH_STEP * round(WIDTH * bits**GROWTH / WIDTH_STEP)
    return min(max(width, MIN_WIDTH), MAX_WIDTH)


def fade(bits: float, start: float, end: float) -> float:
    """Return a share that falls from 1 at `start` to 0 at `end`, linearly in the logarithm of the bits."""
    return min(max(math.log(end / max(bits, 1.0)) / math.log(end / start), 0.0), 1.0)


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
