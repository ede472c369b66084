"""A softmax over dot products by Triton: attention with a float32 bias, and reductions of the weights in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, iter_blocks
from regard.attention.kernels.fused import SDPA
from regard.attention.kernels.kernel import FORWARD_JOBS, NOT_OF_FORM, AttentionKernel, Result
from regard.attention.kernels.sdpa import to_four_axes
from regard.attention.kernels.tiled import TILED
from regard.attention.kernels.triton.support import (
    LAUNCH_OPTIONS,
    RepeatedLaunch,
    View,
    get_call_reason,
    get_device_reason,
    get_max_width,
    pad_width,
    prepare_rule,
    run_on_device,
)
from regard.attention.normalizers import Softmax
from regard.attention.scores import Dot
from regard.attention.soft_cap import SoftCap

MAX_TOP = 16
MAX_KEYS = 262_144  # number of keys up to which top:K is supported
GROUP, MAX_GROUP = 16, 64  # number of keys in a group of top:K, of which the maximum is computed first
PROGRAMS = 264  # two for each multiprocessor of an H200
SCRATCH = 2**26  # numbers: the largest scores of groups and of blocks, for as many rows as fit
SEARCH_PROGRAMS = ("find_largest_scores", "choose_groups", "score_groups", "choose_keys")
NO_BIAS, PER_PAIR, PER_KEY = range(3)  # kinds of bias: with a number for each key, all queries share it
LINES = 16  # rows whose groups or keys one program chooses
LINE_MAXIMA, LINE_KEYS = 8192, 2048  # maxima of blocks and scores of keys that it chooses from


@dataclass(frozen=True)
class Inputs:
    """The tensors of a call as the programs take them, and what the programs must know about them at compile time."""

    tensors: tuple[Tensor, ...]  # query, keys, statistic, bias, matrix, lengths, documents of rows and of columns
    strides: tuple[int, ...]
    sizes: tuple[int | float, ...]  # heads, n, m, width, scale, cap, left, right
    options: dict[str, Any]
    shape: torch.Size

    @property
    def sequences(self) -> int:
        """The number of matrices."""
        return math.prod(self.shape[:-2])

    @staticmethod
    def build(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Inputs:
        """Prepare the tensors of a call; none of them is copied unless its layout requires it."""
        shape, product = call.terms.shape, find_product(call)
        assert product is not None
        query, keys = to_four_axes(shape, call.query, call.keys)
        (rule, bias, matrix), options = prepare_rule(call)
        width, unused = query.shape[-1], View(statistic, 0, 0, 0, 0)
        bias_tensor, *bias_strides = bias or unused
        matrix_tensor, *matrix_strides = matrix or unused
        per_sequence = (statistic if numbers is None else numbers for numbers in rule[:3])
        return Inputs(
            (query, keys, statistic.contiguous(), bias_tensor, matrix_tensor, *per_sequence),
            (*query.stride(), *keys.stride(), *bias_strides, *matrix_strides),
            (query.shape[1], *shape[-2:], width, product.scale, product.cap or 0.0, rule.left, rule.right),
            {"WIDTH": pad_width(width), "CAP": product.cap is not None, **options, "BIAS": describe_bias(bias)},
            shape,
        )

    @property
    def product_options(self) -> dict[str, Any]:
        """The options of programs with a matrix product."""
        query, width = self.tensors[0], self.options["WIDTH"]
        precision = "tf32x3" if query.dtype == torch.float32 else "tf32"  # as exact as float32; no effect in half
        return {**self.options, "EVEN_WIDTH": query.shape[-1] == width, "PRECISION": precision}


def describe_bias(bias: View | None) -> int:
    """Return the kind of bias that programs are compiled for."""
    if bias is None:
        return NO_BIAS
    return PER_KEY if bias.row == 0 else PER_PAIR


class Product(NamedTuple):
    """A score as a dot product: scale·q·k, or cap·tanh(scale·q·k / cap)."""

    scale: float
    cap: float | None = None


def find_product(call: Call) -> Product | None:
    """Return the dot product that the score of a prepared call is, if it is one."""
    score = call.terms.score
    if score.dot_scale is not None:
        return Product(score.dot_scale)
    if isinstance(score, SoftCap) and isinstance(score.score, Dot):
        return Product(score.score.scale(call.query), score.cap)
    return None


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute output and log-sum-exp of every row."""
    from regard.attention.kernels.triton.dot_programs import attend_to_keys

    *batch, n, _ = call.terms.shape
    features = values.shape[-1]
    if features > get_max_width(values.dtype):
        assert TILED.forward is not None
        return TILED.forward(call, values)
    statistic = values.new_empty(*batch, n, 1, dtype=torch.float32)
    output = values.new_empty(*batch, n, features)
    inputs, (values,) = Inputs.build(call, statistic), to_four_axes(call.terms.shape, values)
    padded = pad_width(features)
    blocks = choose_forward_blocks(inputs, padded)
    row_blocks = blocks.count_rows(n)
    attend_to_keys[(row_blocks * inputs.sequences,)](
        *inputs.tensors,
        values,
        output,
        *inputs.strides,
        *values.stride(),
        *inputs.sizes,
        features,
        row_blocks,
        inputs.sequences,
        FEATURES=padded,
        EVEN_FEATURES=features == padded,
        **inputs.product_options,
        **blocks.options,
        **LAUNCH_OPTIONS,
    )
    return Result(output, statistic)


