"""The learning rate of each update."""

from __future__ import annotations

import math

from regard.training.settings import TrainingSettings


def rate_at(step: int, settings: TrainingSettings) -> float:
    """The learning rate of update `step`, the first of which is 1.

    It rises in a line to its peak and then falls: by half a cosine, to a hundredth of the
    peak at the last step; or by the inverse square root of the step (Vaswani et al. 2017).
    """
    assert settings.rate is not None and settings.warmup is not None and settings.steps is not None
    warmup = max(1, settings.warmup)
    if step <= warmup:
        return settings.rate * step / warmup
    if settings.schedule == "constant":
        return settings.rate
    if settings.schedule == "inverse-sqrt":
        return settings.rate * math.sqrt(warmup / step)
    done = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
    return settings.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
