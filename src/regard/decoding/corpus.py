"""Decode any number of sources, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from regard.batch import Batch, Pair, collate
from regard.decoding.beam import beam_search, check_beam
from regard.decoding.greedy import greedy
from regard.decoding.hypothesis import Hypothesis
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq


def decode_all(
    model: Seq2Seq,
    pairs: Sequence[Pair],
    *,
    width: int = 5,
    nbest: int = 1,
    length_penalty: float = 1.0,
    batch_tokens: int = 32768,
    max_length: int | None = None,
    device: str | torch.device | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source, best first, in the order of the sources.

    Args:
        model: A model in evaluation mode.
        pairs: The sources; their targets, if any, are ignored.
        width: Beam width; 1 is greedy decoding, whatever the length penalty.
        nbest: As in `beam_search`.
        length_penalty: As in `beam_search`.
        batch_tokens: Maximum number of source tokens in a batch, including padding and multiplied by
            the beam width. A longer source gets a batch of its own.
        max_length: As in `greedy`.
        device: The model's device; by default that of its first parameter.
        progress: Called after each batch with the number of sources done.

    Raises:
        RegardError: A setting is out of range.
    """
    check_beam(width, nbest, length_penalty)
    if batch_tokens < 1:
        raise RegardError(f"decode_all: batch_tokens must be at least 1, got {batch_tokens}")
    target_device = get_device(model) if device is None else device

    def decode(batch: Batch) -> list[list[Hypothesis]]:
        if width == 1:
            return [[best] for best in greedy(model, batch, max_length=max_length)]
        return beam_search(model, batch, width, nbest, length_penalty, max_length=max_length)

    hypotheses: dict[int, list[Hypothesis]] = {}
    for indices in iter_batches_by_length([len(pair.source) + 1 for pair in pairs], batch_tokens // width):
        batch = collate([pairs[index]._replace(target=None) for index in indices]).to(target_device)
        hypotheses.update(zip(indices, decode(batch), strict=True))
        if progress is not None:
            progress(len(hypotheses))
    return [hypotheses[index] for index in range(len(pairs))]


def iter_batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield indices in batches of similar length, longest first, so that running out of memory shows at once."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def get_device(model: Seq2Seq) -> torch.device:
    """Return the device of the model's first parameter."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