@run_on_device
def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Compute reductions by name."""
    inputs = Inputs.build(call, statistic)
    results: dict[str, Any] = sum_weights(inputs, names)
    k = max((int(name[4:]) for name in names if name.startswith("top:")), default=0)
    if k or "argmax" in names:
        results |= find_keys(inputs, min(k, inputs.shape[-1]), names)
    return {name: results[name] for name in names}


def sum_weights(inputs: Inputs, names: Sequence[str]) -> dict[str, Tensor]:
    """Compute received and entropy, or one of them."""
    from regard.attention.kernels.triton import dot_programs

    statistic, (*batch, n, m) = inputs.tensors[2], inputs.shape
    results = {}
    if "received" in names:
        results["received"] = statistic.new_zeros(*batch, m)
    if "entropy" in names:
        results["entropy"] = statistic.new_empty(*batch, n)
    if results:
        blocks = choose_sum_blocks(inputs)
        dot_programs.sum_weights[(blocks.count_rows(n) * inputs.sequences,)](
            *inputs.tensors,
            *(results.get(name, statistic) for name in ("received", "entropy")),
            *inputs.strides,
            *inputs.sizes,
            blocks.count_rows(n),
            inputs.sequences,
            RECEIVED="received" in results,
            ENTROPY="entropy" in results,
            **inputs.product_options,
            **blocks.options,
            **LAUNCH_OPTIONS,
        )
    return results


def find_keys(inputs: Inputs, k: int, names: Sequence[str]) -> dict[str, Any]:
    """Compute argmax and the largest weights, in chunks of rows whose scratch memory fits."""
    statistic, (*batch, n, _) = inputs.tensors[2], inputs.shape
    argmax = None
    if "argmax" in names:
        argmax = torch.empty(*batch, n, dtype=torch.long, device=statistic.device)
    blocks = choose_search_blocks(inputs)
    search = Search.start(inputs, blocks, k)
    for chunk in iter_blocks(range(inputs.sequences * blocks.count_rows(n)), search.chunk):
        search.find_maxima(inputs, blocks, argmax, chunk)
        if k:
            search.finish_chunk(inputs, blocks, chunk)
    results: dict[str, Any] = {"argmax": argmax}
    for name in names:
        if name.startswith("top:"):
            results[name] = search.weights[..., : int(name[4:])], search.keys[..., : int(name[4:])]
    return results


class Blocks(NamedTuple):
    """The size of a block, the warps that work on it, and the blocks of keys that are being loaded meanwhile."""

    rows: int
    cols: int
    warps: int
    stages: int

    def count_rows(self, n: int) -> int:
        """Return the number of blocks of rows."""
        return -(-n // self.rows)

    def count_cols(self, m: int) -> int:
        """Return the number of blocks of columns."""
        return -(-m // self.cols)

    @property
    def options(self) -> dict[str, int]:
        """The options of a program."""
        return {"ROWS": self.rows, "COLS": self.cols, "num_warps": self.warps, "num_stages": self.stages}


def choose_forward_blocks(inputs: Inputs, features: int) -> Blocks:
    """Return the blocks for attention, as large as registers and shared memory allow; a bias of pairs takes many."""
    width = max(inputs.options["WIDTH"], features)
    if inputs.tensors[0].dtype == torch.float32:
        return Blocks(64 if width <= 64 else 32, 32, 4, 2)
    if inputs.options["BIAS"] == PER_PAIR:
        return Blocks(64, 64 if width <= 128 else 32, 4 if width <= 64 else 8, 3)
    if width <= 64:
        return Blocks(64, 128, 4, 2)
    return Blocks(128 if width <= 128 else 64, 64, 8, 3)


def choose_sum_blocks(inputs: Inputs) -> Blocks:
    """Return the blocks for sums of weights, as large as registers allow."""
    width = inputs.options["WIDTH"]
    if inputs.tensors[0].dtype == torch.float32:
        return Blocks(32, 64, 4, 3) if width <= 64 else Blocks(16, 32, 4, 3)
    return Blocks(64 if width > 128 or takes_registers(inputs) else 128, 64, 4, 3)


def choose_search_blocks(inputs: Inputs) -> Blocks:
    """Return the blocks for the search of keys, as large as registers allow."""
    if inputs.options["WIDTH"] > 128 or inputs.tensors[0].dtype == torch.float32:
        return Blocks(64, 32, 4, 3)
    return Blocks(64, 64, 4, 3) if takes_registers(inputs) else Blocks(128, 128, 8, 3)


def takes_registers(inputs: Inputs) -> bool:
    """Return whether scores of pairs are more than a product and limits of rows."""
    return any(inputs.options[name] for name in ("CAP", "BIAS", "DOCUMENTS", "MATRIX"))


@dataclass(frozen=True)
class Search:
    """The search for the k largest weights of each row: scratch memory for a chunk of blocks of rows, and results."""

    k: int
    group: int  # keys of a group
    chunk: int  # blocks of rows
    group_maxima: Tensor
    block_maxima: Tensor
    chosen: Tensor
    candidates: Tensor  # scores of the keys of chosen groups
    weights: Float[Tensor, "*batch queries k"]
    keys: Tensor
    programs: dict[str, RepeatedLaunch]

    @staticmethod
    def start(inputs: Inputs, blocks: Blocks, k: int) -> Search:
        """Allocate memory; without k, all rows are one chunk, which needs none."""
        from regard.attention.kernels.triton import dot_programs

        *batch, n, m = inputs.shape
        statistic, cols = inputs.tensors[2], blocks.count_cols(m)
        rows = inputs.sequences * blocks.count_rows(n)
        group, chunk = choose_group(blocks, rows, cols) if k else (GROUP, rows)
        used = chunk * blocks.rows if k else 0
        return Search(
            k,
            group,
            chunk,
            statistic.new_empty(max(1, used * cols * (blocks.cols // group))),
            statistic.new_empty(max(1, used * cols)),
            torch.empty(max(1, used * round_up(k)), dtype=torch.int32, device=statistic.device),
            statistic.new_empty(max(1, used * round_up(k) * group)),
            statistic.new_empty(*batch, n, k),
            torch.empty((*batch, n, k), dtype=torch.long, device=statistic.device),
            {name: RepeatedLaunch(getattr(dot_programs, name)) for name in SEARCH_PROGRAMS},
        )

    def find_maxima(self, inputs: Inputs, blocks: Blocks, argmax: Tensor | None, chunk: slice) -> None:
        """Compute the argmax of some blocks of rows, and the maxima of their groups."""
        *_, n, m = inputs.shape
        self.programs["find_largest_scores"].launch(
            chunk.stop - chunk.start,
            *inputs.tensors,
            self.keys if argmax is None else argmax,
            self.group_maxima,
            self.block_maxima,
            *inputs.strides,
            *inputs.sizes,
            chunk.start,
            blocks.count_rows(n),
            inputs.sequences,
            blocks.count_cols(m),
            GROUP=self.group,
            ARGMAX=argmax is not None,
            TOP=self.k > 0,
            **inputs.product_options,
            **blocks.options,
            **LAUNCH_OPTIONS,
        )

    def finish_chunk(self, inputs: Inputs, blocks: Blocks, chunk: slice) -> None:
        """Choose the best groups of each row, score their keys, and choose the best of these."""
        *_, n, m = inputs.shape
        count, row_blocks, col_blocks = round_up(self.k), blocks.count_rows(n), blocks.count_cols(m)
        *_, left, right = inputs.sizes
        rows = (chunk.stop - chunk.start) * blocks.rows
        sizes = {"ROWS": blocks.rows, "COLS": blocks.cols, "PER_BLOCK": blocks.cols // self.group, "COUNT": count}
        rule = {name: inputs.options[name] for name in ("LEFT", "RIGHT", "LENGTHS")}
        lines = max(1, min(LINES, LINE_MAXIMA // round_up(col_blocks)))
        self.programs["choose_groups"].launch(
            rows // lines,
            self.group_maxima,
            self.block_maxima,
            self.chosen,
            inputs.tensors[5],
            *(n, m, left, right, chunk.start, row_blocks, inputs.sequences, col_blocks),
            LINES=lines,
            BLOCKS=round_up(col_blocks),
            **rule,
            **sizes,
            num_warps=4,
            **LAUNCH_OPTIONS,
        )
        self.programs["score_groups"].launch(
            rows,
            *inputs.tensors,
            self.chosen,
            self.candidates,
            *inputs.strides,
            *inputs.sizes,
            *(chunk.start, row_blocks, inputs.sequences),
            GROUP=self.group,
            **inputs.options,
            **sizes,
            num_warps=choose_score_warps(
                count * self.group * inputs.options["WIDTH"] * inputs.tensors[0].element_size()
            ),
            **LAUNCH_OPTIONS,
        )
        lines = max(1, min(LINES, LINE_KEYS // (count * self.group)))
        self.programs["choose_keys"].launch(
            rows // lines,
            self.candidates,
            self.chosen,
            self.weights,
            self.keys,
            *(n, chunk.start, row_blocks, inputs.sequences, self.k),
            LINES=lines,
            GROUP=self.group,
            RIGHT=inputs.options["RIGHT"],
            **sizes,
            num_warps=4,
            **LAUNCH_OPTIONS,
        )


def choose_score_warps(size: int) -> int:
    """Return the warps of a program for the scores of one row, from the bytes of the keys."""
    return min(16, max(1, size // 2**14))


def choose_group(blocks: Blocks, rows: int, cols: int) -> tuple[int, int]:
    """Return the keys of a group and the blocks of rows of a chunk, from the numbers of blocks.

    Long rows have larger groups, whose maxima take less memory: otherwise too few programs would run at a time.
    """
    group = GROUP
    while True:
        chunk = min(rows, max(1, SCRATCH // (blocks.rows * cols * (blocks.cols // group + 1))))
        if chunk >= min(rows, PROGRAMS) or group >= min(MAX_GROUP, blocks.cols):
            return group, chunk if chunk == rows else chunk // PROGRAMS * PROGRAMS or chunk
        group *= 2


def round_up(number: int) -> int:
    """Return the next power of two."""
    return 1 << max(0, number - 1).bit_length()


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why the programs do not support a call or a reduction; None if they do."""
    if job in FORWARD_JOBS:
        return get_forward_reason(call)
    if find_product(call) is None:
        return f"{type(call.terms.score).__name__} {NOT_OF_FORM['dot']}"
    if job.startswith("top:") and (int(job[4:]) > MAX_TOP or call.terms.shape[-1] > MAX_KEYS):
        return f"it finds up to {MAX_TOP} keys of {MAX_KEYS:,}"
    if job == "received" and torch.are_deterministic_algorithms_enabled():
        return "its sums depend on the order of additions"
    return get_product_reason(call, call.query.shape[-1])


