"""Sampling with temperature, top-k and top-p."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.steps import TokenChooser, decode_targets
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
    max_length: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """Sample one target per source.

    The log-probability of a hypothesis is that of the model, before temperature, top_k and top_p.

    Args:
        model: A model in evaluation mode.
        batch: Sources, on the model's device.
        temperature: Logits are divided by this; below 1 makes probable tokens more probable.
        top_k: Sample from the k most probable tokens only; ties go to the smaller id.
        top_p: Sample from the smallest set of most probable tokens whose probabilities sum to at
            least top_p (nucleus sampling), among the top k.
        generator: A random generator on the model's device; by default torch's global one.
        max_length: As in `greedy`.
        allow_unknown: Allow <unk> in targets.

    Raises:
        RegardError: A setting is out of range, or the model is in training mode.

    Example:
        >>> sample(model.eval(), batch, temperature=0.8, top_p=0.9)
    """
    sampler = build_sampler(temperature, top_k, top_p, generator, batch.source.device)
    return decode_targets(model, batch, sampler, max_length=max_length, allow_unknown=allow_unknown)


def build_sampler(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
    device: torch.device,
) -> TokenChooser:
    """Build the function that samples a token for each row; raise a `RegardError` if a setting is out of range."""
    check_sampling(temperature, top_k, top_p)
    if generator is not None and generator.device.type != device.type:
        raise RegardError(
            f"sample: generator must be on the model's device ({device.type}), got {generator.device.type}"
        )

    def sample_tokens(log_probabilities: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        shares = truncate_probabilities(log_probabilities, temperature, top_k, top_p)
        waits = torch.empty_like(shares).exponential_(generator=generator)
        return (shares / waits).argmax(-1)  # exponential race: index i wins with probability shares[i]

    return sample_tokens


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise a `RegardError` if a setting of sampling is out of range."""
    if not 0 < temperature < torch.inf:
        raise RegardError(f"sample: temperature must be above 0 and finite, got {temperature}")
    if top_k is not None and top_k < 1:
        raise RegardError(f"sample: top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise RegardError(f"sample: top_p must be above 0 and at most 1, got {top_p}")


def truncate_probabilities(
    log_probabilities: Float[Tensor, "batch vocabulary"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "batch vocabulary"]:
    """Return probabilities up to a factor, zero for tokens outside top_k and top_p."""
    scaled = (log_probabilities - log_probabilities.amax(-1, keepdim=True)) / temperature
    if top_k is None and top_p is None:
        return scaled.softmax(-1)
    ordered, tokens = scaled.sort(descending=True, stable=True)
    ordered, tokens = ordered[:, :top_k], tokens[:, :top_k]
    shares = ordered.softmax(-1)
    if top_p is not None and top_p < 1:
        earlier = shares.cumsum(-1).roll(1, -1)  # probability of all tokens before
        earlier[:, 0] = 0
        shares = shares.masked_fill(earlier >= top_p, 0)
    return torch.zeros_like(scaled).scatter(-1, tokens, shares)
