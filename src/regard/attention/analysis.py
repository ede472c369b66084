"""Measures of attention heads, and attention followed through layers, computed from lazy weights.

    measure_heads(weights, tokens)["induction"]  # (*batch,), a number for each head
    span(3, 9)(weights)  # (*batch, queries), the attention of each query to these tokens
    rollout(recording)  # (batch, tokens), followed back from the last token

The measures of heads are numbers per query, averaged over the queries for which they are defined; `MEASURES`
lists them with their definitions and sources. They share one pass over the rows. `span`, `sink`, `previous`
and `induction` are numbers for each query, which `watch(model, keep=...)` takes, too. Memory is linear in the
number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.call import iter_blocks
from regard.attention.score_checks import is_number
from regard.attention.visible import insert_batch_axes
from regard.attention.weights import Weights
from regard.errors import RegardError

RESIDUAL = 0.5  # the share of a layer's output that its residual connection brings, in attention rollout
DIAGONAL_ROWS = 64  # rows of a square block whose diagonal is wanted

AT_ONCE = {"cpu": 2**21, "cuda": 2**26}  # weights to hold at a time, over all heads


class RowBlock(NamedTuple):
    """Some rows of self-attention weights, and the tokens of the text."""

    weights: Float[Tensor, "*batch rows keys"]
    positions: Int[Tensor, " rows"]  # of the queries, among the keys
    tokens: Int[Tensor, "*#batch keys"] | None


class Measure(NamedTuple):
    """A measure of heads: its definition, its source, and its value for each row (NaN where it is undefined)."""

    definition: str
    source: str
    compute: Callable[[RowBlock], Float[Tensor, "*batch rows"]]
    needs_tokens: bool = False


def compute_entropy(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return -sum(w log w) of each row."""
    return torch.special.entr(block.weights).sum(-1)


