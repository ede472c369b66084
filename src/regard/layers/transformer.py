"""Transformer layers (Vaswani et al. 2017, 3.1) for encoders, decoders and decoder-only models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores import SCORE_ACTIVATIONS, SCORES
from regard.attention.visible import Rule, causal
from regard.bounds import Heads, Power, Share, Width, check_bounds
from regard.errors import RegardError
from regard.layers.attention import MultiHeadAttention, Turn, check_score_settings, get_score_settings
from regard.layers.cache import KeyValueCache
from regard.layers.dropout import Dropout
from regard.layers.feed_forward import ACTIVATIONS, FeedForward
from regard.settings import check_choices

NORMS = ("post", "pre")
"""The positions of the layer norm."""


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Settings shared by all layers of a Transformer."""

    width: Width = 256  # width of the token vectors in all layers
    heads: Heads = 4  # number of attention heads
    head_width: Width | None = None  # width of each attention head; width / heads by default
    feed_forward: Width | None = None  # width of the feed-forward hidden layer; 4 * width by default
    score: str = "scaled_dot"  # score function of the attention
    score_rank: Width | None = None  # rank of the score reduced_rank; a quarter of the smaller width by default
    score_hidden: Width | None = None  # hidden width of the scores additive and concat; that of the query by default
    score_activation: Literal["tanh", "relu", "sigmoid"] = "tanh"  # activation of the score additive
    score_power: Power = 1.0  # power of the score epanechnikov; 2 is the kernel of textbooks
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"  # activation of the feed-forward layer
    norm: Literal["post", "pre"] = "post"  # layer norm after each residual (post) or before each sublayer (pre)
    dropout: Share = 0.1  # dropout on embeddings and on the output of each sublayer
    attention_dropout: Share = 0.0  # dropout on attention weights; above 0 disables the fused operators
    bias: bool = True  # add a bias in attention, feed-forward and layer norm

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.head_width is None and self.width % self.heads:
            raise RegardError(f"width must be divisible by heads, got {self.width} and {self.heads}")
        check_choices(self, score=SCORES, activation=ACTIVATIONS, norm=NORMS, score_activation=SCORE_ACTIVATIONS)
        check_score_settings(self, self.score)

    @property
    def width_per_head(self) -> int:
        """The width of each head."""
        return self.width // self.heads if self.head_width is None else self.head_width


class LayerMemory(NamedTuple):
    """The memory of a layer between the steps of a decoder."""

    self_cache: KeyValueCache  # keys and values of the previous tokens
    cross_cache: KeyValueCache | None  # keys and values of the source, projected once


class TransformerLayer(nn.Module):
    """A Transformer layer: self-attention, cross-attention to a source if `cross`, and feed-forward network."""

    def __init__(self, config: LayerConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.attention = build_layer_attention(config)
        self.attention_residual = Residual(config)
        self.cross = build_layer_attention(config) if cross else None
        self.cross_residual = Residual(config) if cross else None
        self.feed_forward = FeedForward(
            config.width, config.feed_forward or 4 * config.width, activation=config.activation, bias=config.bias
        )
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "rows positions width"],
        source: Float[Tensor, "batch source width"] | KeyValueCache | None = None,
        *,
        visible: Rule | None = None,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
        source_turn: Turn | None = None,
        cache: KeyValueCache | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "rows positions width"]:
        """Apply the layer to all positions.

        `turn` turns the queries and keys of the self-attention and the queries of the cross-attention;
        `source_turn` turns the keys of the cross-attention.

        Several consecutive rows may share one source: their positions become the queries of one
        attention, so the source is not repeated. The mean weights of the heads of the cross-attention are appended to
        `cross_weights`, if given, one tensor (rows, positions, source).
        """
        x = self.attention_residual(x, lambda y: self.attention(y, visible=visible, turn=turn, cache=cache))
        if self.cross is not None and self.cross_residual is not None:
            assert source is not None, "a layer with cross-attention needs a source"
            x = self.cross_residual(
                x, lambda y: self._attend_source(y, source, source_visible, turn, source_turn, cross_weights)
            )
        return self.feed_forward_residual(x, self.feed_forward)

    def _attend_source(
        self,
        x: Tensor,
        source: Tensor | KeyValueCache,
        visible: Rule | None,
        turn: Turn | None,
        source_turn: Turn | None,
        cross_weights: list[Tensor] | None,
    ) -> Tensor:
        assert self.cross is not None
        batch, positions = len(source.keys if isinstance(source, KeyValueCache) else source), x.shape[1]
        together = x if len(x) == batch else x.reshape(batch, -1, x.shape[-1])
        if turn is not None and len(x) != batch:
            turn = turn_each_row(turn, positions)
        if cross_weights is None:
            return self.cross(together, source, visible=visible, turn=turn, key_turn=source_turn).reshape(x.shape)
        attended, weights = self.cross(
            together, source, visible=visible, turn=turn, key_turn=source_turn, return_weights=True
        )
        cross_weights.append(weights.dense().mean(1).reshape(*x.shape[:2], -1))
        return attended.reshape(x.shape)


