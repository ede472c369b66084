"""The layers of the Transformer (Vaswani et al. 2017, 3.1), for encoders, decoders and decoders alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores import SCORES
from regard.attention.visible import Rule, causal
from regard.errors import RegardError
from regard.layers.attention import MultiHeadAttention, Turn
from regard.layers.cache import KeyValueCache
from regard.layers.dropout import Dropout
from regard.layers.feed_forward import ACTIVATIONS, FeedForward
from regard.settings import check_known

NORMS = ("post", "pre")
"""Where the layer norm may stand."""


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What all layers of a Transformer have in common."""

    width: int = 256  # of a token, through all layers
    heads: int = 4  # attentions side by side
    feed_forward: int | None = None  # width of the layer between attentions; 4 * width unless set
    score: str = "scaled_dot"  # how well a key answers a query
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"  # of the feed-forward layer
    norm: Literal["post", "pre"] = "post"  # after each residual as published, or before each sublayer
    dropout: float = 0.1  # on embeddings and on what each sublayer adds
    attention_dropout: float = 0.0  # on attention weights; more than 0 leaves the fused operators
    bias: bool = True  # whether projections of attention and feed-forward add one

    def __post_init__(self) -> None:
        check_counts(self, "width", "heads", *([] if self.feed_forward is None else ["feed_forward"]))
        if self.width % self.heads:
            raise RegardError(f"heads: {self.heads} do not divide a width of {self.width}")
        for name in ("dropout", "attention_dropout"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise RegardError(f"{name}: is {share}; a share from 0 to less than 1 is needed")
        check_known(self, score=SCORES, activation=ACTIVATIONS, norm=NORMS)

    @property
    def head_width(self) -> int:
        """Of each head."""
        return self.width // self.heads


class LayerMemory(NamedTuple):
    """What a layer remembers between the steps of a decoder."""

    own: KeyValueCache  # keys and values of the tokens so far
    source: KeyValueCache | None  # those of the source, projected once


class TransformerLayer(nn.Module):
    """Self-attention, with `cross` attention to a source, and the feed-forward network."""

    def __init__(self, config: LayerConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.attention = new_attention(config)
        self.attention_residual = Residual(config)
        self.cross = new_attention(config) if cross else None
        self.cross_residual = Residual(config) if cross else None
        self.feed_forward = FeedForward(
            config.width, config.feed_forward or 4 * config.width, activation=config.activation, bias=config.bias
        )
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "rows places width"],
        source: Float[Tensor, "batch source width"] | KeyValueCache | None = None,
        *,
        visible: Rule | None = None,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "rows places width"]:
        """The same places, each having looked at the others and at the source.

        A source may serve several rows, those that follow one another: their places are
        then the queries of one attention, and nothing of the source is repeated.
        """
        x = self.attention_residual(x, lambda y: self.attention(y, visible=visible, turn=turn, cache=cache))
        if self.cross is not None and self.cross_residual is not None:
            assert source is not None, "a layer with cross-attention needs a source"
            x = self.cross_residual(x, lambda y: self._look_across(y, source, source_visible))
        return self.feed_forward_residual(x, self.feed_forward)

    def _look_across(self, x: Tensor, source: Tensor | KeyValueCache, visible: Rule | None) -> Tensor:
        assert self.cross is not None
        batch = len(source.keys if isinstance(source, KeyValueCache) else source)
        together = x if len(x) == batch else x.reshape(batch, -1, x.shape[-1])
        return self.cross(together, source, visible=visible).reshape(x.shape)


class Residual(nn.Module):
    """What a sublayer finds is added to what it was given, with a layer norm after that or before."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.norm_first = config.norm == "pre"
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "*batch width"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*batch width"]:
        """norm(x + sublayer(x)) as published, x + sublayer(norm(x)) as Xiong et al. 2020 would have it."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class TransformerStack(nn.Module):
    """Layers one upon the other: an encoder, with `cross` a decoder; with norms before, one more at the end.

    One that is `adding` to states that are good by themselves, with norms before, has none at the end and starts by
    adding nothing, as Zhang et al. 2019 (Fixup, 3) start residuals: what goes in comes out until more is learnt.
    """

    def __init__(self, config: LayerConfig, layers: int, *, cross: bool = False, adding: bool = False) -> None:
        super().__init__()
        assert not adding or config.norm == "pre"
        self.layers = nn.ModuleList(TransformerLayer(config, cross=cross) for _ in range(layers))
        has_norm = config.norm == "pre" and not adding
        self.norm = nn.LayerNorm(config.width, bias=config.bias) if has_norm else nn.Identity()
        for module in self.modules() if adding else ():
            if isinstance(module, MultiHeadAttention):
                nn.init.zeros_(module.output.weight)
            elif isinstance(module, FeedForward):
                nn.init.zeros_(module.back.weight)

    def forward(
        self,
        x: Float[Tensor, "batch places width"],
        source: Float[Tensor, "batch source width"] | None = None,
        *,
        visible: Rule | None = None,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """All places at once."""
        for layer in self.layers:
            x = layer(x, source, visible=visible, source_visible=source_visible, turn=turn)
        return self.norm(x)

    def paths(self, own: str, attention: str) -> tuple[str, ...]:
        """Of the attention of each layer, `attention` or `cross`, in a model that has the stack at the path `own`."""
        return tuple(f"{own}.layers.{layer}.{attention}" for layer in range(len(self.layers)))

    def new_memory(
        self, rows: int, capacity: int, source: Float[Tensor, "batch source width"] | None = None
    ) -> list[LayerMemory]:
        """Room for `capacity` places of each row, and the source as each layer sees it."""
        memory = []
        for layer in self.layers:
            assert isinstance(layer, TransformerLayer)
            own = layer.attention.new_cache(rows, capacity=capacity)
            across = None if layer.cross is None or source is None else layer.cross.remember(source)
            memory.append(LayerMemory(own, across))
        return memory

    def step(
        self,
        x: Float[Tensor, "rows places width"],
        memory: Sequence[LayerMemory],
        *,
        source_visible: Rule | None = None,
        turn: Turn | None = None,
    ) -> Float[Tensor, "rows places width"]:
        """The next places of each row, often one, which see those before them and are remembered with them."""
        visible = causal() if x.shape[1] > 1 else None  # one alone comes after all
        for layer, (own, source) in zip(self.layers, memory, strict=True):
            x = layer(x, source, visible=visible, source_visible=source_visible, turn=turn, cache=own)
        return self.norm(x)


def new_attention(config: LayerConfig) -> MultiHeadAttention:
    """The multi-head attention of a layer."""
    return MultiHeadAttention(
        config.width, config.heads, score=config.score, bias=config.bias, dropout=config.attention_dropout
    )


def check_counts(config: object, *names: str) -> None:
    """Raise a `RegardError` unless these settings are 1 or more."""
    for name in names:
        if getattr(config, name) < 1:
            raise RegardError(f"{name}: is {getattr(config, name)}; 1 is the least")
