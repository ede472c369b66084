"""How a model is trained, whatever it learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError
from regard.settings import check_least, setting


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Everything about training that all tasks have; what is None is chosen to suit the data, and said."""

    steps: int | None = setting(None, "may_change")  # updates at the most
    tokens: int | None = None  # places of a batch on its longer side, padding included
    accumulate: int = 1  # batches for one update
    rate: float | None = None  # learning rate at its peak
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"  # what follows the warm-up
    warmup: int | None = None  # updates until the peak
    weight_decay: float = 0.01  # on matrices alone
    betas: tuple[float, ...] = (0.9, 0.98)  # of AdamW
    clip: float = 1.0  # the greatest norm of the gradient; 0 clips nothing
    smoothing: float | None = None  # label smoothing; 0.1 for pairs and for single labels, else none, unless set
    validate_every: int | None = None  # updates between validations
    metric: Literal["auto", "exact", "bleu", "chrf", "loss", "accuracy", "f1", "macro_f1"] = "auto"  # what is best
    patience: int = setting(10, "may_change")  # validations without a better one before training stops; 0 never stops
    average: int = setting(0, "may_change")  # checkpoints whose mean is tried at the end
    ema: float = 0.0  # decay of a moving average of the parameters that is used in their place; 0 has none
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 for a Transformer on a GPU
    compile: bool = False  # torch.compile the step
    deterministic: bool = False  # on a GPU too, the same bits each time
    tensorboard: bool = False  # write events for TensorBoard too
    seed: int = 0  # of everything that is random

    def __post_init__(self) -> None:
        check_least(self, 1, "steps", "tokens", "accumulate", "validate_every")
        check_least(self, 0, "warmup", "patience", "average", "clip", "weight_decay", "seed")
        if self.seed >= 2**32:
            raise RegardError(f"seed is {self.seed}; {2**32 - 1} is the greatest")
        if self.rate is not None and not self.rate > 0:
            raise RegardError(f"rate is {self.rate}; a number above 0 is needed")
        for name in ("smoothing", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise RegardError(f"{name} is {value}; a number from 0 to below 1 is needed")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise RegardError(f"betas are {list(self.betas)}; two numbers from 0 to below 1 are needed")