class Residual(nn.Module):
    """A residual connection around a sublayer, with layer norm after or before it.

    Attributes:
        gate: A factor of the sublayer per channel, with norm "pre"; None for no factor.
    """

    gate: Tensor | None

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.norm_first = config.norm == "pre"
        self.dropout = Dropout(config.dropout)
        self.register_parameter("gate", None)

    def forward(
        self, x: Float[Tensor, "*batch width"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*batch width"]:
        """Return norm(x + sublayer(x)), or x + sublayer(norm(x)) for "pre" (Xiong et al. 2020)."""
        if self.norm_first:
            out = self.dropout(sublayer(self.norm(x)))
            return x + (out if self.gate is None else self.gate * out)
        return self.norm(x + self.dropout(sublayer(x)))


class TransformerStack(nn.Module):
    """A stack of Transformer layers: an encoder, or a decoder if `cross`.

    With norm "pre", a layer norm follows the last layer. With `gated`, which requires norm "pre", there is no final
    norm, and each sublayer is multiplied by a learned gate per channel that starts at zero (LayerScale, Touvron et al.
    2021; zero as in ReZero, Bachlechner et al. 2021). The stack starts as the identity, to refine states that are
    already good, and the first steps of training change it as little in a wide stack as in a narrow one.
    """

    def __init__(self, config: LayerConfig, layers: int, *, cross: bool = False, gated: bool = False) -> None:
        super().__init__()
        assert not gated or config.norm == "pre"
        self.layers = nn.ModuleList(TransformerLayer(config, cross=cross) for _ in range(layers))
        has_norm = config.norm == "pre" and not gated
        self.norm = nn.LayerNorm(config.width, bias=config.bias) if has_norm else nn.Identity()
        for module in self.modules() if gated else ():
            if isinstance(module, Residual):
                module.gate = nn.Parameter(torch.zeros(config.width))

    def forward(
        self,
        x: Float[Tensor, "batch positions width"],
        source: Float[Tensor, "batch source width"] | None = None,
        *,
        visible: Rule | None = None,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
        source_turn: Turn | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch positions width"]:
        """Apply all layers to all positions; `cross_weights` receives those of the last layer, as in a layer."""
        for layer in self.layers:
            last_weights = cross_weights if layer is self.layers[-1] else None
            x = layer(
                x,
                source,
                visible=visible,
                source_visible=source_visible,
                turn=turn,
                source_turn=source_turn,
                cross_weights=last_weights,
            )
        return self.norm(x)

    def get_attention_paths(self, prefix: str, attention: str) -> tuple[str, ...]:
        """Return the path of each layer's `attention` or `cross` in a model that has this stack at path `prefix`."""
        return tuple(f"{prefix}.layers.{layer}.{attention}" for layer in range(len(self.layers)))

    def new_memory(
        self,
        rows: int,
        capacity: int,
        source: Float[Tensor, "batch source width"] | None = None,
        source_turn: Turn | None = None,
    ) -> list[LayerMemory]:
        """Create the memory of all layers: empty caches for `capacity` positions, and the projected source."""
        memory = []
        for layer in self.layers:
            assert isinstance(layer, TransformerLayer)
            self_cache = layer.attention.new_cache(rows, capacity=capacity)
            cross_cache = (
                None if layer.cross is None or source is None else layer.cross.remember(source, turn=source_turn)
            )
            memory.append(LayerMemory(self_cache, cross_cache))
        return memory

    def step(
        self,
        x: Float[Tensor, "rows positions width"],
        memory: Sequence[LayerMemory],
        *,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "rows positions width"]:
        """Run the next positions of each row; they attend to all previous ones and are added to the memory."""
        visible = causal() if x.shape[1] > 1 else None  # a single position sees everything before it
        settings: dict[str, Any] = {"visible": visible, "source_visible": source_visible, "turn": turn}
        for layer, (self_cache, source) in zip(self.layers, memory, strict=True):
            last_weights = cross_weights if layer is self.layers[-1] else None
            x = layer(x, source, cache=self_cache, cross_weights=last_weights, **settings)
        return self.norm(x)


def turn_each_row(turn: Turn, positions: int) -> Turn:
    """Return a function that turns several rows of so many positions, which follow each other on one axis."""
    return lambda heads: turn(heads.unflatten(-2, (-1, positions))).flatten(-3, -2)


def build_layer_attention(config: LayerConfig) -> MultiHeadAttention:
    """Create the multi-head attention of a layer."""
    return MultiHeadAttention(
        config.width,
        config.heads,
        config.head_width,
        config.score,
        bias=config.bias,
        dropout=config.attention_dropout,
        score_settings=get_score_settings(config),
    )
