"""Whether Triton can run here, and what its kernels take: four axes, and a visibility rule as numbers and vectors."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.sdpa import flatten_batch
from regard.attention.visible import (
    BatchSliceRule,
    Causal,
    Documents,
    Lengths,
    Rule,
    TensorRule,
    Window,
    insert_batch_axes,
    split_conjunction,
)

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FIRST_CAPABILITY = (8, 0)  # Ampere: the first GPUs with bfloat16
LAUNCH_OPTIONS = {"enable_fp_fusion": True}  # the default differs between versions of Triton, which warn of that


def get_device_reason(device: torch.device) -> str | None:
    """Return why Triton cannot run on a device; None if it can."""
    if device.type == "cuda" and torch.version.hip is None:
        return get_gpu_reason(device)
    if is_interpreted():
        return None
    return f"it runs on NVIDIA GPUs, not on {'AMD' if device.type == 'cuda' else device.type}"


def is_interpreted() -> bool:
    """Return whether programs run in Triton's interpreter, on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def get_gpu_reason(device: torch.device) -> str | None:
    """Return why Triton cannot run on a GPU; None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        return "it requires a GPU of compute capability 8.0 or newer"
    return None


def run_on_device(
    function: Callable[Concatenate[Call, Given], Returned],
) -> Callable[Concatenate[Call, Given], Returned]:
    """Make the GPU of a call the current one while its programs are launched, as torch's operators do."""

    @wraps(function)
    def run(call: Call, /, *args: Given.args, **options: Given.kwargs) -> Returned:
        with torch.cuda.device_of(call.query):
            return function(call, *args, **options)

    return run


def get_call_reason(call: Call) -> str | None:
    """Return why Triton kernels do not support the tensors or the rule of a call; None if they do."""
    reason = get_device_reason(call.query.device)
    if reason is not None:
        return reason
    if call.query.dtype not in DTYPES:
        return f"it does not support {str(call.query.dtype).removeprefix('torch.')}"
    if describe_rule(call.terms.visible, call.terms.shape) is None:
        return "it supports causal, window, lengths, documents and one mask, combined with &"
    return None


@dataclass(frozen=True)
class RuleParts:
    """A rule in parts that a kernel can evaluate for a pair: query i sees key j if all of them allow it."""

    left: int | None = None  # j >= i + left
    right: int | None = None  # j <= i + right
    lengths: tuple[Lengths, ...] = ()
    documents: Documents | None = None
    matrix: TensorRule | None = None


NO_PARTS = RuleParts()


def describe_rule(rule: Rule | None, shape: torch.Size) -> RuleParts | None:
    """Return the parts of a rule; None if a kernel cannot evaluate it."""
    parts = NO_PARTS
    offset = shape[-1] - shape[-2]
    for item in split_conjunction(rule):
        item = item.rule if isinstance(item, BatchSliceRule) and isinstance(item.rule, (Causal, Window)) else item
        if isinstance(item, Causal):
            parts = replace(parts, right=bound(min, parts.right, item.offset(shape)))
        elif isinstance(item, Window):
            left = None if item.left is None else offset - item.left
            right = None if item.right is None else offset + item.right
            parts = replace(parts, left=bound(max, parts.left, left), right=bound(min, parts.right, right))
        elif isinstance(item, Lengths):
            parts = replace(parts, lengths=(*parts.lengths, item))
        elif isinstance(item, Documents) and parts.documents is None:
            parts = replace(parts, documents=item)
        elif isinstance(item, TensorRule) and parts.matrix is None:
            parts = replace(parts, matrix=item)
        else:
            return None
    return parts


def bound(choose: Callable[[list[int]], int], first: int | None, second: int | None) -> int | None:
    """Return the tighter of two limits, of which each may be missing."""
    limits = [limit for limit in (first, second) if limit is not None]
    return choose(limits) if limits else None


class View(NamedTuple):
    """A tensor with four axes and its strides, as programs take them; None instead of one that is not used.

    Programs take no tuples in tuples: before version 3.7 Triton forgets in loops which of their numbers are 1.
    """

    tensor: Tensor
    batch: int
    head: int
    row: int
    col: int


class RuleArguments(NamedTuple):
    """The parts of a rule as programs take them, but for its matrix; None for tensors that are not used."""

    lengths: Int[Tensor, "..."] | None = None
    row_documents: Int[Tensor, "..."] | None = None
    col_documents: Int[Tensor, "..."] | None = None
    left: int = 0
    right: int = 0


