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
from regard.models.features import Features
from regard.models.pointer import CopyFeatures, CopySource, Pointer, to_known_tokens
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
    copy: bool | Literal["auto"] = "auto"  # copy source tokens by attention (See et al. 2017); auto: if most can be
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
    source: Float[Tensor, "batch source width"]
    copy_source: CopySource | None

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
        self.copies, self.generated_size = config.copy is True, config.target_vocab_size
        self.pointer = Pointer(config.width, config.width, config.width) if self.copies else None
        self.attentions = {
            "cross": self.decoder.get_attention_paths("decoder", "cross"),
            "encoder": self.encoder.get_attention_paths("encoder", "attention"),
            "decoder": self.decoder.get_attention_paths("decoder", "attention"),
        }

    @property
    def input_embedding(self) -> Embedding:
        return self.target_embedding if self.source_embedding is None else self.source_embedding

    def features(self, batch: Batch) -> Float[Tensor, "batch target width"] | CopyFeatures:
        """Return the decoder features at each target position; padding is last, so causal attention ignores it."""
        if batch.target_in is None:
            raise RegardError("Transformer: batch has no targets; use start and step to decode without them")
        source = self.encode(batch)
        positions = self.target_positions(batch.target_in.shape[1], self.target_embedding.weight)
        embedded = self._embed_target(batch.target_in, positions)
        weights: list[Tensor] = []
        hidden = self.decoder(
            embedded,
            source,
            visible=causal(),
            source_visible=lengths(batch.source_lengths.on_device),
            turn=positions.turn,
            source_turn=self._encode_source_positions(batch).turn,
            cross_weights=weights if self.copies else None,
        )
        copy_source = self._get_copy_source(batch)
        return hidden if copy_source is None else self._point(hidden, embedded, weights[0], source, copy_source)

    def output(self, features: Float[Tensor, "*places width"] | Features) -> Float[Tensor, "*places vocabulary"]:
        """Return the logits of the next token."""
        if isinstance(features, CopyFeatures):
            return features.mix(self.output(features.hidden))
        assert isinstance(features, Tensor)
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
        source = self.encode(batch)
        source_turn = self._encode_source_positions(batch).turn
        memory = self.decoder.new_memory(len(batch) * copies, capacity, source, source_turn)
        positions = self.target_positions(capacity, self.target_embedding.weight)
        visible = lengths(batch.source_lengths.on_device)
        return TransformerState(memory, positions, visible, source, self._get_copy_source(batch))

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
        embedded = self._embed_target(tokens[:, None], positions)
        weights: list[Tensor] = []
        hidden = self.decoder.step(
            embedded,
            state.memory,
            source_visible=state.source_visible,
            turn=positions.turn,
            cross_weights=weights if self.copies else None,
        )
        if state.copy_source is None:
            return self.output(hidden[:, 0]), state
        batch = len(state.source)  # hypotheses of one source are its positions, to share its states
        hidden, embedded, together = (
            part.reshape(batch, -1, part.shape[-1]) for part in (hidden, embedded, weights[0])
        )
        features = self._point(hidden, embedded, together, state.source, state.copy_source)
        return self.output(features).flatten(0, 1), state

    def _get_copy_source(self, batch: Batch) -> CopySource | None:
        """Return what the sources of a batch copy, if the model copies."""
        return CopySource.of(batch, self.config.target_vocab_size) if self.copies else None

    def _point(
        self,
        hidden: Float[Tensor, "batch target width"],
        embedded: Float[Tensor, "batch target width"],
        weights: Float[Tensor, "batch target source"],
        source: Float[Tensor, "batch source width"],
        copy_source: CopySource,
    ) -> CopyFeatures:
        """Add where and how much to copy; the context vector is the mean of the encoder states by the weights."""
        assert self.pointer is not None
        gate = self.pointer(weights.to(source.dtype) @ source, hidden, embedded)
        return CopyFeatures(hidden, gate, weights, copy_source.expand(gate.shape), copy_source.size)

    def _embed_target(self, tokens: Tensor, positions: EncodedPositions) -> Tensor:
        """Return the embeddings of target tokens with positions added, (rows, n, width)."""
        return self._embed(to_known_tokens(tokens, self.config.target_vocab_size), self.target_embedding, positions)

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
