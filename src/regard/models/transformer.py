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
from regard.bounds import Layers, Length, VocabularySize
from regard.errors import RegardError, refuse_less
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding, new_embedding
from regard.layers.positions import EncodedPositions, PositionalEncoding, check_positions
from regard.layers.transformer import LayerConfig, LayerMemory, TransformerStack
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.settings import check_choices

TIES = ("none", "target", "all")
"""Which weights are shared: none, target embedding and output layer, or these and the source embedding."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """Settings of `Transformer`."""

    source_vocab_size: VocabularySize  # number of source tokens in the vocabulary
    target_vocab_size: VocabularySize  # number of target tokens in the vocabulary
    encoder_layers: Layers = 3  # number of encoder layers
    decoder_layers: Layers = 3  # number of decoder layers
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"  # positional encoding
    max_length: Length = 1024  # number of learned positions, including <bos> and <eos>
    tied: Literal["none", "target", "all"] = "target"  # share the output layer with the target embedding, or with both

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positions(self.positions, self.width_per_head)
        check_choices(self, tied=TIES)
        if self.tied == "all" and self.source_vocab_size != self.target_vocab_size:
            raise RegardError(
                'tied = "all" requires source_vocab_size and target_vocab_size to be equal, '
                f"got {self.source_vocab_size} and {self.target_vocab_size}"
            )


@dataclass(eq=False)
class TransformerState:
    """The decoding state: keys and values of each hypothesis, and of its source once per source."""

    memory: Sequence[LayerMemory]
    positions: EncodedPositions
    source_visible: Rule

    @property
    def length(self) -> int:
        """The number of tokens per hypothesis."""
        return self.memory[0].self_cache.length

    @property
    def capacity(self) -> int:
        """The maximum number of tokens per hypothesis."""
        return self.memory[0].self_cache.capacity

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the hypotheses in place: row i becomes what was row rows[i]; the source does not move."""
        for layer in self.memory:
            layer.self_cache.select(rows)


class Transformer(Seq2Seq):
    """The Transformer encoder-decoder (Vaswani et al. 2017).

    Embeddings are initialized with variance 1 / width and scaled by sqrt(width) (3.4), so that
    they match the scale of the positions (3.5), and a tied output layer gives logits of
    variance one. Dropout applies to embeddings plus positions and to each sublayer's output (5.4).

    Example:
        >>> model = Transformer(TransformerConfig(source_vocab_size=100, target_vocab_size=50, width=64, heads=4))
    """

    residual_attentions = frozenset({"encoder", "decoder"})

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.max_length = config.max_length if config.positions == "learned" else None
        new_vectors = partial(new_embedding, width=config.width, is_output=True)
        self.target_embedding = new_vectors(config.target_vocab_size)
        self.source_embedding = None if config.tied == "all" else new_vectors(config.source_vocab_size)
        self.target_positions = new_positions(config)
        self.source_positions = new_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = TransformerStack(config, config.encoder_layers)
        self.decoder = TransformerStack(config, config.decoder_layers, cross=True)
        self.vocabulary = new_vectors(config.target_vocab_size) if config.tied == "none" else None
        self.attentions = {
            "cross": self.decoder.get_attention_paths("decoder", "cross"),
            "encoder": self.encoder.get_attention_paths("encoder", "attention"),
            "decoder": self.decoder.get_attention_paths("decoder", "attention"),
        }

    @property
    def input_embedding(self) -> Embedding:
        return self.target_embedding if self.source_embedding is None else self.source_embedding

    def features(self, batch: Batch) -> Float[Tensor, "batch target width"]:
        """Return the decoder features at each target position; padding is last, so causal attention ignores it."""
        if batch.target_in is None:
            raise RegardError("Transformer: batch has no targets; use start and step to decode without them")
        source = self.encode(batch)
        positions = self.target_positions(batch.target_in.shape[1], self.target_embedding.weight)
        x = self._embed(batch.target_in, self.target_embedding, positions)
        return self.decoder(
            x,
            source,
            visible=causal(),
            source_visible=lengths(batch.source_lengths.on_device),
            turn=positions.turn,
            source_turn=self._encode_source_positions(batch).turn,
        )

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Return the logits of the next token."""
        tokens = self.target_embedding if self.vocabulary is None else self.vocabulary
        return functional.linear(features, tokens.weight)

    def encode(self, batch: Batch) -> Float[Tensor, "batch source width"]:
        """Return the encoder states of the sources; values at padding are meaningless."""
        positions = self._encode_source_positions(batch)
        x = self._embed(batch.source, self.input_embedding, positions)
        return self.encoder(x, visible=lengths(batch.source_lengths.on_device), turn=positions.turn)

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int, copies: int = 1) -> TransformerState:
        """Encode the sources and cache their keys and values for each decoder layer."""
        refuse_less("Transformer", 1, capacity=capacity, copies=copies)
        memory = self.decoder.new_memory(
            len(batch) * copies, capacity, self.encode(batch), self._encode_source_positions(batch).turn
        )
        positions = self.target_positions(capacity, self.target_embedding.weight)
        return TransformerState(memory, positions, lengths(batch.source_lengths.on_device))

    @torch.no_grad()
    def step(
        self, tokens: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocabulary"], TransformerState]:
        """Read one token of each hypothesis; return the logits of the next and the new state."""
        assert isinstance(state, TransformerState)
        if state.length == state.capacity:
            raise RegardError(
                f"Transformer: capacity of {state.capacity} tokens exceeded; call start with a larger capacity"
            )
        positions = state.positions.slice_from(state.length)
        x = self._embed(tokens[:, None], self.target_embedding, positions)
        x = self.decoder.step(x, state.memory, source_visible=state.source_visible, turn=positions.turn)
        return self.output(x[:, 0]), state

    def _encode_source_positions(self, batch: Batch) -> EncodedPositions:
        """Return the positions of the sources."""
        return self.source_positions(batch.source.shape[1], self.input_embedding.weight)

    def _embed(self, tokens: Tensor, embedding: Embedding, positions: EncodedPositions) -> Tensor:
        """Return token embeddings with positions added, (rows, n, width)."""
        x = embedding(tokens) * math.sqrt(self.config.width)
        return self.dropout(x if positions.added is None else x + positions.added)


def new_positions(config: TransformerConfig) -> PositionalEncoding:
    """Build the positional encoding of one side."""
    return PositionalEncoding(
        config.positions, config.width, head_width=config.width_per_head, max_length=config.max_length
    )
