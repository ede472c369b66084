"""The two ends of a language model that know its tokens: the embedding and the output layer."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import RegardError, refuse_less
from regard.layers.attention import new_linear
from regard.layers.embedding import new_embedding


class Vocabulary(nn.Module):
    """A vector for each token, and from features to the logits of each token.

    Tied, the logits are the products with the vectors of the tokens, and a bias (Press and
    Wolf 2017); features of another width are projected to that of the vectors first. For
    that the vectors start with a length of about one; where they are what comes in, they
    are multiplied by sqrt(width), and so their numbers have a variance of about one there
    too (as in Vaswani et al. 2017, 3.4).

    Args:
        size: How many tokens.
        width: Of a token's vector.
        features: The width of what the logits are made of.
        tied: Whether embedding and output layer share their vectors.
        padding: The token whose vector is nothing, whatever is learnt.
        embedding_dropout: The share of all tokens whose vectors are nothing for a while, in
            training: wherever such a token stands in a batch (Gal and Ghahramani 2016).
    """

    def __init__(
        self,
        size: int,
        width: int,
        features: int,
        *,
        tied: bool = False,
        padding: int = 0,
        embedding_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        refuse_less("Vocabulary", 1, size=size, width=width, features=features)
        if not 0 <= embedding_dropout < 1:
            raise RegardError(
                f"Vocabulary: embedding_dropout is {embedding_dropout}; a share from 0 to below 1 is needed"
            )
        self.tied, self.padding, self.embedding_dropout = tied, padding, embedding_dropout
        self.scale = math.sqrt(width) if tied else 1.0
        self.embedding = new_embedding(size, width, padding, is_output=tied)
        if tied:
            self.project = nn.Identity() if features == width else new_linear(features, width, False)
            self.bias = nn.Parameter(torch.zeros(size))
        else:
            self.output = new_linear(features, size, True)

    def embed(self, tokens: Int[Tensor, "*places"]) -> Float[Tensor, "*places width"]:
        """The vectors of some tokens."""
        found: Tensor = self.embedding(tokens)
        if self.tied:  # as an output, the vector of padding learns too
            found = found * (self.scale * (tokens != self.padding).to(found.dtype))[..., None]
        if self.training and self.embedding_dropout:
            kept = functional.dropout(found.new_ones(self.embedding.num_embeddings), self.embedding_dropout)
            found = found * kept[tokens][..., None]
        return found

    def forward(self, features: Float[Tensor, "*places features"]) -> Float[Tensor, "*places size"]:
        """The logits of every token."""
        if self.tied:
            return functional.linear(self.project(features), self.embedding.weight, self.bias)
        return self.output(features)
