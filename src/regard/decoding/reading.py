"""Reading given text with a language model: how probable it finds each token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import PAD, TextBatch
from regard.decoding.forced import numbers
from regard.decoding.steps import check_settled, target_log_probabilities
from regard.models.language import Carried, LanguageModel


@torch.no_grad()
def text_log_probabilities(
    model: LanguageModel,
    tokens: Int[Tensor, "rows time"],
    targets: Int[Tensor, "rows time"],
    carried: Carried | None = None,
) -> tuple[Float[Tensor, "rows time"], Carried]:
    """The log-probability of each target after the tokens up to its place, 0 where it is PAD; and what is carried on.

    Args:
        model: In evaluation mode.
        tokens: Texts, or segments of them, where the model is.
        targets: The token that follows each, PAD where none is asked for.
        carried: What the segments before gave; nothing where a text begins.
    """
    check_settled(model)
    features, carried = model.read(tokens, carried)
    return numbers(target_log_probabilities(model, features, targets), "text_log_probabilities"), carried


def read_on(
    model: LanguageModel, segments: Sequence[TextBatch], device: str | torch.device
) -> Iterator[Float[Tensor, "rows time"]]:
    """The log-probabilities of the targets of each of some segments, which follow one another."""
    carried: Carried | None = None
    for batch in segments:
        here = batch.to(device)
        found, carried = text_log_probabilities(model, here.tokens, here.targets, None if batch.fresh else carried)
        yield found


def summed_nats(
    model: LanguageModel,
    groups: Iterable[Sequence[TextBatch]],
    device: str | torch.device,
    progress: Callable[[int], object] | None = None,
) -> tuple[float, int]:
    """-log p of all targets of groups of segments together, and how many they are, of which `progress` is told."""
    total, count = 0.0, 0
    for segments in groups:
        for batch, found in zip(segments, read_on(model, segments, device), strict=True):
            total -= found.double().sum().item()
            count += int((batch.targets != PAD).sum())
            if progress is not None:
                progress(count)
    return total, count
