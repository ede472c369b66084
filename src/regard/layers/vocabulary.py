"""The embedding and the output layer of a language model."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import RegardError, refuse_less
from regard.layers.attention import new_linear
from regard.layers.embedding import new_embedding


class VocabularyLayer(nn.Module):
    """The embedding of tokens, and the output layer from features to logits.

    With tied weights, the logits are the products of the features with the token vectors, plus a
    bias (Press and Wolf 2017); features of another width are projected first. Tied vectors are
    initialized to about unit length, and multiplied by sqrt(width) as embeddings, so that these have
    about unit variance (as in Vaswani et al. 2017, 3.4).

    Args:
        size: Number of tokens.
        width: Width of the token vectors.
        features: Width of the features.
        tied: Whether embedding and output layer share their weights.
        padding: Id of the padding, whose vector is always zero.
        embedding_dropout: Fraction of the vocabulary whose vectors are set to zero in training,
            at all of their occurrences in a batch (Gal and Ghahramani 2016).
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
        refuse_less("VocabularyLayer", 1, size=size, width=width, features=features)
        if not 0 <= embedding_dropout < 1:
            raise RegardError(
                f"VocabularyLayer: embedding_dropout must be at least 0 and below 1, got {embedding_dropout}"
            )
        self.tied, self.padding, self.embedding_dropout = tied, padding, embedding_dropout
        self.scale = math.sqrt(width) if tied else 1.0
        self.embedding = new_embedding(size, width, padding, is_output=tied)
        if tied:
            self.project = nn.Identity() if features == width else new_linear(features, width, False)
            self.bias = nn.Parameter(torch.zeros(size))
        else:
            self.output = new_linear(features, size, True)

    def embed(self, tokens: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions width"]:
        """Return the vectors of tokens."""
        vectors: Tensor = self.embedding(tokens)
        if self.tied:  # as an output weight, the padding vector is learned, too
            vectors = vectors * (self.scale * (tokens != self.padding).to(vectors.dtype))[..., None]
        if self.training and self.embedding_dropout:
            token_mask = functional.dropout(vectors.new_ones(self.embedding.num_embeddings), self.embedding_dropout)
            vectors = vectors * token_mask[tokens][..., None]
        return vectors

    def forward(self, features: Float[Tensor, "*positions features"]) -> Float[Tensor, "*positions size"]:
        """Return the logits of all tokens."""
        if self.tied:
            return functional.linear(self.project(features), self.embedding.weight, self.bias)
        return self.output(features)
