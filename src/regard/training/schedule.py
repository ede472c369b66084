"""Learning rate schedules."""

from __future__ import annotations

import math

from regard.training.settings import TrainingSettings


def compute_learning_rate(step: int, settings: TrainingSettings) -> float:
    """Return the learning rate of update `step`, counted from 1.

    It rises linearly to its peak and then follows the schedule: half a cosine, down to a
    hundredth of the peak; the inverse square root of the step (Vaswani et al. 2017); or constant.
    """
    assert settings.learning_rate is not None and settings.warmup_steps is not None and settings.steps is not None
    warmup = max(1, settings.warmup_steps)
    if step <= warmup:
        return settings.learning_rate * step / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    if settings.schedule == "inverse-sqrt":
        return settings.learning_rate * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
    return settings.learning_rate * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)
