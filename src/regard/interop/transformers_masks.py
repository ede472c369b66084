"""Masks of Transformers as rules: what a model's mask function says, without a queries x keys tensor.

Causal attention, sliding windows, packed documents and padding are recognised; the
rule of any other mask is the bool tensor that Transformers makes for SDPA.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map_only
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from regard.attention.visible import Both, Causal, Rule, Window, as_rule, causal, documents, window


@dataclass(frozen=True, eq=False)
class Sight:
    """What the queries of a call may see, in scores of shape (batch, heads, queries, keys)."""

    rule: Rule | None  # None: every key
    keys: int  # how many there are; what a cache has room for beyond them is none
    first: int = 0  # the position of the first key, where a cache has dropped those before it


class RuleMask(Tensor):
    """A mask that is a `Sight`, and becomes a bool tensor only for those who look at its numbers."""

    sight: Sight
    whole: Callable[[], Tensor]

    @staticmethod
    def of(sight: Sight, whole: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device) -> RuleMask:
        """A mask of this shape that takes no memory; `whole` makes the tensor."""
        mask = torch.empty((), dtype=torch.bool, device=device).expand(shape).as_subclass(RuleMask)
        mask.sight, mask.whole = sight, whole
        return mask

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func is Tensor.contiguous:
            return args[0]
        args, kwargs = tree_map_only(RuleMask, lambda mask: mask.whole(), (args, kwargs or {}))
        return func(*args, **kwargs)


ABOUT = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda")),
    *(Tensor.size, Tensor.dim, Tensor.is_floating_point, Tensor.__len__),
}
"""What can be asked of a mask without a look at its numbers."""


def rule_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Bool[Tensor, "batch positions"] | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor:
    """What Transformers calls to make a mask, for the attention implementation "regard"."""
    q_offset = int(q_offset)  # a tensor, from a static cache

    def whole() -> Tensor:
        mask = sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            allow_is_causal_skip=False, use_vmap=use_vmap, device=device,
        )  # fmt: skip
        assert mask is not None  # since nothing may be skipped
        return mask

    in_line = q_length + q_offset - kv_offset  # the key where the last query stands is the last of so many
    rules = None if use_vmap else rules_of(mask_function)
    keys = None if rules is None else keys_of(rules, in_line, kv_length)
    if rules is None or keys is None:
        matrix = whole()
        keys = in_line if 0 < in_line < kv_length and not matrix[..., in_line:].any() else kv_length
        rules = [as_rule(matrix[..., :keys])]
    elif attention_mask is not None:
        rules += without_padding(attention_mask, kv_offset, keys)
    sight = Sight(reduce(Both, rules) if rules else None, keys, kv_offset)
    return RuleMask.of(sight, whole, (batch_size, 1, q_length, kv_length), torch.device(device))


def rules_of(function: Callable[..., Any]) -> list[Rule] | None:
    """The rules that together say what a mask function of Transformers says; None where it is not known."""
    if function is causal_mask_function:
        return [causal()]
    if function is bidirectional_mask_function:
        return []
    made_by = getattr(function, "__qualname__", "").removesuffix(".<locals>.inner_mask")
    if made_by == "and_masks.<locals>.and_mask":
        parts = [rules_of(each) for each in inside(function, "mask_functions")]
        return None if None in parts else [rule for part in parts for rule in part or ()]
    if made_by == "sliding_window_overlay":
        return [window(inside(function, "sliding_window") - 1, None)]
    if made_by == "sliding_window_bidirectional_overlay":
        size = inside(function, "sliding_window")
        return [window(size, size)]
    if made_by == "packed_sequence_mask_function":
        return [documents(inside(function, "packed_sequence_mask"))]
    return None


def inside(function: Callable[..., Any], name: str) -> Any:
    """A variable that a function remembers from where it was made."""
    return inspect.getclosurevars(function).nonlocals[name]


def keys_of(rules: list[Rule], in_line: int, keys: int) -> int | None:
    """How many keys there are, if the last of them stands where the last query does, as rules have it; else None.

    A cache of fixed size holds more than those in line, which no causal query sees.
    """
    if any(isinstance(rule, Causal) for rule in rules):
        return in_line if 0 < in_line <= keys else None
    return keys if in_line == keys or not any(isinstance(rule, Window) for rule in rules) else None


def without_padding(tokens: Bool[Tensor, "batch positions"], first: int, keys: int) -> list[Rule]:
    """The rule that leaves out padding, for keys from a position on; no rule where there is no padding."""
    part = tokens[:, first : first + keys]
    part = pad(part, (0, keys - part.shape[1]), value=False)
    return [] if part.all() else [as_rule(part[:, None, None, :])]
