"""`attend` in the form in which models of Hugging Face Transformers call their attention."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.attention.arranged import MergedWeights
from regard.attention.functional import attend
from regard.attention.scores import fixed_dot
from regard.attention.visible import as_rule, causal, over_given
from regard.attention.watch import report, unwatched, watching
from regard.errors import RegardError
from regard.interop.transformers_masks import RuleMask, Sight

HARMLESS = {
    "cu_seq_lens_k", "cu_seq_lens_q", "deterministic", "max_length_k", "max_length_q", "num_items_in_batch",
    "output_attentions", "output_hidden_states", "output_router_logits", "position_ids", "return_dict", "seq_idx",
    "sliding_window", "use_cache",
}  # fmt: skip
"""What models pass to their attention that no weight depends on, or that the mask says already."""

KNOWN_AS = {"s_aux": "sinks", "softcap": "capped scores", "cache": "a paged cache"}
"""What some of the arguments mean that cannot be computed here."""

caches: ContextVar[tuple[bool, ...]] = ContextVar("regard_caches", default=())
"""For every model that runs, whether it was given a cache, whose memory may be written again."""


def attention(
    module: nn.Module,
    query: Float[Tensor, "batch heads queries width"],
    key: Float[Tensor, "batch groups keys width"],
    value: Float[Tensor, "batch groups keys value_width"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Float[Tensor, "#batch #heads #queries keys"] | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "batch queries heads value_width"], None]:
    """What Transformers calls for the attention implementation "regard"; tells those that watch.

    Its own "sdpa" is followed: without a mask, a module that is causal sees as many
    keys as there are queries, the earlier ones.
    """
    refuse_unknown(module, others)
    heads, groups, queries = query.shape[1], key.shape[1], query.shape[2]
    if attention_mask is None and is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    sight, bias = what_is_seen(attention_mask, queries, key.shape[2], causal_alone=bool(is_causal))
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    key, value = key[:, :, : sight.keys], value[:, :, : sight.keys]
    rule, bias = sight.rule, None if bias is None else bias[..., : sight.keys]
    if heads > groups:
        query, key, value = query.unflatten(1, (groups, -1)), key[:, :, None], value[:, :, None]
        rule = None if rule is None else over_given(rule, partial(by_group, groups=groups))
        bias = None if bias is None else by_group(bias, groups)
    score = fixed_dot(query.shape[-1] ** -0.5 if scaling is None else scaling)
    call = partial(attend, query, key, value, score, visible=rule, bias=bias, dropout=dropout)
    if not watching():
        output = call()
    else:
        with unwatched():
            output, weights = call(return_weights=True, lazy=queries > 1 and not any(caches.get()))
        report(MergedWeights(weights, 1) if heads > groups else weights, module, sight.first)
    return output.reshape(len(query), heads, queries, -1).transpose(1, 2).contiguous(), None


def refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    """Raise a `RegardError` for an argument that says something about the weights, which would be left out."""
    for name, value in others.items():
        if value is not None and value is not False and name not in HARMLESS:
            meaning = f" ({KNOWN_AS[name]})" if name in KNOWN_AS else ""
            raise RegardError(
                f'watch: {type(module).__name__} gives its attention "{name}"{meaning}, which regard does not know; '
                'look at it with attn_implementation="eager"'
            )


def what_is_seen(
    mask: Tensor | None, queries: int, keys: int, *, causal_alone: bool
) -> tuple[Sight, Float[Tensor, "..."] | None]:
    """What the queries may see, and what is added to their scores."""
    if mask is None:
        if causal_alone and queries > 1:
            return Sight(causal(), min(queries, keys)), None
        return Sight(None, keys), None
    if isinstance(mask, RuleMask):
        return mask.sight, None
    if mask.is_floating_point():
        return Sight(None, keys), mask
    return Sight(as_rule(mask[..., :keys]), keys), None


def by_group(
    tensor: Shaped[Tensor, "batch heads queries keys"], groups: int
) -> Shaped[Tensor, "batch groups heads_each queries keys"]:
    """Numbers for all heads, or one for all of them, with an axis for the groups."""
    return tensor[:, :, None] if tensor.shape[1] == 1 else tensor.unflatten(1, (groups, -1))
