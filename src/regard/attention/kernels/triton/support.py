"""Whether Triton can run here, and what its kernels take: four axes, and a visibility rule as numbers and vectors."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from regard.attention.call import Call
from regard.attention.visible import (
    BatchSliceRule,
    Causal,
    Documents,
    Lengths,
    Rule,
    TensorRule,
    Window,
    split_conjunction,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FIRST_CAPABILITY = (8, 0)  # Ampere: the first GPUs with bfloat16


def get_device_reason(device: torch.device) -> str | None:
    """Return why Triton cannot run on a device; None if it can."""
    if is_interpreted():
        return None
    if device.type != "cuda" or torch.version.hip is not None:
        return f"it runs on NVIDIA GPUs, not on {'AMD' if device.type == 'cuda' else device.type}"
    return get_gpu_reason(device)


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


def describe_rule(rule: Rule | None, shape: torch.Size) -> RuleParts | None:
    """Return the parts of a rule; None if a kernel cannot evaluate it."""
    parts = RuleParts()
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