class PairArguments(NamedTuple):
    """What programs take of each pair."""

    rule: RuleArguments
    bias: View | None
    matrix: View | None


NO_RULE = RuleArguments()
NO_RULE_OPTIONS = {"LEFT": False, "RIGHT": False, "LENGTHS": False, "DOCUMENTS": False, "MATRIX": False}


def prepare_rule(call: Call) -> tuple[PairArguments, dict[str, Any]]:
    """Return the bias and the rule of a call, and which parts of them there are; copied only if the layout requires."""
    shape = call.terms.shape
    bias = None if call.bias is None else view(spread(call.bias, shape))
    if call.terms.visible is None:
        return PairArguments(NO_RULE, bias, None), {"BIAS": bias is not None, **NO_RULE_OPTIONS}
    parts, device = describe_rule(call.terms.visible, shape), call.query.device
    assert parts is not None
    matrix = None if parts.matrix is None else view(spread(parts.matrix.matrix, shape).view(torch.uint8))
    lengths = collect_lengths(parts, shape, device) if parts.lengths else None
    rows = columns = None
    if parts.documents is not None:
        queries = parts.documents.queries[..., parts.documents.queries.shape[-1] - shape[-2] :]
        rows, columns = (per_sequence(ids, 1, shape, device) for ids in (queries, parts.documents.keys))
    rule = RuleArguments(lengths, rows, columns, parts.left or 0, parts.right or 0)
    options = {
        "BIAS": bias is not None,
        "LEFT": parts.left is not None,
        "RIGHT": parts.right is not None,
        "LENGTHS": bool(parts.lengths),
        "DOCUMENTS": parts.documents is not None,
        "MATRIX": parts.matrix is not None,
    }
    return PairArguments(rule, bias, matrix), options


def spread(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return a tensor that broadcasts to `shape` as a view with four axes."""
    tensor = torch.atleast_2d(tensor)
    four = flatten_batch(tensor.expand(*tensor.shape[:-2], *shape[-2:]), shape[:-2], expand=False)
    lead = shape[:-2]
    return four.expand(math.prod(lead[:-1]), math.prod(lead[-1:]), *shape[-2:])


def view(tensor: Tensor) -> View:
    """Return a tensor with four axes as programs take it."""
    return View(tensor, *tensor.stride())


def per_sequence(numbers: Tensor, trailing: int, shape: torch.Size, device: torch.device) -> Int[Tensor, "..."]:
    """Return integers per sequence, given for the first axes of the batch, as contiguous rows for all of them."""
    numbers = insert_batch_axes(numbers.to(device, non_blocking=True), trailing, shape)  # does not wait for the GPU
    return numbers.expand(*shape[:-2], *numbers.shape[numbers.ndim - trailing :]).to(torch.int32).contiguous()


def collect_lengths(parts: RuleParts, shape: torch.Size, device: torch.device) -> Int[Tensor, "*batch"]:
    """Return the smallest length of each sequence."""
    first, *rest = (per_sequence(rule.counts, 0, shape, device) for rule in parts.lengths)
    for lengths in rest:
        first = torch.minimum(first, lengths)
    return first


def pad_width(width: int) -> int:
    """Return the width of the tiles for a width: a power of two that matrix units take."""
    return max(16, 1 << (width - 1).bit_length())


def get_max_width(dtype: torch.dtype) -> int:
    """Return the largest width whose tiles fit into shared memory, also in three parts of TF32 each for float32."""
    return 128 if dtype == torch.float32 else 256


class RepeatedLaunch:
    """Launches a Triton program several times with arguments that differ in nothing that it is compiled for.

    All but the first launch call the compiled program: what Triton does before takes longer than a chunk of rows.
    """

    def __init__(self, program: Any) -> None:
        self.program = program
        self.compiled: Any = None

    def launch(self, count: int, *args: Any, **options: Any) -> None:
        """Launch a number of programs; constants are given by name, after all others."""
        if self.compiled is None:
            self.compiled = self.program[(count,)](*args, **options)  # None in the interpreter
        else:
            constants = [options[name] for name in self.program.arg_names[len(args) :]]
            self.compiled[(count, 1, 1)](*args, *constants)
