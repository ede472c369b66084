"""Validation during training: the loss on every validation token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from regard.batch import TextBatch
from regard.decoding.score_text import sum_nats
from regard.models.language_model import LanguageModel
from regard.training.loop import ValidationResult


@dataclass(frozen=True)
class TextValidation:
    """Loss in nats per token, and the perplexity."""

    groups: Callable[[], Iterable[Sequence[TextBatch]]]  # groups of consecutive segments
    device: str

    def __call__(self, model: torch.nn.Module) -> ValidationResult:
        assert isinstance(model, LanguageModel)
        total, count = sum_nats(model, self.groups(), self.device)
        loss = total / max(1, count)
        return ValidationResult({"loss": loss, "perplexity": math.exp(min(loss, 700.0))})
