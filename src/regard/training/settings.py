"""Training settings shared by all tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError
from regard.settings import check_minimum, setting

Metric = Literal["auto", "exact", "bleu", "chrf", "loss", "accuracy", "f1", "macro_f1"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training settings shared by all tasks; those that are None are chosen from the data and logged."""

    steps: int | None = setting(None, "may_change")  # maximum number of updates
    epochs: float | None = setting(None, "may_change")  # passes over the training data, instead of steps
    batch_tokens: int | None = None  # maximum tokens per batch, padding included; for pairs, on the longer side
    gradient_accumulation: int = 1  # number of batches per update
    learning_rate: float | None = None  # peak learning rate
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"  # learning rate schedule after the warmup
    warmup_steps: int | None = None  # number of updates until the peak learning rate
    weight_decay: float = 0.01  # weight decay of AdamW, not applied to biases and norms
    betas: tuple[float, ...] = (0.9, 0.98)  # betas of AdamW
    max_grad_norm: float = 1.0  # clip gradients to this norm; 0 disables clipping
    label_smoothing: float | None = None  # label smoothing; the default is 0.1 for pairs and single labels, else 0
    validate_every: int | None = None  # number of updates between validations
    metric: Metric = "auto"  # validation metric that selects the best model
    patience: int = setting(10, "may_change")  # stop after this many validations without improvement; 0 never stops
    average_checkpoints: int = setting(0, "may_change")  # average this many last checkpoints at the end; 0 disables it
    ema_decay: float = 0.0  # decay of the moving average of the parameters (EMA) that is saved; 0 disables it
    precision: Precision = "auto"  # auto: bfloat16 for a Transformer on a GPU, else float32
    compile: bool = False  # compile the training step with torch.compile
    deterministic: bool = False  # use deterministic algorithms, which are slower on a GPU
    tensorboard: bool = False  # also write TensorBoard events
    seed: int = 0  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "steps", "batch_tokens", "gradient_accumulation", "validate_every")
        check_minimum(
            self, 0, "warmup_steps", "patience", "average_checkpoints", "max_grad_norm", "weight_decay", "seed"
        )
        if self.seed >= 2**32:
            raise RegardError(f"seed must be at most {2**32 - 1}, got {self.seed}")
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise RegardError(f"epochs must be above 0, got {self.epochs}")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise RegardError(f"learning_rate must be above 0, got {self.learning_rate}")
        for name in ("label_smoothing", "ema_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise RegardError(f"{name} must be at least 0 and below 1, got {value}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise RegardError(f"betas must be 2 numbers, each at least 0 and below 1, got {list(self.betas)}")
