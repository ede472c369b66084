"""Decode any number of sources, in batches of like lengths."""

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
    tokens: int = 32768,
    longest: int | None = None,
    device: str | torch.device | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[list[Hypothesis]]:
    """The best targets of each source, best first, in the order of the sources.

    Targets that the pairs have are not looked at.

    Args:
        model: In evaluation mode.
        pairs: The sources, in any order and number.
        width: Of the beam; 1 is greedy decoding, whatever the length penalty.
        nbest: As in `beam_search`.
        length_penalty: As in `beam_search`.
        tokens: The most source tokens of a batch, those of padding and of every hypothesis of
            the beam counted; a source that is longer alone is a batch of its own.
        longest: As in `greedy`.
        device: Where the model is; where its first parameter is unless told otherwise.
        progress: Told after each batch how many sources are done.
    """
    check_beam(width, nbest, length_penalty)
    if tokens < 1:
        raise RegardError(f"decode_all: tokens is {tokens}; 1 is the least")
    here = device_of(model) if device is None else device

    def decode(batch: Batch) -> list[list[Hypothesis]]:
        if width == 1:
            return [[best] for best in greedy(model, batch, longest=longest)]
        return beam_search(model, batch, width, nbest, length_penalty, longest=longest)

    found: dict[int, list[Hypothesis]] = {}
    for places in batches_of([len(pair.source) + 1 for pair in pairs], tokens // width):
        batch = collate([Pair(pairs[place].source) for place in places]).to(here)
        found.update(zip(places, decode(batch), strict=True))
        if progress is not None:
            progress(len(found))
    return [found[place] for place in range(len(pairs))]


def batches_of(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of like lengths together, the longest first, so that what does not fit into memory is met at once."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def device_of(model: Seq2Seq) -> torch.device:
    """Where the first parameter of a model is."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
