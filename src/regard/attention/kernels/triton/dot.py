"""Reductions of a softmax over dot products by Triton: received, entropy and argmax in one pass, top:K in three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, iter_blocks
from regard.attention.kernels.kernel import NOT_OF_FORM, AttentionKernel
from regard.attention.kernels.sdpa import to_four_axes
from regard.attention.kernels.triton.support import LAUNCH_OPTIONS, get_call_reason, pad_width, prepare_rule
from regard.attention.normalizers import Softmax

MAX_WIDTH = 256
MAX_TOP = 16
MAX_GROUPS = 16_384
GROUP = 16  # keys whose largest score is found first
SCRATCH = 2**26  # numbers: the largest scores of groups, for as many rows as fit


@dataclass(frozen=True)
class Inputs:
    """The tensors of a call as the programs take them, and what the programs must know about them at compile time."""

    tensors: tuple[Tensor, ...]  # query, keys, statistic, bias, matrix, lengths, documents of rows and of columns
    strides: tuple[int, ...]
    sizes: tuple[int | float, ...]  # heads, n, m, width, scale, left, right
    options: dict[str, Any]
    shape: torch.Size

    @property
    def sequences(self) -> int:
        """The number of matrices."""
        return math.prod(self.shape[:-2])

    @staticmethod
    def build(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Inputs:
        """Prepare the tensors of a call; none of them is copied unless its layout requires it."""
        shape, scale = call.terms.shape, call.terms.score.dot_scale
        assert scale is not None
        query, keys = to_four_axes(shape, call.query, call.keys)
        rule, options = prepare_rule(call)
        width = query.shape[-1]
        return Inputs(
            (query, keys, statistic.contiguous(), rule.bias, rule.matrix, *rule[4:7]),
            (*query.stride(), *keys.stride(), *rule.bias_strides, *rule.matrix_strides),
            (query.shape[1], *shape[-2:], width, scale, rule.left, rule.right),
            {"WIDTH": pad_width(width), **options},
            shape,
        )

    @property
    def product_options(self) -> dict[str, Any]:
        """The options of programs with a matrix product."""
        query, width = self.tensors[0], self.options["WIDTH"]
        precision = "ieee" if query.dtype == torch.float32 else "tf32"  # of no effect in half precision
        return {**self.options, "EVEN_WIDTH": query.shape[-1] == width, "PRECISION": precision}


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Compute reductions by name."""
    inputs = Inputs.build(call, statistic)
    results: dict[str, Any] = {name: find_top(inputs, int(name[4:])) for name in names if name.startswith("top:")}
    simple = [name for name in names if name not in results]
    return results | (reduce_in_one_pass(inputs, simple) if simple else {})


def reduce_in_one_pass(inputs: Inputs, names: Sequence[str]) -> dict[str, Tensor]:
    """Compute received, entropy and argmax."""
    from regard.attention.kernels.triton.dot_programs import reduce_rows

    *batch, n, m = inputs.shape
    statistic = inputs.tensors[2]
    results = {
        "received": statistic.new_zeros((*batch, m) if "received" in names else 1),
        "entropy": statistic.new_empty((*batch, n) if "entropy" in names else 1),
        "argmax": torch.empty((*batch, n) if "argmax" in names else 1, dtype=torch.long, device=statistic.device),
    }
    rows, cols = choose_blocks(inputs, names)
    reduce_rows[(-(-n // rows), inputs.sequences)](
        *inputs.tensors,
        *results.values(),
        *inputs.strides,
        *inputs.sizes,
        ROWS=rows,
        COLS=cols,
        **inputs.product_options,
        **{name.upper(): name in names for name in results},
        num_warps=4,
        num_stages=3,
    )
    return {name: results[name] for name in names}


def choose_blocks(inputs: Inputs, names: Sequence[str]) -> tuple[int, int]:
    """Return the rows and columns of a block."""
    if inputs.options["WIDTH"] > 128 or inputs.tensors[0].dtype == torch.float32:
        return 64, 32
    return (64, 128) if list(names) == ["entropy"] else (64, 64) if "argmax" in names else (128, 64)


def find_top(inputs: Inputs, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest weights of each row and their keys: groups of keys first, then the keys of the best groups."""
    from regard.attention.kernels.triton.dot_programs import choose_groups, choose_keys, find_group_maxima

    *batch, n, m = inputs.shape
    statistic, k = inputs.tensors[2], min(k, m)
    rows, cols = (64, 32) if inputs.options["WIDTH"] > 128 or inputs.tensors[0].dtype == torch.float32 else (128, 128)
    groups, count = -(-m // cols) * (cols // GROUP), 1 << (k - 1).bit_length()
    weights = statistic.new_empty(*batch, n, k)
    indices = torch.empty((*batch, n, k), dtype=torch.long, device=statistic.device)
    chunk = min(n, max(rows, SCRATCH // (inputs.sequences * groups) // rows * rows))
    maxima = statistic.new_empty(inputs.sequences, chunk, groups)
    chosen = torch.empty((inputs.sequences, chunk, count), dtype=torch.int32, device=statistic.device)
    others = (*inputs.tensors[:2], *inputs.tensors[3:])
    for block in iter_blocks(range(n), chunk):
        maxima.fill_(-math.inf)
        find_group_maxima[(-(-chunk // rows), inputs.sequences)](
            *others,
            maxima,
            *inputs.strides,
            *inputs.sizes,
            block.start,
            chunk,
            groups,
            ROWS=rows,
            COLS=cols,
            GROUP=GROUP,
            **inputs.product_options,
            num_warps=8,
            num_stages=3,
        )
        choose_groups[(inputs.sequences * chunk,)](
            maxima, chosen, groups, GROUPS=1 << (groups - 1).bit_length(), COUNT=count, num_warps=4
        )
        choose_keys[(block.stop - block.start, inputs.sequences)](
            *inputs.tensors,
            chosen,
            weights,
            indices,
            *inputs.strides,
            *inputs.sizes,
            block.start,
            chunk,
            k,
            COLS=cols,
            GROUP=GROUP,
            COUNT=count,
            **inputs.options,
            num_warps=4,
        )
    return weights, indices


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why the programs do not support a reduction; None if they do."""
    if call.terms.score.dot_scale is None:
        return f"{type(call.terms.score).__name__} {NOT_OF_FORM['dot']}"
    if not isinstance(call.terms.normalizer, Softmax):
        return f"{type(call.terms.normalizer).__name__} is not softmax"
    if call.query.shape[-1] > MAX_WIDTH:
        return f"it supports widths up to {MAX_WIDTH}"
    if job.startswith("top:") and (int(job[4:]) > MAX_TOP or call.terms.shape[-1] > MAX_GROUPS * GROUP):
        return f"it finds up to {MAX_TOP} keys of {MAX_GROUPS * GROUP:,}"
    if job == "received" and torch.are_deterministic_algorithms_enabled():
        return "its sums depend on the order of additions"
    return get_call_reason(call)


TRITON_DOT = AttentionKernel("triton_dot", forms=("dot",), unsupported_reason=unsupported_reason, reduce=reduce)
