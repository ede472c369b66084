"""How good a language model is while it trains: its loss on every held-out token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from regard.batch import TextBatch
from regard.decoding.reading import summed_nats
from regard.models.language import LanguageModel
from regard.training.loop import Findings


@dataclass(frozen=True)
class TextValidation:
    """Loss in nats a token, and the perplexity that it is."""

    groups: Callable[[], Iterable[Sequence[TextBatch]]]  # segments that follow one another, in groups
    device: str

    def __call__(self, model: torch.nn.Module) -> Findings:
        assert isinstance(model, LanguageModel)
        total, count = summed_nats(model, self.groups(), self.device)
        loss = total / max(1, count)
        return Findings({"loss": loss, "perplexity": math.exp(min(loss, 700.0))})
