"""Convert masks of Transformers to rules, without a tensor of queries x keys.

Causal attention, sliding windows, packed documents and padding are recognized; any other
mask becomes the bool tensor that Transformers builds for SDPA.
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

from regard.attention.visible import And, Causal, Rule, Window, as_rule, causal, documents, window


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """What the queries of a call may see, in scores of shape (batch, heads, queries, keys)."""

    rule: Rule | None  # None: every key
    keys: int  # the number of keys, without unused slots of a cache
    first: int = 0  # the position of the first key, if a cache has dropped earlier ones


class RuleMask(Tensor):
    """A mask with an `AttentionMask`, which becomes a bool tensor only when its values are used."""

    attention_mask: AttentionMask
    build_dense: Callable[[], Tensor]

    @staticmethod
    def build(
        attention_mask: AttentionMask, build_dense: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device
    ) -> RuleMask:
        """Build a mask of this shape that takes no memory; `build_dense` returns the tensor."""
        mask = torch.empty((), dtype=torch.bool, device=device).expand(shape).as_subclass(RuleMask)
        mask.attention_mask, mask.build_dense = attention_mask, build_dense
        return mask

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA_FUNCTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func is Tensor.contiguous:
            return args[0]
        args, kwargs = tree_map_only(RuleMask, lambda mask: mask.build_dense(), (args, kwargs or {}))
        return func(*args, **kwargs)


METADATA_FUNCTIONS = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda")),
    *(Tensor.size, Tensor.dim, Tensor.is_floating_point, Tensor.__len__),
}
"""Functions that do not use the values of a mask."""


def build_rule_mask(
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
    """Build the attention mask for Transformers' `AttentionMaskInterface`."""
    q_offset = int(q_offset)  # a tensor, from a static cache

    def build_dense() -> Tensor:
        mask = sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            allow_is_causal_skip=False, use_vmap=use_vmap, device=device,
        )  # fmt: skip
        assert mask is not None  # it is never skipped with allow_is_causal_skip=False
        return mask

    aligned_keys = q_length + q_offset - kv_offset  # the number of keys up to the last query's position
    rules = None if use_vmap else parse_mask_function(mask_function)
    keys = None if rules is None else count_keys(rules, aligned_keys, kv_length)
    if rules is None or keys is None:
        matrix = build_dense()
        keys = aligned_keys if 0 < aligned_keys < kv_length and not matrix[..., aligned_keys:].any() else kv_length
        rules = [as_rule(matrix[..., :keys])]
    elif attention_mask is not None:
        rules += build_padding_rules(attention_mask, kv_offset, keys)
    visible_mask = AttentionMask(reduce(And, rules) if rules else None, keys, kv_offset)
    return RuleMask.build(visible_mask, build_dense, (batch_size, 1, q_length, kv_length), torch.device(device))


def parse_mask_function(function: Callable[..., Any]) -> list[Rule] | None:
    """Return the rules equivalent to a mask function of Transformers, all of which apply; None if it is unknown."""
    if function is causal_mask_function:
        return [causal()]
    if function is bidirectional_mask_function:
        return []
    made_by = getattr(function, "__qualname__", "").removesuffix(".<locals>.inner_mask")
    if made_by == "and_masks.<locals>.and_mask":
        parts = [
            parse_mask_function(part_function) for part_function in get_closure_variable(function, "mask_functions")
        ]
        return None if None in parts else [rule for part in parts for rule in part or ()]
    if made_by == "sliding_window_overlay":
        return [window(get_closure_variable(function, "sliding_window") - 1, None)]
    if made_by == "sliding_window_bidirectional_overlay":
        size = get_closure_variable(function, "sliding_window")
        return [window(size, size)]
    if made_by == "packed_sequence_mask_function":
        return [documents(get_closure_variable(function, "packed_sequence_mask"))]
    return None


def get_closure_variable(function: Callable[..., Any], name: str) -> Any:
    """Return a variable from a function's closure."""
    return inspect.getclosurevars(function).nonlocals[name]


def count_keys(rules: list[Rule], aligned_keys: int, keys: int) -> int | None:
    """Return the number of keys if the last one is at the position of the last query, as rules assume; else None.

    A cache of fixed size has more keys, which no causal query sees.
    """
    if any(isinstance(rule, Causal) for rule in rules):
        return aligned_keys if 0 < aligned_keys <= keys else None
    return keys if aligned_keys == keys or not any(isinstance(rule, Window) for rule in rules) else None


def build_padding_rules(tokens: Bool[Tensor, "batch positions"], first: int, keys: int) -> list[Rule]:
    """Return the rule that hides padding among `keys` keys from position `first`; none without padding."""
    part = tokens[:, first : first + keys]
    part = pad(part, (0, keys - part.shape[1]), value=False)
    return [] if part.all() else [as_rule(part[:, None, None, :])]
