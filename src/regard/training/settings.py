"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """How unlabelled text is read before labels or tags are learnt: as by a language model, in both directions."""

    steps: int = 3000  # updates
    tokens: int = 4000  # words of a batch, padding included
    rate: float = 2e-3  # learning rate at its peak
    dropout: float = 0.3  # on words as they come in, and on the states that tell their neighbours
    targets: int = 10_000  # the commonest words, which are told; all others are told as one
    words: int = 100_000  # the most words that are known only from the unlabelled text
    repeats: int = 3  # how often the labelled texts are read while the unlabelled text is read once

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "targets"):
            if getattr(self, name) < 1:
                raise RegardError(f"{name} is {getattr(self, name)}; 1 is the least")
        for name in ("words", "repeats"):
            if getattr(self, name) < 0:
                raise RegardError(f"{name} is {getattr(self, name)}; 0 is the least")
        if not self.rate > 0:
            raise RegardError(f"rate is {self.rate}; a number above 0 is needed")
        if not 0 <= self.dropout < 1:
            raise RegardError(f"dropout is {self.dropout}; a share from 0 to below 1 is needed")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Everything about training; what is None is chosen to suit the data, and said."""

    steps: int | None = None  # updates at the most
    tokens: int | None = None  # places of a batch on its longer side, padding included
    accumulate: int = 1  # batches for one update
    rate: float | None = None  # learning rate at its peak
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"  # what follows the warm-up
    warmup: int | None = None  # updates until the peak
    weight_decay: float = 0.01  # on matrices alone
    betas: tuple[float, ...] = (0.9, 0.98)  # of AdamW
    clip: float = 1.0  # the greatest norm of the gradient; 0 clips nothing
    segment: int | None = None  # tokens of a text that are read at once; those of gpt are --longest
    smoothing: float | None = None  # label smoothing; 0.1 for pairs and for single labels, else none, unless set
    class_weights: float = 0.0  # from 0, where all examples count alike, to 1, where rare labels count as much in all
    validate_every: int | None = None  # updates between validations
    validate_most: int = 1000  # examples that are decoded in a validation
    metric: Literal["auto", "exact", "bleu", "chrf", "loss", "accuracy", "f1", "macro_f1"] = "auto"  # what is best
    patience: int = 10  # validations without a better one before training stops; 0 never stops
    average: int = 0  # checkpoints whose mean is tried at the end
    ema: float = 0.0  # decay of a moving average of the parameters that is used in their place; 0 has none
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 for a Transformer on a GPU
    compile: bool = False  # torch.compile the step
    deterministic: bool = False  # on a GPU too, the same bits each time
    tensorboard: bool = False  # write events for TensorBoard too
    seed: int = 0  # of everything that is random

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "accumulate", "segment", "validate_every", "validate_most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RegardError(f"{name} is {value}; 1 is the least")
        for name in ("warmup", "patience", "average", "clip", "weight_decay", "seed"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise RegardError(f"{name} is {value}; 0 is the least")
        if self.seed >= 2**32:
            raise RegardError(f"seed is {self.seed}; {2**32 - 1} is the greatest")
        if self.rate is not None and not self.rate > 0:
            raise RegardError(f"rate is {self.rate}; a number above 0 is needed")
        if not 0 <= self.class_weights <= 1:
            raise RegardError(f"class_weights is {self.class_weights}; a number from 0 to 1 is needed")
        for name in ("smoothing", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise RegardError(f"{name} is {value}; a number from 0 to below 1 is needed")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise RegardError(f"betas are {list(self.betas)}; two numbers from 0 to below 1 are needed")
