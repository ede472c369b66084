"""Sampling: tokens drawn by their probability."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.steps import Choose, write_targets
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq


def sample(
    model: Seq2Seq,
    batch: Batch,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    longest: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """One random target for each source.

    The log-probability of a hypothesis is that of the model, not of the changed
    distribution it was drawn from.

    Args:
        model: In evaluation mode.
        batch: Sources, where the model is.
        temperature: What logits are divided by; below 1 the probable becomes more probable.
        top_k: Draw from so many most probable tokens only, the smaller numbers first among equals.
        top_p: Draw only from the fewest most probable tokens that have this share together,
            of all that may be chosen and are among the top k.
        generator: Of random numbers, on the model's device; torch's own unless told otherwise.
        longest: As in `greedy`.
        allow_unknown: Whether <unk> may be drawn.
    """
    draw = drawing(temperature, top_k, top_p, generator, batch.source.device)
    return write_targets(model, batch, draw, longest=longest, allow_unknown=allow_unknown)


def drawing(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
    device: torch.device,
) -> Choose:
    """What draws a token for each row on a device; a `RegardError` where the settings allow no drawing."""
    check_shape_of_choice(temperature, top_k, top_p)
    if generator is not None and generator.device.type != device.type:
        raise RegardError(
            f"sample: the generator is on {generator.device.type}, the tokens on {device.type}; put both on one"
        )

    def draw(found: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        shares = shares_of(found, temperature, top_k, top_p)
        waits = torch.empty_like(shares).exponential_(generator=generator)
        return (shares / waits).argmax(-1)  # the first of clocks that ring at these rates

    return draw


def check_shape_of_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise a `RegardError` for settings that no distribution has."""
    if not 0 < temperature < torch.inf:
        raise RegardError(
            f"sample: temperature is {temperature}; a number above 0 is needed (greedy is its limit at 0)"
        )
    if top_k is not None and top_k < 1:
        raise RegardError(f"sample: top_k is {top_k}; 1 is the least")
    if top_p is not None and not 0 < top_p <= 1:
        raise RegardError(f"sample: top_p is {top_p}; a share above 0 and at most 1 is needed")


def shares_of(
    found: Float[Tensor, "batch vocabulary"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "batch vocabulary"]:
    """What each token's probability is proportional to; zero for those that are not drawn."""
    scaled = (found - found.amax(-1, keepdim=True)) / temperature
    if top_k is None and top_p is None:
        return scaled.softmax(-1)
    ordered, tokens = scaled.sort(descending=True, stable=True)
    ordered, tokens = ordered[:, :top_k], tokens[:, :top_k]
    shares = ordered.softmax(-1)
    if top_p is not None and top_p < 1:
        earlier = shares.cumsum(-1).roll(1, -1)  # the share of all tokens before
        earlier[:, 0] = 0
        shares = shares.masked_fill(earlier >= top_p, 0)
    return torch.zeros_like(scaled).scatter(-1, tokens, shares)
