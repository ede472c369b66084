"""Measures of attention heads: numbers that tell what a head does, computed from lazy weights a few rows at a time.

    measure_heads(weights, tokens)["induction"]  # (*batch,), a number for each head

Each measure is a number per query, averaged over the queries for which it is defined; `MEASURES` lists
them with their definitions and sources. All of them share one pass over the rows, so memory is linear
in the number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.call import iter_blocks
from regard.attention.visible import insert_batch_axes
from regard.attention.weights import Weights
from regard.errors import RegardError

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
    *batch, n, m = weights.shape
    if n > m or n == 0:
        raise RegardError(f"measure_heads: expected weights of self-attention, got shape {tuple(weights.shape)}")
    if tokens is not None and tokens.shape[-1] != m:
        raise RegardError(f"measure_heads: expected one token for each of {m} keys, got {tokens.shape[-1]}")
    ids = None if tokens is None else insert_batch_axes(tokens.to(weights.device), 1, weights.shape)
    names = [name for name, measure in MEASURES.items() if ids is not None or not measure.needs_tokens]
    sums = torch.zeros(len(names), *batch, dtype=torch.float64, device=weights.device)
    counts = torch.zeros_like(sums)
    for block in iter_row_blocks(weights, ids, queries):
        for index, name in enumerate(names):
            values = MEASURES[name].compute(block)
            sums[index] += values.nansum(-1)
            counts[index] += (~values.isnan()).sum(-1)
    return dict(zip(names, sums / counts, strict=True))


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