def compute_first(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return the weight on the first token; undefined for that token's own row."""
    return block.weights[..., 0].masked_fill(block.positions < 1, torch.nan)


def compute_previous(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return the weight on the token before; undefined for the first row."""
    before = (block.positions - 1).clamp_min(0)[:, None].expand(*block.weights.shape[:-1], 1)
    return block.weights.gather(-1, before).squeeze(-1).masked_fill(block.positions < 1, torch.nan)


def compute_induction(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return the weight on all tokens that followed the row's token before; undefined if it did not occur before."""
    follows = find_occurrences(block, block.positions)[..., :-1]  # [..., i, j]: key j holds the token of row i
    shares = (block.weights[..., 1:] * follows).sum(-1)
    return shares.masked_fill(~follows.any(-1), torch.nan)


def compute_retrieval(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return 1 if the key with the largest weight holds the next token, else 0.

    Undefined if the next token did not occur up to the row's position.
    """
    last = block.weights.shape[-1] - 1
    holds_next = find_occurrences(block, (block.positions + 1).clamp_max(last), include_own=True)
    best = block.weights.argmax(-1, keepdim=True)
    hits = holds_next.expand(block.weights.shape).gather(-1, best).squeeze(-1).to(block.weights.dtype)
    return hits.masked_fill(~holds_next.any(-1) | (block.positions == last), torch.nan)


def compute_distance(block: RowBlock) -> Float[Tensor, "*batch rows"]:
    """Return the distance to the keys in tokens, averaged by weight; undefined for a row without weights."""
    distances = (block.positions[:, None] - torch.arange(block.weights.shape[-1], device=block.weights.device)).abs()
    return (block.weights * distances).sum(-1) / block.weights.sum(-1)


MEASURES: dict[str, Measure] = {
    "entropy": Measure("entropy of the weights, in nats", "Clark et al. 2019", compute_entropy),
    "first": Measure("weight on the first token", "Vig and Belinkov 2019; Xiao et al. 2024", compute_first),
    "previous": Measure("weight on the token before", "Clark et al. 2019; Olsson et al. 2022", compute_previous),
    "induction": Measure(
        "weight on the tokens that followed earlier occurrences of the current token (prefix matching)",
        "Olsson et al. 2022",
        compute_induction,
        needs_tokens=True,
    ),
    "retrieval": Measure(
        "how often the largest weight is on an earlier occurrence of the token that comes next (copying)",
        "after Wu et al. 2024, with the given text instead of a generated one",
        compute_retrieval,
        needs_tokens=True,
    ),
    "distance": Measure("tokens between query and key, averaged by weight", "Vig and Belinkov 2019", compute_distance),
}
"""The measures of heads, by name."""


def measure_heads(
    weights: Weights, tokens: Int[Tensor, "*first_batch keys"] | None = None, *, queries: int | None = None
) -> dict[str, Float[Tensor, " *batch"]]:
    """Measure heads of self-attention.

    Args:
        weights: The weights, (*batch, queries, keys); the queries are the last keys.
        tokens: The token ids of the text. The leading axes are the first axes of *batch. Without them,
            the measures that compare tokens are left out.
        queries: Measure only so many queries, evenly spaced (default: all).

    Returns:
        For each measure in `MEASURES` its mean over the queries for which it is defined, NaN if there are none.

    Raises:
        RegardError: If there are more queries than keys, or not one token for each key.

    Example:
        >>> out, weights = attend(query, keys, values, visible=causal(), return_weights=True)
        >>> measure_heads(weights, tokens)["previous"]
    """
    ids = check_self_attention("measure_heads", weights, tokens)
    batch = weights.shape[:-2]
    names = [name for name, measure in MEASURES.items() if ids is not None or not measure.needs_tokens]
    sums = torch.zeros(len(names), *batch, dtype=torch.float64, device=weights.device)
    counts = torch.zeros_like(sums)
    for block in iter_row_blocks(weights, ids, queries):
        for index, name in enumerate(names):
            values = MEASURES[name].compute(block)
            sums[index] += values.nansum(-1)
            counts[index] += (~values.isnan()).sum(-1)
    return dict(zip(names, sums / counts, strict=True))


def check_self_attention(
    caller: str, weights: Weights, tokens: Int[Tensor, "*first_batch keys"] | None = None
) -> Int[Tensor, "*#batch keys"] | None:
    """Return the tokens with all axes of *batch; raise a `RegardError` if weights or tokens do not fit."""
    *_, n, m = weights.shape
    if n > m or n == 0:
        raise RegardError(f"{caller}: expected weights of self-attention, got shape {tuple(weights.shape)}")
    if tokens is None:
        return None
    if tokens.shape[-1] != m:
        raise RegardError(f"{caller}: expected one token for each of {m} keys, got {tokens.shape[-1]}")
    return insert_batch_axes(tokens.to(weights.device), 1, weights.shape)


def iter_row_blocks(weights: Weights, tokens: Tensor | None, queries: int | None) -> Iterator[RowBlock]:
    """Iterate over all rows, or over some evenly spaced ones, in blocks that fit the memory budget."""
    *batch, n, m = weights.shape
    rows = torch.arange(n, device=weights.device)
    if queries is not None and queries < n:
        rows = torch.linspace(0, n - 1, queries, device=weights.device).round().long()
    budget = AT_ONCE.get(weights.device.type, AT_ONCE["cuda"])
    with torch.no_grad():
        for part in iter_blocks(range(len(rows)), max(1, budget // max(1, m * torch.Size(batch).numel()))):
            yield RowBlock(weights.block(rows[part], slice(0, m)), rows[part] + m - n, tokens)


def find_occurrences(
    block: RowBlock, wanted: Int[Tensor, " rows"], *, include_own: bool = False
) -> Bool[Tensor, "*#batch rows keys"]:
    """Return which keys before each row, or up to it, hold the token at the position that each row wants."""
    assert block.tokens is not None
    same = block.tokens[..., None, :] == block.tokens[..., wanted, None]
    keys = torch.arange(same.shape[-1], device=same.device)
    return same & (keys < block.positions[:, None] + include_own)


@dataclass(frozen=True, eq=False)
class QueryMeasure:
    """A number for each query: call it with weights, or pass it to `watch` as `keep`."""

    name: str
    compute: Callable[[Weights], Float[Tensor, "*batch queries"]]
    is_relative: bool = False  # whether it refers to keys by their distance from the query, not by their index

    def __call__(self, weights: Weights) -> Float[Tensor, "*batch queries"]:
        """Return the number of each query; NaN where it is undefined."""
        return self.compute(weights)

    def __repr__(self) -> str:
        return self.name


def span(start: int, stop: int | None = None) -> QueryMeasure:
    """Measure the attention of each query to the tokens from `start` to `stop`, as in a slice; differentiable.

    Example:
        >>> span(3, 9)(weights).mean(-1)  # of each head
        >>> with watch(model, keep=span(3, 9)) as recording:
        ...     model(batch)
    """
    for name, bound in (("start", start), ("stop", stop)):
        if not isinstance(bound, int | None) or isinstance(bound, bool):
            raise RegardError(f"span: {name} must be an integer, got {bound!r}")
    return QueryMeasure(f"span({start}, {stop})", lambda weights: sum_span(weights, slice(start, stop)))


def sink(count: int = 1) -> QueryMeasure:
    """Measure the attention of each query to the first tokens, where attention goes that is not needed elsewhere.

    Source: Xiao et al. 2024. By name: `keep="sink"`, or `keep="sink:4"` for the first four tokens.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise RegardError(f"sink: expected a positive number of tokens, got {count!r}")
    return QueryMeasure(f"sink:{count}", span(0, count).compute)


def previous() -> QueryMeasure:
    """Measure the attention of each query to the token before; undefined for the first. By name: `keep="previous"`."""
    return QueryMeasure("previous", take_previous, is_relative=True)


def induction(tokens: Int[Tensor, "*first_batch keys"]) -> QueryMeasure:
    """Measure the attention of each query to the tokens that followed earlier occurrences of its own token.

    That is prefix matching (Olsson et al. 2022). It is undefined for a token that did not occur before, and
    has no gradient.

    Args:
        tokens: The token ids of the text; the leading axes are the first axes of *batch.
    """

    def compute(weights: Weights) -> Float[Tensor, "*batch queries"]:
        ids = check_self_attention("induction", weights, tokens)
        return torch.cat([compute_induction(block) for block in iter_row_blocks(weights, ids, None)], -1)

    return QueryMeasure("induction", compute)


QUERY_MEASURES: dict[str, Callable[..., QueryMeasure]] = {"previous": previous, "sink": sink}
"""The measures of queries that `keep` of `watch` takes by name; `sink` also with a number of tokens, `sink:4`."""


def as_query_measure(name: str) -> QueryMeasure | None:
    """Return the measure of a name such as "previous" or "sink:4"; None if there is none."""
    kind, colon, count = name.partition(":")
    if kind == "sink" and count.isdecimal():
        return sink(int(count))
    return QUERY_MEASURES[kind]() if kind in QUERY_MEASURES and not colon else None


def sum_span(weights: Weights, keys: slice) -> Float[Tensor, "*batch queries"]:
    """Return the sum of the weights of each query on a slice of the keys."""
    chosen = torch.zeros(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    chosen[keys] = 1
    return weights @ chosen


def take_previous(weights: Weights) -> Float[Tensor, "*batch queries"]:
    """Return the weight of each query on the token before it, from square blocks along the diagonal."""
    check_self_attention("previous", weights)
    *batch, n, m = weights.shape
    first = m - n - 1  # the key before that of the first query
    parts = [torch.full((*batch, max(0, -first)), torch.nan, dtype=weights.dtype, device=weights.device)]
    for rows in iter_blocks(range(max(0, -first), n), DIAGONAL_ROWS):
        block = weights.block(rows, slice(rows.start + first, rows.stop + first))
        parts.append(block.diagonal(dim1=-2, dim2=-1))
    return torch.cat(parts, -1)


def rollout(
    layers: Mapping[str, Sequence[Weights]] | Sequence[Weights], position: int = -1, *, residual: float = RESIDUAL
) -> Float[Tensor, "*batch tokens"]:
    """Follow attention back from one position through all layers to the tokens (Abnar and Zuidema 2020).

    Weights are averaged over the heads, and each layer keeps a share of what it reads by its residual connection.
    Only one number per token is carried from layer to layer, so memory is linear in the number of tokens, and
    the result is differentiable if the weights are.

    Args:
        layers: The self-attention of each layer from the first to the last, (batch, *heads, tokens, tokens), or
            (tokens, tokens) without a batch; or what `watch` recorded of one forward pass.
        position: The token to start from (default: the last, whose features predict the next token).
        residual: The share of the residual connection.

    Returns:
        The share of each token, (batch, tokens); shares sum to one.

    Raises:
        RegardError: If the layers are not those of one pass of self-attention, or a number is out of range.

    Example:
        >>> with watch(model) as recording:
        ...     model(batch)
        >>> rollout(recording)
    """
    last_first = check_layers(layers)[::-1]
    count = last_first[0].shape[-1]
    if not isinstance(position, int) or not -count <= position < count:
        raise RegardError(f"rollout: position must be that of one of {count} tokens, got {position!r}")
    if not is_number(residual) or not 0 <= residual <= 1:
        raise RegardError(f"rollout: residual must be at least 0 and at most 1, got {residual!r}")
    shares = torch.zeros(count, dtype=last_first[0].dtype, device=last_first[0].device)
    shares[position] = 1
    for weights in last_first:
        shares = residual * shares + (1 - residual) * carry_back(weights, shares)
    return shares


def carry_back(weights: Weights, shares: Float[Tensor, "*#batch tokens"]) -> Float[Tensor, "*batch tokens"]:
    """Return the shares that tokens have in the input of a layer from those in its output, averaged over heads."""
    heads = max(0, len(weights.shape) - 3)
    factor = shares.reshape(*shares.shape[:-1], *(1,) * heads, shares.shape[-1], 1)
    carried = (weights.mT @ factor).squeeze(-1)
    return carried.flatten(1, heads).mean(1) if heads else carried


def check_layers(layers: Mapping[str, Sequence[Weights]] | Sequence[Weights]) -> list[Weights]:
    """Return the weights of each layer; raise a `RegardError` if they are not those of one pass of self-attention."""
    if isinstance(layers, Mapping):
        for path, calls in layers.items():
            if len(calls) != 1:
                raise RegardError(
                    f"rollout: {path!r} has {len(calls)} calls; watch one pass, or pass the weights of each layer"
                )
        layers = [calls[0] for calls in layers.values()]
    if not layers:
        raise RegardError("rollout: expected the weights of at least one layer, got none")
    for weights in layers:
        if not isinstance(weights, Weights):
            raise RegardError(f'rollout: expected Weights, got {type(weights).__name__}; watch with keep="all"')
        if weights.shape[-2] != weights.shape[-1] or weights.shape[-1] != layers[0].shape[-1]:
            shapes = ", ".join(str(tuple(layer.shape)) for layer in layers)
            raise RegardError(f"rollout: expected self-attention over the same tokens in all layers, got {shapes}")
    return list(layers)
