"""Score given text with a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import PAD, TextBatch
from regard.decoding.forced import check_no_nan
from regard.decoding.steps import check_eval_mode, target_log_probabilities
from regard.models.language_model import LanguageModel, SegmentState


@torch.no_grad()
def text_log_probabilities(
    model: LanguageModel,
    tokens: Int[Tensor, "rows time"],
    targets: Int[Tensor, "rows time"],
    segment_state: SegmentState | None = None,
) -> tuple[Float[Tensor, "rows time"], SegmentState]:
    """Return the log-probability of each target given the tokens up to its position, and the segment state.

    Args:
        model: A model in evaluation mode.
        tokens: Texts or segments of texts, on the model's device.
        targets: The token after each position, or PAD to skip it; its log-probability is then 0.
        segment_state: The state after the previous segment; None at the start of a text.

    Raises:
        RegardError: The model is in training mode or returns NaN.
    """
    check_eval_mode(model)
    features, segment_state = model.read(tokens, segment_state)
    return check_no_nan(target_log_probabilities(model, features, targets), "text_log_probabilities"), segment_state


def iter_segment_log_probabilities(
    model: LanguageModel, segments: Sequence[TextBatch], device: str | torch.device
) -> Iterator[Float[Tensor, "rows time"]]:
    """Yield the log-probabilities of the targets of consecutive segments."""
    segment_state: SegmentState | None = None
    for batch in segments:
        moved_batch = batch.to(device)
        log_probabilities, segment_state = text_log_probabilities(
            model, moved_batch.tokens, moved_batch.targets, None if batch.fresh else segment_state
        )
        yield log_probabilities


def sum_nats(
    model: LanguageModel,
    groups: Iterable[Sequence[TextBatch]],
    device: str | torch.device,
    progress: Callable[[int], object] | None = None,
) -> tuple[float, int]:
    """Return the summed -log p of all targets and their number; `progress` is called with the number so far."""
    total, count = 0.0, 0
    for segments in groups:
        for batch, log_probabilities in zip(
            segments, iter_segment_log_probabilities(model, segments, device), strict=True
        ):
            total -= log_probabilities.double().sum().item()
            count += int((batch.targets != PAD).sum())
            if progress is not None:
                progress(count)
    return total, count
