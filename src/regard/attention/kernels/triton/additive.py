"""Additive attention by Triton: scores w·tanh(q + k), forward and backward, in memory linear in queries + keys."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.base_score import PrecomputedScore, upcast
from regard.attention.call import Call
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.kernels.sdpa import to_four_axes
from regard.attention.kernels.triton.support import (
    LAUNCH_OPTIONS,
    PairArguments,
    View,
    get_call_reason,
    pad_width,
    prepare_rule,
    run_on_device,
    spread,
    view,
)
from regard.attention.normalizers import LOG2_E, Softmax
from regard.attention.scores import Additive, Concat, PreparedAdditive

MAX_OWN = 128  # positions of a block, each in a thread of its own
PROGRAMS = 264  # two for each multiprocessor of an H200
FEATURE_BYTES = 128  # of a value that one thread sums; more would spill registers
MAX_SPLIT = 4
MAX_PART = 32  # numbers of a value in one matrix product of gradients and values
FEW = 16  # queries for which most threads would have none


class Side(NamedTuple):
    """The queries or the keys as programs take them."""

    hidden: View  # (batch, heads, hidden, padded positions)
    features: View  # (batch, heads, positions, width): values of keys; gradients of the output of queries


class Arguments(NamedTuple):
    """What the programs of one call share."""

    queries: Side
    keys: Side
    pairs: PairArguments
    energy: Float[Tensor, "*batch hidden"]  # -2w, to base 2
    offsets: Float[Tensor, "*batch"]  # the sum of w
    largest: Float[Tensor, " 3"]  # the largest numbers of queries, keys and energy
    options: dict[str, Any]

    @staticmethod
    def build(call: Call, values: Tensor, dropout: Dropout, gradient: Tensor | None = None) -> Arguments:
        """Prepare the tensors of a call, and the gradient of its output in backward."""
        shape, energy = call.terms.shape, get_energy(call)
        tensors = call.query, call.keys, energy
        largest = torch.stack([torch.linalg.vector_norm(t, math.inf, dtype=torch.float32) for t in tensors])
        hidden = [store_hidden_numbers(tensor, largest) for tensor in (call.query, call.keys)]
        four_axes = [spread(t, torch.Size((*shape[:-2], *t.shape[-2:]))) for t in hidden]
        of_queries, of_keys = to_four_axes(shape, values if gradient is None else gradient, values)
        pairs, options = prepare_rule(call)
        options |= {
            "HIDDEN": hidden[0].shape[-2],
            "PART": min(pad_width(values.shape[-1]), MAX_PART),
            "DROPOUT": dropout.rate > 0,
        }
        per_sequence = energy.float().expand(*shape[:-2], -1)
        queries, keys = (
            Side(view(numbers), view(features))
            for numbers, features in zip(four_axes, (of_queries, of_keys), strict=True)
        )
        return Arguments(
            queries,
            keys,
            pairs,
            pad(per_sequence * (-2 * LOG2_E), (0, options["HIDDEN"] - energy.shape[-1])).contiguous(),
            per_sequence.sum(-1).contiguous(),
            largest,
            options,
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all pairs."""
        return self.energy, self.offsets, self.largest

    @property
    def sequences(self) -> int:
        """The number of matrices."""
        return math.prod(self.keys.hidden.tensor.shape[:2])

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of heads, and the width of values."""
        return self.keys.hidden.tensor.shape[1], self.keys.features.tensor.shape[-1]


class Dropout(NamedTuple):
    """Dropout that is the same in forward and backward."""

    seed: int
    rate: float


def get_energy(call: Call) -> Float[Tensor, "*heads hidden"]:
    """Return the vector w of a prepared call."""
    score = call.bind_parameters().terms.score
    assert isinstance(score, (Additive, Concat, PrecomputedScore, PreparedAdditive))
    return score.energy


def store_hidden_numbers(
    points: Float[Tensor, "*batch positions hidden"], largest: Float[Tensor, " 3"]
) -> Float[Tensor, "*#batch hidden_padded positions_padded"]:
    """Return the exponentials of projected queries or keys as programs take them; expanded axes have size 1."""
    from regard.attention.kernels.triton.additive_programs import store_hidden

    points = points[tuple(slice(0, 1) if step == 0 else slice(None) for step in points.stride()[:-2])]
    *batch, count, width = points.shape
    padded, hidden = -(-count // MAX_OWN) * MAX_OWN, -(-width // 4) * 4
    target = points.new_empty(*batch, hidden, padded, dtype=torch.float32)
    source = points.reshape(-1, count, width)
    rows, dims = 64, 32
    blocks = padded // rows
    store_hidden[(blocks * len(source), -(-hidden // dims))](
        View(source, 0, *source.stride()), target, largest, count, width, padded, blocks,
        ROWS=rows, DIMS=dims, HIDDEN=hidden, num_warps=4, **LAUNCH_OPTIONS,
    )  # fmt: skip
    return target


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute output and log-sum-exp of every row."""
    from regard.attention.kernels.triton.additive_programs import attend_to_keys

    rate = call.terms.dropout
    dropout = Dropout(int(torch.randint(2**31, ())) if rate else 0, rate)
    arguments = Arguments.build(call, values, dropout)
    *batch, n, m = call.terms.shape
    output = values.new_empty(*batch, n, values.shape[-1])
    statistic = values.new_empty(*batch, n, 1, dtype=torch.float32)
    blocks = choose_blocks(n, arguments, mixes=True)
    attend_to_keys[blocks.get_grid(n, arguments)](
        arguments.queries.hidden, *arguments.keys, *arguments.pairs, *arguments.tensors, output, statistic,
        *(n, m), *arguments.sizes, *dropout, -(-n // blocks.own),
        **blocks.options, **arguments.options, num_stages=1, **LAUNCH_OPTIONS,
    )  # fmt: skip
    return Result(output, statistic, extra=dropout)


class Blocks(NamedTuple):
    """The sizes of a program."""

    own: int  # positions of the own side
    other: int  # positions of the other side in a tile
    split: int  # threads that share the other positions of an own one
    features: int  # numbers of a value that it mixes
    programs: int  # that share the numbers of a value

    @property
    def options(self) -> dict[str, int]:
        """The options of the program."""
        warps = self.own // 32 * self.split
        return {"OWN": self.own, "OTHER": self.other, "FEATURES": self.features, "num_warps": warps}

    def get_grid(self, count: int, arguments: Arguments) -> tuple[int, int]:
        """Return the number of programs."""
        return -(-count // self.own) * arguments.sequences, self.programs


def choose_blocks(count: int, arguments: Arguments, *, mixes: bool) -> Blocks:
    """Return the sizes of a program: fewer own positions where there would not be enough programs.

    A program that mixes the features of the other side sums them in registers: the wider they are, the more threads.
    """
    width, size = arguments.sizes[1], arguments.keys.features.tensor.element_size()
    narrow, split = min(pad_width(width), FEATURE_BYTES // size), 1
    while mixes and split < MAX_SPLIT and narrow * split < width:
        split *= 2
    own = min(MAX_OWN, 256 // split, max(32, 1 << (count - 1).bit_length()))
    while own > 32 and -(-count // own) * arguments.sequences < PROGRAMS:
        own //= 2
    other = 16 * split if mixes or size > 2 else 32
    return Blocks(own, other, split, narrow * split, max(1, -(-width // (narrow * split))) if mixes else 1)


@run_on_device
def backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    needs_grad: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of values, query, keys, bias and energy."""
    needs_values, needs_query, needs_keys, needs_bias, *needs_parameters = needs_grad
    energy, shape = get_energy(call), call.terms.shape
    is_energy = [needed and p is energy for needed, p in zip(needs_parameters, call.parameters, strict=True)]
    arguments = Arguments.build(call, values, result.extra, gradient)
    assert result.statistic is not None
    means = (upcast(gradient) * result.output).sum(-1)
    rows = Rows(result.statistic, means, result.extra, shape)
    of_query = of_energy = of_keys = of_values = of_bias = None
    if needs_query or any(is_energy):
        of_query, of_energy = differentiate_queries(arguments, rows, any(is_energy))
    if needs_values or needs_keys or needs_bias:
        dtype = values.dtype if values.shape[:-2] == shape[:-2] else torch.float32  # summed over axes that broadcast
        of_values = values.new_empty(*shape[:-2], *values.shape[-2:], dtype=dtype)
        of_bias = zeros_for_bias(call.bias, shape) if call.bias is not None and needs_bias else None
        of_keys = differentiate_keys(arguments, rows, of_values, None if of_bias is None else spread(of_bias, shape))
    return (
        fit_gradient(of_values, values, needs_values),
        fit_gradient(transpose_hidden(of_query, call.query), call.query, needs_query),
        fit_gradient(transpose_hidden(of_keys, call.keys), call.keys, needs_keys),
        None if call.bias is None else fit_gradient(of_bias, call.bias, needs_bias),
        *(
            fit_gradient(None if of_energy is None else of_energy.sum(-1)[..., : energy.shape[-1]], energy, needed)
            for needed in is_energy
        ),
    )


class Rows(NamedTuple):
    """What backward knows of each query, and the dropout of the call."""

    statistic: Float[Tensor, "*batch queries 1"]
    means: Float[Tensor, "*batch queries"]  # the mean gradient of its weights
    dropout: Dropout
    shape: torch.Size  # of the matrix


def differentiate_queries(
    arguments: Arguments, rows: Rows, of_energy: bool
) -> tuple[Float[Tensor, "*batch hidden padded"], Float[Tensor, "*batch hidden padded"] | None]:
    """Return the gradients of the hidden numbers of queries, and for each what it adds to that of the energy."""
    of_hidden = zeros_for_hidden(arguments, arguments.queries)
    energy = torch.zeros_like(of_hidden) if of_energy else None
    unused = of_hidden.new_empty(1)
    launch_backward(arguments, rows, "queries", of_hidden, energy, unused, None)
    return of_hidden, energy


def differentiate_keys(
    arguments: Arguments, rows: Rows, of_values: Tensor, of_bias: Tensor | None
) -> Float[Tensor, "*batch hidden padded"]:
    """Return the gradients of the hidden numbers of keys; store those of values, and add those of a bias."""
    of_hidden = zeros_for_hidden(arguments, arguments.keys)
    launch_backward(arguments, rows, "keys", of_hidden, None, of_values, of_bias)
    return of_hidden


def launch_backward(
    arguments: Arguments,
    rows: Rows,
    side: Literal["queries", "keys"],
    of_hidden: Tensor,
    of_energy: Tensor | None,
    of_values: Tensor,
    of_bias: Tensor | None,
) -> None:
    """Launch the program for the gradients of one side."""
    from regard.attention.kernels.triton.additive_programs import differentiate

    own, other = arguments.queries, arguments.keys
    if side == "keys":
        own, other = other, own
    unused = of_hidden.new_empty(1)
    n, m = rows.shape[-2:]
    length = m if side == "keys" else n
    blocks = choose_blocks(length, arguments, mixes=side == "keys")
    differentiate[blocks.get_grid(length, arguments)](
        *own, *other, *arguments.pairs, *arguments.tensors, rows.statistic, rows.means, of_hidden,
        unused if of_energy is None else of_energy, of_values, view(unused if of_bias is None else of_bias),
        *(n, m), *arguments.sizes, *rows.dropout, -(-length // blocks.own),
        OF_KEYS=side == "keys", OF_ENERGY=of_energy is not None, OF_BIAS=of_bias is not None,
        **blocks.options, **arguments.options, num_stages=1, **LAUNCH_OPTIONS,
    )  # fmt: skip


def zeros_for_hidden(arguments: Arguments, side: Side) -> Float[Tensor, "*batch hidden padded"]:
    """Return zeros for the gradients of the hidden numbers of a side."""
    hidden = side.hidden.tensor
    return torch.zeros(*arguments.offsets.shape, *hidden.shape[-2:], dtype=torch.float32, device=hidden.device)


def zeros_for_bias(bias: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."]:
    """Return zeros for the gradient of a bias, with all axes of *batch but the last expanded if any of them is."""
    lead = bias.shape[:-3] if all(size == 1 for size in bias.shape[:-3]) else shape[:-3]
    return torch.zeros(*lead, *bias.shape[-3:], dtype=torch.float32, device=bias.device)


def transpose_hidden(total: Tensor | None, tensor: Tensor) -> Tensor | None:
    """Return the gradients of hidden numbers with the axes of the tensor that they belong to."""
    return None if total is None else total[..., : tensor.shape[-1], : tensor.shape[-2]].mT


def fit_gradient(total: Tensor | None, tensor: Tensor, needed: bool) -> Tensor | None:
    """Return a gradient with all of *batch in the shape and type of its tensor, None if it is not needed."""
    return total.sum_to_size(tensor.shape).to(tensor.dtype) if total is not None and needed else None


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why the programs do not support a call; None if they do."""
    if not isinstance(call.terms.normalizer, Softmax):
        return f"{type(call.terms.normalizer).__name__} is not softmax"
    if math.prod(call.terms.shape) == 0:
        return "there is nothing to compute"
    if call.bias is not None and call.bias.requires_grad and torch.are_deterministic_algorithms_enabled():
        return "the gradient of its bias depends on the order of additions"
    return get_call_reason(call)


def worthwhile(call: Call) -> bool:
    """Return whether there are enough queries for the threads of a program."""
    return call.terms.shape[-2] >= FEW


TRITON_ADDITIVE = AttentionKernel(
    "triton_additive",
    forms=("additive",),
    unsupported_reason=unsupported_reason,
    worthwhile=worthwhile,
    forward=forward,
    backward=backward,
)
