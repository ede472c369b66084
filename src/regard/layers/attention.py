"""Multi-head attention with any score function (Vaswani et al. 2017, 3.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import Score
from regard.attention.functional import attend
from regard.attention.inputs import check_share
from regard.attention.normalise import as_normaliser
from regard.attention.score_checks import check_sizes, check_type
from regard.attention.scores import as_score, build_score
from regard.attention.visible import Rule, as_rule, over_given
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.layers.cache import KeyValueCache

PROJECTED = ("query", "keys", "values")

Turn = Callable[[Tensor], Tensor]
"""What tells queries and keys, (*batch, heads, n, head_width), where they stand."""


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in a projection of its own, joined by one more.

    With `scaled_dot` and the same parameters it equals `torch.nn.MultiheadAttention`.

    Args:
        width: Of queries, and of the output.
        heads: How many attentions.
        head_width: Of each head; width / heads unless told otherwise.
        score: Any name of `regard.attention.SCORES`, or a module.
        key_width: Of the keys that come in; that of the queries unless told otherwise.
        value_width: Of the values that come in; that of the keys unless told otherwise.
        groups: How many heads keys and values have; each serves heads / groups queries.
        bias: Whether the projections add a bias.
        project: Which of query, keys and values get a projection (W^Q, W^K, W^V); without
            one, what comes in is cut into heads as it is.
        normaliser: As in `attend`.
        dropout: The share of weights dropped in training.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int | None = None,
        score: str | Score = "scaled_dot",
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        groups: int | None = None,
        bias: bool = True,
        project: Collection[str] = PROJECTED,
        normaliser: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes("MultiHeadAttention", width=width, heads=heads)
        open_ones = {"head_width": head_width, "key_width": key_width, "value_width": value_width, "groups": groups}
        check_sizes("MultiHeadAttention", **{name: size for name, size in open_ones.items() if size is not None})
        if head_width is None and width % heads:
            raise RegardError(f"MultiHeadAttention: {heads} heads do not divide a width of {width}; set head_width")
        self.heads, self.head_width = heads, head_width or width // heads
        self.groups = heads if groups is None else groups
        if heads % self.groups:
            raise RegardError(f"MultiHeadAttention: {self.groups} groups do not divide {heads} heads")
        unknown = [name for name in project if name not in PROJECTED]
        if unknown:
            raise RegardError(f'MultiHeadAttention: project names "{unknown[0]}"; there are query, keys and values')
        key_width = key_width or width
        self.widths = {"query": width, "keys": key_width, "values": value_width or key_width}
        self.query = self._projection("query", width, heads, bias, project)
        self.keys = self._projection("keys", key_width, self.groups, bias, project)
        self.values = self._projection("values", value_width or key_width, self.groups, bias, project)
        self.output = new_linear(heads * self.head_width, width, bias)
        grid = heads if self.groups == heads else (self.groups, heads // self.groups)
        if isinstance(score, str):
            score = build_score(score, self.head_width, self.head_width, heads=grid)
        self.score = as_score(score)
        as_normaliser(normaliser, self.score)
        check_share("MultiHeadAttention", dropout)
        self.normaliser, self.dropout = normaliser, dropout

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
        return_weights: bool = False,
    ) -> Float[Tensor, "*batch queries width"] | tuple[Float[Tensor, "*batch queries width"], Weights]:
        """Attend from each query to the keys.

        Without keys the queries attend to themselves; with `cache`, to all that came
        before as well, to which they are added. Keys may be a filled cache, made by
        `remember`, so that a source is projected once. Tensors given for `visible` and
        `bias` broadcast to (*batch, n, m), or with an axis more to (*batch, heads, n, m).
        Rotary positions `turn` queries and keys in their heads, before they meet or are
        kept. The weights are (*batch, heads, n, m), with groups (*batch, groups, heads, n, m).
        """
        if turn is not None and keys is not None:
            raise RegardError("MultiHeadAttention: turn is for queries that attend to themselves; leave out keys")
        ours = turned(self._heads(self.query(self._checked("query", query)), self.heads), turn)
        batch = query.shape[:-2]
        if visible is not None:
            visible = over_given(as_rule(visible), lambda matrix: self._with_heads("visible", matrix, batch))
        if bias is not None:
            bias = self._with_heads("bias", bias, batch)
        if cache is not None and not isinstance(cache, KeyValueCache):
            raise RegardError(f"MultiHeadAttention: cache is {type(cache).__name__}; new_cache makes one that fits")
        before = 0 if cache is None else cache.length
        lazy = cache is None and not isinstance(keys, KeyValueCache)  # memory of a cache is written again
        memory = self._memory(query if keys is None else keys, values, cache, turn)
        try:
            found = attend(
                self._grouped(ours, self.heads // self.groups),
                self._grouped(memory[0], 1),
                self._grouped(memory[1], 1),
                self.score,
                visible=visible,
                bias=bias,
                normaliser=self.normaliser,
                dropout=self.dropout if self.training else 0.0,
                return_weights=return_weights,
                lazy=lazy,
            )
        except RegardError:
            if cache is not None:
                cache.length = before  # a call that is refused leaves nothing behind
            raise
        output, weights = found if isinstance(found, tuple) else (found, None)
        joined = output.reshape(ours.shape).transpose(-3, -2).flatten(-2)
        result: Tensor = self.output(joined)
        return result if weights is None else (result, weights)

    def new_cache(
        self, *batch: int, capacity: int, dtype: torch.dtype | None = None, device: str | torch.device | None = None
    ) -> KeyValueCache:
        """Room for `capacity` positions, in the type and on the device this layer works in unless told otherwise."""
        device = torch.device(device or self.output.weight.device)
        if dtype is None:
            lower = torch.is_autocast_enabled(device.type) and self.output.weight.dtype != torch.float64
            dtype = torch.get_autocast_dtype(device.type) if lower else self.output.weight.dtype
        return KeyValueCache(batch, self.groups, capacity, self.head_width, dtype=dtype, device=device)

    def remember(
        self,
        keys: Float[Tensor, "*batch keys key_width"],
        values: Float[Tensor, "*batch keys value_width"] | None = None,
    ) -> KeyValueCache:
        """Keys and values of a source, projected once, to be given as `keys` again and again."""
        theirs, found = self._memory(keys, values)
        batch, m = theirs.shape[:-3], theirs.shape[-2]
        memory = self.new_cache(*batch, capacity=m, dtype=theirs.dtype, device=theirs.device)
        memory.append(theirs, found)
        return memory

    def _memory(
        self,
        keys: Tensor | KeyValueCache,
        values: Tensor | None = None,
        cache: KeyValueCache | None = None,
        turn: Turn | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Keys and values in heads: (*batch, groups, m, head_width)."""
        if isinstance(keys, KeyValueCache):
            if values is not None or cache is not None:
                raise RegardError("MultiHeadAttention: a filled cache given as keys leaves no room for values or cache")
            if keys.length == 0 < keys.capacity:
                raise RegardError("MultiHeadAttention: keys is an empty cache; remember fills one, or give it as cache")
            return keys.keys, keys.values
        found = keys if values is None else values
        theirs = turned(self._heads(self.keys(self._checked("keys", keys)), self.groups), turn)
        found = self._heads(self.values(self._checked("values", found)), self.groups)
        if cache is None:
            return theirs, found
        cache.append(theirs, found)
        return cache.keys, cache.values

    def _projection(self, name: str, width: int, heads: int, bias: bool, project: Collection[str]) -> nn.Module:
        wide = heads * self.head_width
        if name in project:
            return new_linear(width, wide, bias)
        if width != wide:
            raise RegardError(
                f"MultiHeadAttention: {name} without a projection have width {width}; "
                f"{heads} heads of {self.head_width} need {wide}"
            )
        return nn.Identity()

    def _heads(self, projected: Tensor, heads: int) -> Tensor:
        """(*batch, n, heads * head_width) -> (*batch, heads, n, head_width)."""
        return projected.unflatten(-1, (heads, self.head_width)).transpose(-3, -2)

    def _grouped(self, tensor: Tensor, each: int) -> Tensor:
        """(*batch, groups * each, ...) -> (*batch, groups, each, ...), where there are groups."""
        return tensor if self.groups == self.heads else tensor.unflatten(-3, (self.groups, each))

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        """What comes in, or a `RegardError` that says what would fit."""
        found = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        if not isinstance(tensor, Tensor) or tensor.ndim < 2 or tensor.shape[-1] != self.widths[name]:
            raise RegardError(
                f"MultiHeadAttention: {name} is {found}; a tensor (*batch, positions, {self.widths[name]}) is needed"
            )
        projection = getattr(self, name)
        if type(projection) is nn.Linear:  # others, as those with weights of 8 bits, know what they take
            check_type("MultiHeadAttention", name, tensor, projection.weight)
        return tensor

    def _with_heads(self, name: str, tensor: Tensor, batch: torch.Size) -> Tensor:
        """Give a tensor that broadcasts to (*batch, n, m) its axes for heads."""
        if not isinstance(tensor, Tensor) or tensor.ndim < 3:
            return tensor
        leading = tensor.shape[:-2]
        apart = len(leading) > len(batch)  # it has an axis for the heads
        wanted = (*batch, self.heads) if apart else batch
        if len(leading) > len(wanted) or any(
            a not in (1, b) for a, b in zip(leading[::-1], wanted[::-1], strict=False)
        ):
            raise RegardError(
                f"{name}: has shape {tuple(tensor.shape)}; give ({', '.join(map(str, batch))}, n, m), "
                f"or with an axis for the heads (1 or {', '.join(map(str, batch))}, {self.heads}, n, m)"
            )
        tensor = tensor if apart else tensor.unsqueeze(-3)
        if self.groups == self.heads:
            return tensor
        return tensor.unsqueeze(-3) if tensor.shape[-3] == 1 else self._grouped(tensor, self.heads // self.groups)


def turned(heads: Float[Tensor, "..."], turn: Turn | None) -> Float[Tensor, "..."]:
    """Queries or keys in their heads, told where they stand if there is a turn."""
    return heads if turn is None else turn(heads)


def new_linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """A projection as Glorot and Bengio (2010) start it, with a bias of zero."""
    linear = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
