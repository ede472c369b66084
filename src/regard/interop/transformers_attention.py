"""An attention function for Transformers' `AttentionInterface` that calls `attend`."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.attention.combined_weights import MergedWeights
from regard.attention.functional import attend
from regard.attention.scores import get_fixed_dot
from regard.attention.visible import as_rule, causal, map_tensor_rules
from regard.attention.watch import is_watching, report, suspend_watching
from regard.errors import RegardError
from regard.interop.transformers_masks import AttentionMask, RuleMask

IGNORED_ARGUMENTS = {
    "cu_seq_lens_k", "cu_seq_lens_q", "deterministic", "max_length_k", "max_length_q", "num_items_in_batch",
    "output_attentions", "output_hidden_states", "output_router_logits", "position_ids", "return_dict", "seq_idx",
    "sliding_window", "use_cache",
}  # fmt: skip
"""Arguments of attention functions that do not affect the weights, or that the mask already covers."""

ARGUMENT_MEANINGS = {"s_aux": "sinks", "softcap": "capped scores", "cache": "a paged cache"}
"""What some unsupported arguments mean, for the error message."""

caches: ContextVar[tuple[bool, ...]] = ContextVar("regard_caches", default=())
"""For every running model, whether it was given a cache, whose memory may be overwritten."""


def regard_attention_forward(
    module: nn.Module,
    query: Float[Tensor, "batch heads queries width"],
    key: Float[Tensor, "batch groups keys width"],
    value: Float[Tensor, "batch groups keys value_width"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Float[Tensor, "#batch #heads #queries keys"] | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch queries heads value_width"], None]:
    """Compute attention for Transformers' `AttentionInterface` with `attend`, and report the weights to watchers.

    Follows Transformers' "sdpa": without a mask, a causal module sees only as many keys as
    there are queries, the first ones.
    """
    check_unsupported_arguments(module, kwargs)
    heads, groups, queries = query.shape[1], key.shape[1], query.shape[2]
    if attention_mask is None and is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    mask, bias = convert_mask(attention_mask, queries, key.shape[2], causal_alone=bool(is_causal))
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    key, value = key[:, :, : mask.keys], value[:, :, : mask.keys]
    rule, bias = mask.rule, None if bias is None else bias[..., : mask.keys]
    if heads > groups:
        query, key, value = query.unflatten(1, (groups, -1)), key[:, :, None], value[:, :, None]
        rule = None if rule is None else map_tensor_rules(rule, partial(add_group_axis, groups=groups))
        bias = None if bias is None else add_group_axis(bias, groups)
    score = get_fixed_dot(query.shape[-1] ** -0.5 if scaling is None else scaling)
    call = partial(attend, query, key, value, score, visible=rule, bias=bias, dropout=dropout)
    if not is_watching():
        output = call()
    else:
        with suspend_watching():
            output, weights = call(return_weights=True, lazy=queries > 1 and not any(caches.get()))
        report(MergedWeights(weights, 1) if heads > groups else weights, module, mask.first)
    return output.reshape(len(query), heads, queries, -1).transpose(1, 2).contiguous(), None


def check_unsupported_arguments(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """Raise a `RegardError` for an argument that affects the weights but is not supported."""
    for name, value in kwargs.items():
        if value is not None and value is not False and name not in IGNORED_ARGUMENTS:
            meaning = f" ({ARGUMENT_MEANINGS[name]})" if name in ARGUMENT_MEANINGS else ""
            raise RegardError(
                f'watch: {type(module).__name__} passes "{name}"{meaning} to its attention, which is not supported; '
                'load the model with attn_implementation="eager"'
            )


def convert_mask(
    mask: Tensor | None, queries: int, keys: int, *, causal_alone: bool
) -> tuple[AttentionMask, Float[Tensor, "..."] | None]:
    """Convert a mask to what the queries may see, and a bias added to their scores."""
    if mask is None:
        if causal_alone and queries > 1:
            return AttentionMask(causal(), min(queries, keys)), None
        return AttentionMask(None, keys), None
    if isinstance(mask, RuleMask):
        return mask.attention_mask, None
    if mask.is_floating_point():
        return AttentionMask(None, keys), mask
    return AttentionMask(as_rule(mask[..., :keys]), keys), None


def add_group_axis(
    tensor: Shaped[Tensor, "batch heads queries keys"], groups: int
) -> Shaped[Tensor, "batch groups heads_each queries keys"]:
    """Split the head axis (or keep it if it is 1) to add an axis for the groups."""
    return tensor[:, :, None] if tensor.shape[1] == 1 else tensor.unflatten(1, (groups, -1))
