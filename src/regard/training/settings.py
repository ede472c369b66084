"""Training settings shared by all tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.bounds import (
    BatchTokens,
    Bounds,
    Count,
    Epochs,
    LearningRate,
    PositiveCount,
    Seed,
    Share,
    SmallCount,
    check_bounds,
)
from regard.errors import RegardError
from regard.settings import setting

Metric = Literal["auto", "exact", "bleu", "chrf", "loss", "accuracy", "f1", "macro_f1"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training settings shared by all tasks; those that are None are chosen from the data and logged."""

    steps: PositiveCount | None = setting(None, "may_change")  # maximum number of updates
    epochs: Epochs | None = setting(None, "may_change")  # passes over the training data, instead of steps
    batch_tokens: BatchTokens | None = None  # maximum tokens per batch, padding included; for pairs, on the longer side
    gradient_accumulation: Annotated[int, Bounds(1, 100_000)] = 1  # number of batches per update
    learning_rate: LearningRate | None = None  # peak learning rate
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"  # learning rate schedule after the warmup
    warmup_steps: Count | None = None  # number of updates until the peak learning rate
    weight_decay: Annotated[float, Bounds(0, 10)] = 0.01  # weight decay of AdamW, not applied to biases and norms
    betas: tuple[Share, ...] = (0.9, 0.98)  # betas of AdamW
    max_grad_norm: Annotated[float, Bounds(0, 1_000_000_000)] = 1.0  # clip gradients to this norm; 0 disables clipping
    label_smoothing: Share | None = None  # label smoothing; the default is 0.1 for pairs and single labels, else 0
    validate_every: PositiveCount | None = None  # number of updates between validations
    metric: Metric = "auto"  # validation metric that selects the best model
    patience: Count = setting(10, "may_change")  # stop after this many validations without improvement; 0 never stops
    average_checkpoints: SmallCount = setting(
        0, "may_change"
    )  # average this many last checkpoints at the end; 0 disables it
    ema_decay: Share = 0.0  # decay of the moving average of the parameters (EMA) that is saved; 0 disables it
    precision: Precision = "auto"  # auto: bfloat16 for a Transformer on a GPU, else float32
    compile: bool = False  # compile the training step with torch.compile
    deterministic: bool = False  # use deterministic algorithms, which are slower on a GPU
    tensorboard: bool = False  # also write TensorBoard events
    seed: Seed = 0  # random seed

    def __post_init__(self) -> None:
        check_bounds(self)
        if len(self.betas) != 2:
            raise RegardError(f"betas must be 2 numbers, got {list(self.betas)}")