def get_forward_reason(call: Call) -> str | None:
    """Return why the programs do not compute the attention of a call that need not be prepared; None if they do."""
    reason = get_device_reason(call.query.device)
    if reason is not None:
        return reason
    score, form = call.terms.score, call.dot
    if form is None and not (isinstance(score, SoftCap) and isinstance(score.score, Dot)):
        return f"{type(score).__name__} {NOT_OF_FORM['dot']}"
    if form is not None and form.key_bias is None and call.bias is None:
        return "torch's operators are faster without a bias"
    return get_product_reason(call, (call if form is None else form).query.shape[-1])


def get_product_reason(call: Call, width: int) -> str | None:
    """Return why the programs do not support a softmax over dot products of vectors of a width; None if they do."""
    if not isinstance(call.terms.normalizer, Softmax):
        return f"{type(call.terms.normalizer).__name__} is not softmax"
    if width > (max_width := get_max_width(call.query.dtype)):
        return f"it supports widths up to {max_width} in {str(call.query.dtype).removeprefix('torch.')}"
    return get_call_reason(call)


def worthwhile(call: Call) -> bool:
    """Return whether torch's operators, whose gradients are faster, would copy queries and keys or cannot run."""
    if SDPA.get_unsupported_reason(call, "forward") is not None:
        return True
    form = call.dot
    if form is None or form.key_bias is None:
        return False
    inputs = form.query, form.keys, form.key_bias, *(part for part in (call.bias, call.sink) if part is not None)
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs))


TRITON_DOT = AttentionKernel(
    "triton_dot",
    forms=("dot", "other"),
    unsupported_reason=unsupported_reason,
    worthwhile=worthwhile,
    forward=forward,
    reduce=reduce,
    takes_key_bias=True,
)
