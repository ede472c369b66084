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

PADDING = 128  # positions; a multiple of all blocks
PROGRAMS = 264  # two for each multiprocessor of an H200
FEATURE_BYTES = 128  # of a value that four warps sum; more would spill registers
MAX_WARPS = 8  # with MAX_REGISTERS for each thread all registers of a multiprocessor
MAX_REGISTERS = 255
MAX_PART = 64  # bytes of a value in one matrix product of gradients and values
Job = Literal["forward", "queries", "keys"]
FEW = 16  # queries for which most threads would have none
CHUNK = 2**15  # queries and keys whose hidden numbers are in memory; they fill an H200


class Tile(NamedTuple):
    """The pairs of a tile, and the threads that share them."""

    own: int  # own positions of a thread
    others: int  # other positions of a thread
    lanes: int  # threads of a warp by own positions
    warps: int = 4


TILES = {"forward": Tile(4, 8, 4), "queries": Tile(2, 16, 8), "keys": Tile(2, 16, 8)}


class Side(NamedTuple):
    """The queries or the keys of a call."""

    points: Float[Tensor, "*#batch positions hidden"]  # projected; expanded axes have size 1
    features: View  # (batch, heads, positions, width): values of keys; gradients of the output of queries


class Arguments(NamedTuple):
    """What the programs of one call share."""

    queries: Side
    keys: Side
    pairs: PairArguments
    energy: Float[Tensor, "*batch hidden"]  # -2w, to base 2
    offsets: Float[Tensor, "*batch"]  # the sum of w
    largest: Float[Tensor, " 3"]  # the largest numbers of queries, keys and energy
    shape: torch.Size  # (*batch, queries, keys)
    options: dict[str, Any]

    @staticmethod
    def build(call: Call, values: Tensor, dropout: Dropout, gradient: Tensor | None = None) -> Arguments:
        """Prepare the tensors of a call, and the gradient of its output in backward."""
        shape, energy = call.terms.shape, get_energy(call)
        tensors = call.query, call.keys, energy
        largest = torch.stack([torch.linalg.vector_norm(t, math.inf, dtype=torch.float32) for t in tensors])
        of_queries, of_keys = to_four_axes(shape, values if gradient is None else gradient, values)
        pairs, options = prepare_rule(call)
        hidden = -(-energy.shape[-1] // 4) * 4
        options |= {
            "HIDDEN": hidden,
            "PART": min(pad_width(values.shape[-1]), MAX_PART // values.element_size()),
            "DROPOUT": dropout.rate > 0,
        }
        per_sequence = energy.float().expand(*shape[:-2], -1)
        return Arguments(
            Side(drop_expanded(call.query), view(of_queries)),
            Side(drop_expanded(call.keys), view(of_keys)),
            pairs,
            pad(per_sequence * (-2 * LOG2_E), (0, hidden - energy.shape[-1])).contiguous(),
            per_sequence.sum(-1).contiguous(),
            largest,
            shape,
            options,
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all pairs."""
        return self.energy, self.offsets, self.largest

    @property
    def sequences(self) -> int:
        """The number of matrices."""
        return math.prod(self.shape[:-2])

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of heads, and the width of values."""
        return math.prod(self.shape[:-2][-1:]), self.keys.features.tensor.shape[-1]


class Chunk(NamedTuple):
    """The hidden numbers of some sequences as programs take them."""

    queries: View  # (batch, heads, hidden, padded positions)
    keys: View
    skipped: int  # sequences before these
    sequences: int


class Dropout(NamedTuple):
    """Dropout that is the same in forward and backward."""

    seed: int
    rate: float


def get_energy(call: Call) -> Float[Tensor, "*heads hidden"]:
    """Return the vector w of a prepared call."""
    score = call.bind_parameters().terms.score
    assert isinstance(score, (Additive, Concat, PrecomputedScore, PreparedAdditive))
    return score.energy


def drop_expanded(tensor: Float[Tensor, "*batch positions hidden"]) -> Float[Tensor, "*#batch positions hidden"]:
    """Return a tensor whose expanded axes have size 1."""
    return tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride()[:-2])]


def split_sequences(arguments: Arguments) -> list[range]:
    """Return the sequences whose hidden numbers are in memory at a time: all of them if some share theirs."""
    count = arguments.sequences
    shared = any(math.prod(side.points.shape[:-2]) < count for side in (arguments.queries, arguments.keys))
    chunks = 1 if shared else max(1, count * min(arguments.shape[-2:]) // CHUNK)
    size = -(-count // chunks)
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def store_chunk(arguments: Arguments, sequences: range) -> Chunk:
    """Store the hidden numbers of some sequences."""
    queries = store_hidden_numbers(arguments, arguments.queries.points, sequences)
    keys = store_hidden_numbers(arguments, arguments.keys.points, sequences)
    return Chunk(queries, keys, sequences.start, len(sequences))


def store_hidden_numbers(
    arguments: Arguments, points: Float[Tensor, "*#batch positions hidden"], sequences: range
) -> View:
    """Return the exponentials of projected queries or keys as programs take them."""
    from regard.attention.kernels.triton.additive_programs import store_hidden

    *batch, count, width = points.shape
    source = points.reshape(-1, count, width)
    whole = len(source) == arguments.sequences
    if whole:
        source, batch = source[sequences.start : sequences.stop], [len(sequences)]
    padded, hidden = -(-count // PADDING) * PADDING, arguments.options["HIDDEN"]
    target = points.new_empty(*batch, hidden, padded, dtype=torch.float32)
    rows, dims = 64, 32
    blocks = padded // rows
    store_hidden[(blocks * len(source), -(-hidden // dims))](
        View(source, 0, *source.stride()), target, arguments.largest, count, width, padded, blocks,
        ROWS=rows, DIMS=dims, HIDDEN=hidden, num_warps=4, **LAUNCH_OPTIONS,
    )  # fmt: skip
    if whole:
        step = hidden * padded
        return View(target, arguments.sizes[0] * step, step, padded, 1)
    return view(spread(target, torch.Size((*arguments.shape[:-2], hidden, padded))))


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute output and log-sum-exp of every row."""
    rate = call.terms.dropout
    dropout = Dropout(int(torch.randint(2**31, ())) if rate else 0, rate)
    arguments = Arguments.build(call, values, dropout)
    *batch, n, _ = call.terms.shape
    output = values.new_empty(*batch, n, values.shape[-1])
    statistic = values.new_empty(*batch, n, 1, dtype=torch.float32)
    for sequences in split_sequences(arguments):
        launch_forward(arguments, sequences, dropout, output, statistic)
    return Result(output, statistic, extra=dropout)


def launch_forward(arguments: Arguments, sequences: range, dropout: Dropout, output: Tensor, statistic: Tensor) -> None:
    """Launch the programs for output and log-sum-exp of some sequences."""
    from regard.attention.kernels.triton.additive_programs import attend_to_keys

    chunk = store_chunk(arguments, sequences)
    n, m = arguments.shape[-2:]
    blocks = choose_blocks("forward", n, arguments, chunk)
    attend_to_keys[blocks.get_grid(n, chunk)](
        chunk.queries, chunk.keys, arguments.keys.features, *arguments.pairs, *arguments.tensors, output, statistic,
        *(n, m), *arguments.sizes, *dropout, -(-n // blocks.own), chunk.skipped,
        **blocks.options, **arguments.options, **LAUNCH_OPTIONS,
    )  # fmt: skip


class Blocks(NamedTuple):
    """The sizes of a program."""

    tile: Tile
    features: int  # numbers of a value that it mixes
    programs: int  # that share the numbers of a value

    @property
    def own(self) -> int:
        """The own positions."""
        return self.tile.own * self.tile.lanes * self.tile.warps

    @property
    def options(self) -> dict[str, int]:
        """The options of the program."""
        own, others, lanes, warps = self.tile
        each = {"OWN_EACH": own, "OTHER_EACH": others, "LANES": lanes, "WARPS": warps}
        sizes = {"OWN": self.own, "OTHER": others * (32 // lanes), "FEATURES": self.features}
        return each | sizes | {"num_warps": warps, "num_stages": 1, "maxnreg": MAX_REGISTERS}

    def get_grid(self, count: int, chunk: Chunk) -> tuple[int, int]:
        """Return the number of programs."""
        return -(-count // self.own) * chunk.sequences, self.programs


def choose_blocks(job: Job, count: int, arguments: Arguments, chunk: Chunk) -> Blocks:
    """Return the sizes of a program: fewer own positions where there would not be enough programs.

    A program that mixes the features of the other side sums them in registers: the wider they are, the more threads.
    Random numbers for dropout require registers for each pair.
    """
    tile = TILES[job]
    if arguments.options["DROPOUT"]:
        tile = tile._replace(others=tile.others // 2)
    width, size = arguments.sizes[1], arguments.keys.features.tensor.element_size()
    features, programs = min(pad_width(width), FEATURE_BYTES // size), 1
    if job != "queries":
        while tile.warps < MAX_WARPS and features < width:
            features *= 2
            tile = tile._replace(others=tile.others // 2, lanes=tile.lanes // 2, warps=2 * tile.warps)
        programs = -(-width // features)
    blocks = Blocks(tile, features, max(1, programs))
    while blocks.tile.own > 1 and blocks.get_grid(count, chunk)[0] < PROGRAMS:
        blocks = blocks._replace(tile=blocks.tile._replace(own=blocks.tile.own // 2))
    return blocks


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
    rows = Rows(result.statistic, means, result.extra)
    of_query = of_energy = of_keys = of_values = of_bias = None
    if needs_query or any(is_energy):
        of_query = empty_for_gradient(call.query, shape)
        of_energy = torch.empty(*shape[:-2], arguments.options["HIDDEN"], device=energy.device)
    if needs_values or needs_keys or needs_bias:
        of_keys, of_values = empty_for_gradient(call.keys, shape), empty_for_gradient(values, shape)
        of_bias = zeros_for_bias(call.bias, shape) if call.bias is not None and needs_bias else None
    for sequences in split_sequences(arguments):
        chunk = store_chunk(arguments, sequences)
        if of_query is not None and of_energy is not None:
            differentiate_queries(arguments, chunk, rows, of_query, of_energy if any(is_energy) else None)
        if of_keys is not None and of_values is not None:
            spread_bias = None if of_bias is None else spread(of_bias, shape)
            differentiate_keys(arguments, chunk, rows, of_keys, of_values, spread_bias)
        del chunk  # before there is the next one
    return (
        fit_gradient(of_values, values, needs_values),
        fit_gradient(of_query, call.query, needs_query),
        fit_gradient(of_keys, call.keys, needs_keys),
        None if call.bias is None else fit_gradient(of_bias, call.bias, needs_bias),
        *(
            fit_gradient(None if of_energy is None else of_energy[..., : energy.shape[-1]], energy, needed)
            for needed in is_energy
        ),
    )


class Rows(NamedTuple):
    """What backward knows of each query, and the dropout of the call."""

    statistic: Float[Tensor, "*batch queries 1"]
    means: Float[Tensor, "*batch queries"]  # the mean gradient of its weights
    dropout: Dropout


def empty_for_gradient(tensor: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."]:
    """Return memory for the gradient of queries, keys or values with all of *batch, over which it may be summed."""
    dtype = tensor.dtype if tensor.shape[:-2] == shape[:-2] else torch.float32
    return tensor.new_empty(*shape[:-2], *tensor.shape[-2:], dtype=dtype)


def differentiate_queries(
    arguments: Arguments, chunk: Chunk, rows: Rows, of_query: Tensor, of_energy: Float[Tensor, "*batch hidden"] | None
) -> None:
    """Store the gradients of the projected queries and of the energy of some sequences."""
    blocks = choose_blocks("queries", arguments.shape[-2], arguments, chunk)
    of_hidden = zeros_for_hidden(arguments, chunk, chunk.queries)
    programs, _ = blocks.get_grid(arguments.shape[-2], chunk)
    of_warps = of_hidden.new_zeros(programs, blocks.tile.warps, arguments.options["HIDDEN"])
    outputs = of_hidden, of_warps, of_hidden, None
    launch_backward(arguments, chunk, rows, blocks, outputs, OF_KEYS=False, OF_ENERGY=of_energy is not None)
    select_sequences(of_query, chunk).copy_(transpose_hidden(of_hidden, of_query))
    if of_energy is not None:
        of_chunk = of_energy.view(-1, of_energy.shape[-1])[chunk.skipped : chunk.skipped + chunk.sequences]
        torch.sum(of_warps.view(chunk.sequences, -1, of_warps.shape[-1]), 1, out=of_chunk)


def differentiate_keys(
    arguments: Arguments, chunk: Chunk, rows: Rows, of_keys: Tensor, of_values: Tensor, of_bias: Tensor | None
) -> None:
    """Store the gradients of the projected keys and of the values of some sequences, and add those of a bias."""
    blocks = choose_blocks("keys", arguments.shape[-1], arguments, chunk)
    of_hidden = zeros_for_hidden(arguments, chunk, chunk.keys)
    outputs = of_hidden, of_hidden, of_values, None if of_bias is None else view(of_bias)
    launch_backward(arguments, chunk, rows, blocks, outputs, OF_KEYS=True, OF_BIAS=of_bias is not None)
    select_sequences(of_keys, chunk).copy_(transpose_hidden(of_hidden, of_keys))


def launch_backward(
    arguments: Arguments,
    chunk: Chunk,
    rows: Rows,
    blocks: Blocks,
    outputs: tuple[Tensor, Tensor, Tensor, View | None],
    *,
    OF_KEYS: bool,  # noqa: N803
    OF_ENERGY: bool = False,  # noqa: N803
    OF_BIAS: bool = False,  # noqa: N803
) -> None:
    """Launch the program for the gradients of one side."""
    from regard.attention.kernels.triton.additive_programs import differentiate

    n, m = arguments.shape[-2:]
    own = chunk.queries, arguments.queries.features
    other = chunk.keys, arguments.keys.features
    length = n
    if OF_KEYS:
        own, other, length = other, own, m
    differentiate[blocks.get_grid(length, chunk)](
        *own, *other, *arguments.pairs, *arguments.tensors, rows.statistic, rows.means, *outputs,
        *(n, m), *arguments.sizes, *rows.dropout, -(-length // blocks.own), chunk.skipped,
        OF_KEYS=OF_KEYS, OF_ENERGY=OF_ENERGY, OF_BIAS=OF_BIAS,
        **blocks.options, **arguments.options, **LAUNCH_OPTIONS,
    )  # fmt: skip


def zeros_for_hidden(arguments: Arguments, chunk: Chunk, side: View) -> Float[Tensor, "sequences hidden padded"]:
    """Return zeros for the gradients of the hidden numbers of a side."""
    hidden = arguments.options["HIDDEN"]
    return torch.zeros(chunk.sequences, hidden, side.row, dtype=torch.float32, device=side.tensor.device)


def select_sequences(tensor: Float[Tensor, "*batch positions width"], chunk: Chunk) -> Tensor:
    """Return the sequences of a chunk in a contiguous tensor."""
    return tensor.view(-1, *tensor.shape[-2:])[chunk.skipped : chunk.skipped + chunk.sequences]


def zeros_for_bias(bias: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."]:
    """Return zeros for the gradient of a bias, with all axes of *batch but the last expanded if any of them is."""
    lead = bias.shape[:-3] if all(size == 1 for size in bias.shape[:-3]) else shape[:-3]
    return torch.zeros(*lead, *bias.shape[-3:], dtype=torch.float32, device=bias.device)


def transpose_hidden(total: Float[Tensor, "sequences hidden padded"], tensor: Tensor) -> Tensor:
    """Return the gradients of hidden numbers with the axes of the tensor that they belong to."""
    return total[:, : tensor.shape[-1], : tensor.shape[-2]].mT


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
