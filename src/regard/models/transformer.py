"""The Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.attention.visible import Rule, causal, lengths
from regard.batch import Batch
from regard.errors import RegardError, refuse_less
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding, new_embedding
from regard.layers.positions import Places, Positions, check_positions
from regard.layers.transformer import LayerConfig, LayerMemory, TransformerStack, check_counts
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.settings import check_known

TIES = ("none", "target", "all")
"""Which embeddings and output may be one."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """Encoder and decoder, and how they are told tokens and places."""

    source_size: int
    target_size: int
    encoder_layers: int = 3  # over the source
    decoder_layers: int = 3  # over the target
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"  # how it is told where a token stands
    longest: int = 1024  # how many places learned positions know, <bos> and <eos> among them
    tied: Literal["none", "target", "all"] = "target"  # the output with the target's embedding, or the source's too

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "source_size", "target_size", "encoder_layers", "decoder_layers", "longest")
        check_positions(self.positions, self.head_width)
        check_known(self, tied=TIES)
        if self.tied == "all" and self.source_size != self.target_size:
            raise RegardError(
                f"tied: all needs one vocabulary; source_size is {self.source_size}, target_size {self.target_size}"
            )


@dataclass(eq=False)
class TransformerState:
    """What the decoder remembers: its own past by hypothesis, the source once for all of them."""

    memory: Sequence[LayerMemory]
    places: Places
    source_visible: Rule

    @property
    def place(self) -> int:
        """How many tokens each hypothesis has."""
        return self.memory[0].own.length

    @property
    def capacity(self) -> int:
        """How many it may have."""
        return self.memory[0].own.capacity

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Put hypothesis rows[i] in place i; the source stays where it is."""
        for layer in self.memory:
            layer.own.select(rows)


class Transformer(Seq2Seq):
    """Attention is all there is: within the source, within the target, and from target to source.

    Embeddings are scaled by sqrt(width) and start with a variance of 1 / width (3.4), so
    that they meet the positions (3.5) as equals and give logits of variance one where
    the output is tied to them. Dropout is on the sum of both and on what each sublayer
    adds (5.4).
    """

    residual_attentions = frozenset({"encoder", "decoder"})

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.most_places = config.longest if config.positions == "learned" else None
        new_vectors = partial(new_embedding, width=config.width, is_output=True)
        self.target_embedding = new_vectors(config.target_size)
        self.source_embedding = None if config.tied == "all" else new_vectors(config.source_size)
        self.target_positions = new_positions(config)
        self.source_positions = new_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = TransformerStack(config, config.encoder_layers)
        self.decoder = TransformerStack(config, config.decoder_layers, cross=True)
        self.vocabulary = new_vectors(config.target_size) if config.tied == "none" else None
        self.attentions = {
            "cross": self.decoder.paths("decoder", "cross"),
            "encoder": self.encoder.paths("encoder", "attention"),
            "decoder": self.decoder.paths("decoder", "attention"),
        }

    @property
    def input_embedding(self) -> Embedding:
        return self.target_embedding if self.source_embedding is None else self.source_embedding

    def features(self, batch: Batch) -> Float[Tensor, "batch target width"]:
        """What the decoder thinks at each place; padding comes after every real place, where none looks."""
        if batch.target_in is None:
            raise RegardError("Transformer: the batch has no targets; give some, or write them with start and step")
        source = self.encode(batch)
        places = self.target_positions(batch.target_in.shape[1], self.target_embedding.weight)
        x = self._embedded(batch.target_in, self.target_embedding, places)
        return self.decoder(
            x, source, visible=causal(), source_visible=lengths(batch.source_lengths.on_device), turn=places.turn
        )

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """The logits of the next token: the product with each token's vector (3.4)."""
        tokens = self.target_embedding if self.vocabulary is None else self.vocabulary
        return functional.linear(features, tokens.weight)

    def encode(self, batch: Batch) -> Float[Tensor, "batch source width"]:
        """The states of the sources; those of padding mean nothing."""
        places = self.source_positions(batch.source.shape[1], self.input_embedding.weight)
        x = self._embedded(batch.source, self.input_embedding, places)
        return self.encoder(x, visible=lengths(batch.source_lengths.on_device), turn=places.turn)

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int, copies: int = 1) -> TransformerState:
        """Read the sources once, and keep what each layer will look at."""
        refuse_less("Transformer", 1, capacity=capacity, copies=copies)
        memory = self.decoder.new_memory(len(batch) * copies, capacity, self.encode(batch))
        places = self.target_positions(capacity, self.target_embedding.weight)
        return TransformerState(memory, places, lengths(batch.source_lengths.on_device))

    @torch.no_grad()
    def step(
        self, tokens: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocabulary"], TransformerState]:
        """Read one more token of each hypothesis and give the logits of the next."""
        assert isinstance(state, TransformerState)
        if state.place == state.capacity:
            raise RegardError(f"Transformer: {state.place + 1} tokens are too many for a capacity of {state.capacity}")
        here = state.places.at(state.place)
        x = self._embedded(tokens[:, None], self.target_embedding, here)
        x = self.decoder.step(x, state.memory, source_visible=state.source_visible, turn=here.turn)
        return self.output(x[:, 0]), state

    def _embedded(self, tokens: Tensor, embedding: Embedding, places: Places) -> Tensor:
        """Tokens as vectors that know their places, (rows, n, width)."""
        x = embedding(tokens) * math.sqrt(self.config.width)
        return self.dropout(x if places.added is None else x + places.added)


def new_positions(config: TransformerConfig) -> Positions:
    """The places of one side."""
    return Positions(config.positions, config.width, head_width=config.head_width, longest=config.longest)
