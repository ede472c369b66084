"""A pointer over the source: each step generates a token or copies one (See et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from regard.batch import UNKNOWN, Batch
from regard.errors import RegardError
from regard.layers.attention import new_linear
from regard.models.features import Features


@dataclass(frozen=True, eq=False)
class CopySource:
    """The token that each source position copies.

    Ids below the size of the target vocabulary are those of its tokens; the ids from there on are tokens that only
    this source has.
    """

    ids: Int[Tensor, "batch source"]
    size: int  # number of tokens that can be generated or copied

    @staticmethod
    def of(batch: Batch, vocab_size: int) -> CopySource:
        """Return what the sources of a batch copy; raise a `RegardError` if it does not say so."""
        if batch.copy_ids is None:
            raise RegardError("copy: batch has no copy_ids; every source requires the target ids of its tokens")
        return CopySource(batch.copy_ids, max(vocab_size, batch.copy_size))

    def expand(self, places: torch.Size) -> Int[Tensor, "*places source"]:
        """Return the ids for positions (batch, target), or for rows with as many hypotheses for every source."""
        if len(places) > 1:
            return self.ids[:, None].expand(*places, -1)
        return self.ids[:, None].expand(-1, places[0] // len(self.ids), -1).flatten(0, 1)


@dataclass(frozen=True, eq=False)
class CopyFeatures(Features):
    """The features of a model that copies: those of its output layer, and where and how much it copies."""

    hidden: Float[Tensor, "*places width"]
    gate: Float[Tensor, "*places"]  # logit of the probability to generate
    weights: Float[Tensor, "*places source"]
    ids: Int[Tensor, "*places source"]
    size: int

    def mix(self, logits: Float[Tensor, "*places vocabulary"]) -> Float[Tensor, "*places extended"]:
        """Return the log-probability of each token, generated or copied; -inf for a token no source position has."""
        vocab_size, tiny = logits.shape[-1], torch.finfo(torch.float32).tiny
        dtype = torch.promote_types(logits.dtype, torch.float32)
        weights, gate = self.weights.to(dtype), self.gate.to(dtype)
        total = weights.sum(-1)
        weights = weights / total.clamp_min(1)[..., None]  # rounded to bfloat16, a sum can be above 1
        missing = (1 - total).clamp_min(tiny)  # of a query that sees no key; the rest is generated
        log_generate = torch.logaddexp(logsigmoid(gate), logsigmoid(-gate) + missing.log())
        generated = log_generate[..., None] + logits.log_softmax(-1, dtype=dtype)
        sums = weights.new_zeros(*weights.shape[:-1], self.size).scatter_add(-1, self.ids, weights)
        is_known = torch.arange(self.size, device=sums.device) < vocab_size
        # a token without weight: -inf if it can be generated, else just finite, as two -inf have no gradient
        log_sums = sums.clamp_min(tiny).log().masked_fill((sums == 0) & is_known, -torch.inf)
        copied = logsigmoid(-gate)[..., None] + log_sums
        mixed = torch.logaddexp(pad(generated, (0, self.size - vocab_size), value=-torch.inf), copied)
        last = self.ids.amax(-1, keepdim=True).clamp_min(vocab_size - 1)  # of other sources in the batch
        return mixed.masked_fill(torch.arange(self.size, device=last.device) > last, -torch.inf)


class Pointer(nn.Module):
    """The gate between generating and copying: sigmoid(w [c; s; e] + b).

    c is the context vector, s the decoder state and e the embedding of the previous token (See et al. 2017, 8).

    Args:
        context: Width of c.
        state: Width of s.
        embedding: Width of e.
    """

    def __init__(self, context: int, state: int, embedding: int) -> None:
        super().__init__()
        self.gate = new_linear(context + state + embedding, 1, True)

    def forward(
        self,
        context: Float[Tensor, "*places context"],
        state: Float[Tensor, "*places state"],
        embedded: Float[Tensor, "*places embedding"],
    ) -> Float[Tensor, "*places"]:
        """Return the logit of the probability to generate."""
        return self.gate(torch.cat([context, state, embedded], -1))[..., 0]


def to_known_tokens(tokens: Int[Tensor, "..."], vocab_size: int) -> Int[Tensor, "..."]:
    """Replace copied tokens that are not in the vocabulary by <unk>, to embed them."""
    return tokens.masked_fill(tokens >= vocab_size, UNKNOWN)
