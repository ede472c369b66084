"""Multi-head attention with any score function (Vaswani et al. 2017, 3.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import Score
from regard.attention.function_score import ScoreFunction
from regard.attention.functional import attend
from regard.attention.inputs import check_dropout
from regard.attention.normalizers import as_normalizer
from regard.attention.score_checks import check_positive_sizes, check_type
from regard.attention.scores import as_score, build_score
from regard.attention.visible import Rule, as_rule, fits_axis, map_tensor_rules
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.layers.cache import KeyValueCache

PROJECTED = ("query", "keys", "values")

SCORE_SETTINGS = {
    "score_rank": ("reduced_rank",),
    "score_hidden": ("additive", "concat"),
    "score_activation": ("additive",),
    "score_power": ("epanechnikov",),
}
"""The settings of models that only some scores have: name -> scores."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})

Turn = Callable[[Tensor], Tensor]
"""A function that adds positions to queries or keys, (*batch, heads, n, head_width), as rotary positions do."""


class MultiHeadAttention(nn.Module):
    """Multi-head attention with any score function (Vaswani et al. 2017, 3.2.2).

    With `scaled_dot` and the same parameters it equals `torch.nn.MultiheadAttention`.

    Args:
        width: Width of the queries and of the output.
        heads: Number of heads.
        head_width: Width of each head. Defaults to width / heads.
        score: A name from `regard.attention.SCORES`, a module, or a function of (query, keys) as in `attend`.
        key_width: Width of the input keys. Defaults to `width`.
        value_width: Width of the input values. Defaults to `key_width`.
        groups: Number of key and value heads, each shared by heads / groups query heads (grouped-query
            attention; 1 is multi-query attention). Defaults to `heads`.
        bias: Whether the projections add a bias.
        project: Which of `query`, `keys` and `values` get a projection (W^Q, W^K, W^V); the others are
            split into heads as they are.
        normalizer: How scores become weights, as in `attend`.
        dropout: Fraction of weights dropped in training.
        score_settings: More arguments of `build_score`, such as `rank`, for a score given by name.

    Raises:
        RegardError: If a size is not a positive integer, sizes do not divide, or a name is unknown.

    Example:
        >>> layer = MultiHeadAttention(width=512, heads=8)
        >>> out = layer(x, visible=causal())  # self-attention
        >>> out, weights = layer(x, source, visible=lengths(counts), return_weights=True)  # cross-attention
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int | None = None,
        score: str | Score | ScoreFunction = "scaled_dot",
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        groups: int | None = None,
        bias: bool = True,
        project: Collection[str] = PROJECTED,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        score_settings: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        super().__init__()
        groups = heads if groups is None else groups
        check_sizes(width, heads, head_width, groups, project, key_width=key_width, value_width=value_width)
        self.heads, self.groups, self.head_width = heads, groups, head_width or width // heads
        key_width = key_width or width
        self.widths = {"query": width, "keys": key_width, "values": value_width or key_width}
        self.query = self._build_projection("query", width, heads, bias, project)
        self.keys = self._build_projection("keys", key_width, self.groups, bias, project)
        self.values = self._build_projection("values", value_width or key_width, self.groups, bias, project)
        self.output = new_linear(heads * self.head_width, width, bias)
        grid = heads if self.groups == heads else (self.groups, heads // self.groups)
        if isinstance(score, str):
            score = build_score(score, self.head_width, self.head_width, heads=grid, **score_settings)
        self.score = as_score(score)
        as_normalizer(normalizer, self.score)
        check_dropout("MultiHeadAttention", dropout)
        self.normalizer, self.dropout = normalizer, dropout

    def forward(
        self,
        query: Float[Tensor, "*batch queries width"],
        keys: Float[Tensor, "*batch keys key_width"] | KeyValueCache | None = None,
        values: Float[Tensor, "*batch keys value_width"] | None = None,
        *,
        visible: Rule | Tensor | None = None,
        bias: Float[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
        turn: Turn | None = None,
        key_turn: Turn | None = None,
        return_weights: bool = False,
    ) -> Float[Tensor, "*batch queries width"] | tuple[Float[Tensor, "*batch queries width"], Weights]:
        """Attend from each query to the keys.

        Args:
            query: The queries, (*batch, n, width).
            keys: The keys, (*batch, m, key width), or a filled cache from `remember`, so that a source
                is projected only once. Defaults to the queries (self-attention).
            values: The values, (*batch, m, value width). Defaults to the keys.
            visible: The keys each query may attend to, as in `attend`. A tensor must broadcast to
                (*batch, n, m), or to (*batch, heads, n, m) with one more axis.
            bias: A tensor added to the scores, with the same shapes as `visible`.
            cache: The keys and values of earlier positions, from `new_cache`. Those of the queries are
                appended, and the queries attend to all of them.
            turn: A function applied to the heads of the queries before they are compared, for rotary
                positions. In self-attention it is applied to the keys, too.
            key_turn: A function applied to the heads of `keys` in the same way. The keys of a cache from
                `remember` are already turned.
            return_weights: Whether to return the weights, too.

        Returns:
            The output, (*batch, n, width); with `return_weights`, a tuple of the output and the
            `Weights`, (*batch, heads, n, m), or (*batch, groups, heads / groups, n, m) with groups.

        Raises:
            RegardError: If shapes or types do not match, or arguments cannot be combined.

        Example:
            >>> cache = layer.new_cache(2, capacity=100)
            >>> with torch.no_grad():
            ...     for x in steps:  # (2, 1, width)
            ...         out = layer(x, cache=cache)
        """
        check_memory(keys, cache, key_turn)
        query_heads = apply_rotation(self._split_heads(self.query(self._check_input("query", query)), self.heads), turn)
        batch = query.shape[:-2]
        if visible is not None:
            visible = map_tensor_rules(as_rule(visible), lambda matrix: self._add_head_axes("visible", matrix, batch))
        if bias is not None:
            bias = self._add_head_axes("bias", bias, batch)
        length_before = 0 if cache is None else cache.length
        lazy = cache is None and not isinstance(keys, KeyValueCache)  # the buffers of a cache are overwritten
        memory = self._project_memory(
            query if keys is None else keys, values, cache, turn if keys is None else key_turn
        )
        try:
            attended = attend(
                self._split_groups(query_heads, self.heads // self.groups),
                self._split_groups(memory[0], 1),
                self._split_groups(memory[1], 1),
                self.score,
                visible=visible,
                bias=bias,
                normalizer=self.normalizer,
                dropout=self.dropout if self.training else 0.0,
                return_weights=return_weights,
                lazy=lazy,
            )
        except RegardError:
            if cache is not None:
                cache.length = length_before  # a failed call must not change the cache
            raise
        output, weights = attended if isinstance(attended, tuple) else (attended, None)
        result: Tensor = self.output(output.reshape(query_heads.shape).transpose(-3, -2).flatten(-2))
        return result if weights is None else (result, weights)

    def new_cache(
        self, *batch: int, capacity: int, dtype: torch.dtype | None = None, device: str | torch.device | None = None
    ) -> KeyValueCache:
        """Create an empty cache for this layer.

        Args:
            *batch: The batch axes of the queries.
            capacity: Maximum number of positions.
            dtype: Type of keys and values. Defaults to the type the layer computes in.
            device: Defaults to the device of the layer.

        Returns:
            A cache for the `cache` argument of `forward`.

        Example:
            >>> cache = layer.new_cache(2, capacity=100)
        """
        device = torch.device(device or self.output.weight.device)
        if dtype is None:
            lower = torch.is_autocast_enabled(device.type) and self.output.weight.dtype != torch.float64
            dtype = torch.get_autocast_dtype(device.type) if lower else self.output.weight.dtype
        return KeyValueCache(batch, self.groups, capacity, self.head_width, dtype=dtype, device=device)

    def remember(
        self,
        keys: Float[Tensor, "*batch keys key_width"],
        values: Float[Tensor, "*batch keys value_width"] | None = None,
        *,
        turn: Turn | None = None,
    ) -> KeyValueCache:
        """Project the keys and values of a source once.

        Args:
            keys: The states of the source, (*batch, m, key width).
            values: The values, (*batch, m, value width). Defaults to the keys.
            turn: A function applied to the heads of the keys, for rotary positions.

        Returns:
            A filled cache for the `keys` argument of `forward`.

        Example:
            >>> memory = layer.remember(source)
            >>> out = layer(x, memory)
        """
        key_heads, value_heads = self._project_memory(keys, values, turn=turn)
        batch, m = key_heads.shape[:-3], key_heads.shape[-2]
        memory = self.new_cache(*batch, capacity=m, dtype=key_heads.dtype, device=key_heads.device)
        memory.append(key_heads, value_heads)
        return memory

    def _project_memory(
        self,
        keys: Tensor | KeyValueCache,
        values: Tensor | None = None,
        cache: KeyValueCache | None = None,
        turn: Turn | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values split into heads, (*batch, groups, m, head_width)."""
        if isinstance(keys, KeyValueCache):
            if values is not None or cache is not None:
                raise RegardError("MultiHeadAttention: values and cache cannot be combined with a cache passed as keys")
            if keys.length == 0 < keys.capacity:
                raise RegardError(
                    "MultiHeadAttention: keys is an empty cache; fill it with remember, or pass it as cache"
                )
            return keys.keys, keys.values
        value_heads = keys if values is None else values
        key_heads = apply_rotation(self._split_heads(self.keys(self._check_input("keys", keys)), self.groups), turn)
        value_heads = self._split_heads(self.values(self._check_input("values", value_heads)), self.groups)
        if cache is None:
            return key_heads, value_heads
        cache.append(key_heads, value_heads)
        return cache.keys, cache.values

    def _build_projection(self, name: str, width: int, heads: int, bias: bool, project: Collection[str]) -> nn.Module:
        projected_width = heads * self.head_width
        if name in project:
            return new_linear(width, projected_width, bias)
        if width != projected_width:
            raise RegardError(
                f"MultiHeadAttention: {name} without a projection must have width {projected_width} "
                f"({heads} heads of {self.head_width}), got {width}"
            )
        return nn.Identity()

    def _split_heads(self, projected: Tensor, heads: int) -> Tensor:
        """Reshape (*batch, n, heads * head_width) to (*batch, heads, n, head_width)."""
        return projected.unflatten(-1, (heads, self.head_width)).transpose(-3, -2)

    def _split_groups(self, tensor: Tensor, group_size: int) -> Tensor:
        """Reshape (*batch, groups * size, ...) to (*batch, groups, size, ...) if heads are grouped."""
        return tensor if self.groups == self.heads else tensor.unflatten(-3, (self.groups, group_size))

    def _check_input(self, name: str, tensor: Tensor) -> Tensor:
        """Return an input; raise a `RegardError` if its shape or type does not fit."""
        description = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        if not isinstance(tensor, Tensor) or tensor.ndim < 2 or tensor.shape[-1] != self.widths[name]:
            raise RegardError(
                f"MultiHeadAttention: {name} must be a tensor of shape (*batch, positions, {self.widths[name]}), "
                f"got {description}"
            )
        projection = getattr(self, name)
        if type(projection) is nn.Linear:  # others, such as 8-bit layers, check their own input
            check_type("MultiHeadAttention", name, tensor, projection.weight)
        return tensor

    def _add_head_axes(self, name: str, tensor: Tensor, batch: torch.Size) -> Tensor:
        """Add head axes to a tensor that broadcasts to (*batch, n, m)."""
        if not isinstance(tensor, Tensor) or tensor.ndim < 3:
            return tensor
        leading = tensor.shape[:-2]
        has_head_axis = len(leading) > len(batch)
        expected = (*batch, self.heads) if has_head_axis else batch
        if len(leading) > len(expected) or not all(map(fits_axis, leading[::-1], expected[::-1])):
            raise RegardError(
                f"{name} must have shape ({', '.join(map(str, batch))}, n, m), or with an axis for the heads "
                f"(1 or {', '.join(map(str, batch))}, {self.heads}, n, m), got {tuple(tensor.shape)}"
            )
        tensor = tensor if has_head_axis else tensor.unsqueeze(-3)
        if self.groups == self.heads:
            return tensor
        return tensor.unsqueeze(-3) if tensor.shape[-3] == 1 else self._split_groups(tensor, self.heads // self.groups)


def check_memory(keys: Tensor | KeyValueCache | None, cache: object, key_turn: Turn | None) -> None:
    """Raise a `RegardError` if the cache is none, or keys cannot be turned."""
    if key_turn is not None and (keys is None or isinstance(keys, KeyValueCache)):
        advice = "self-attention applies turn to the keys" if keys is None else "pass it to remember as turn"
        raise RegardError(f"MultiHeadAttention: key_turn requires keys as a tensor; {advice}")
    if cache is not None and not isinstance(cache, KeyValueCache):
        raise RegardError(f"MultiHeadAttention: cache must come from new_cache, got {type(cache).__name__}")


def check_sizes(
    width: int, heads: int, head_width: int | None, groups: int, project: Collection[str], **widths: int | None
) -> None:
    """Raise a `RegardError` if sizes are not positive or do not divide, or for the projection of something else."""
    sizes = {"width": width, "heads": heads, "head_width": head_width, "groups": groups, **widths}
    check_positive_sizes("MultiHeadAttention", **{name: size for name, size in sizes.items() if size is not None})
    if head_width is None and width % heads:
        raise RegardError(
            f"MultiHeadAttention: width must be divisible by heads, got {width} and {heads}; or set head_width"
        )
    if heads % groups:
        raise RegardError(f"MultiHeadAttention: heads must be divisible by groups, got {heads} and {groups}")
    unknown = [name for name in project if name not in PROJECTED]
    if unknown:
        raise RegardError(f'MultiHeadAttention: unknown "{unknown[0]}" in project; choose from query, keys, values')


def check_score_settings(config: Any, *scores: str) -> None:
    """Raise a `RegardError` for a score setting of a config that none of its scores has."""
    for name, names in SCORE_SETTINGS.items():
        if getattr(config, name) != type(config).__dataclass_fields__[name].default and not {*scores} & {*names}:
            raise RegardError(f"{name} requires the score {' or '.join(names)}, got {' and '.join(scores)}")


def get_score_settings(config: Any) -> dict[str, Any]:
    """Return the score settings of a config as arguments of `build_score`, without those that are not set."""
    settings = {name.removeprefix("score_"): getattr(config, name) for name in SCORE_SETTINGS}
    return {name: value for name, value in settings.items() if value is not None}


def apply_rotation(heads: Float[Tensor, "..."], turn: Turn | None) -> Float[Tensor, "..."]:
    """Apply a rotation to the heads of queries or keys, if there is one."""
    return heads if turn is None else turn(heads)


def new_linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """Create a linear layer with Glorot initialization (Glorot and Bengio 2010) and a bias of zero."""
    linear = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
