"""Record `nn.MultiheadAttention` and the layers of `nn.Transformer`, which keep their fast paths."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.inputs import autocast_type
from regard.attention.intercept.captured import Captured
from regard.attention.intercept.dot_product import causal_from_start
from regard.attention.intercept.recorded_weights import RecordedWeights
from regard.attention.visible import Rule, TensorRule

NAME = "multi_head_attention_forward"
FUNCTION = functional.multi_head_attention_forward
SIGNATURE = inspect.signature(FUNCTION)
MODULE_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)
LAYER_SIGNATURE = inspect.signature(nn.TransformerEncoderLayer.forward)


@dataclass(frozen=True, eq=False)
class Projections:
    """The parameters that make heads of query and keys."""

    heads: int
    query: Float[Tensor, "width width"]
    keys: Float[Tensor, "width key_width"]
    query_bias: Float[Tensor, " width"] | None
    keys_bias: Float[Tensor, " width"] | None
    extra_key: Float[Tensor, "1 1 width"] | None  # a learned key after all others
    adds_zero: bool  # whether a key of zeros comes last


def capture_function(*args: Any, grad: bool = False, **kwargs: Any) -> Captured:
    """Return the weights of a call of `multi_head_attention_forward`."""
    given = SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    call = given.arguments
    query, keys = (as_batch(call[name], batch_first=False) for name in ("query", "key"))
    separate = call["use_separate_proj_weight"]
    weight = call["q_proj_weight"] if separate else call["in_proj_weight"]
    assert weight is not None
    width = query.shape[-1]
    bias = call["in_proj_bias"]
    projections = Projections(
        call["num_heads"], weight[:width], call["k_proj_weight"] if separate else weight[width : 2 * width],
        None if bias is None else bias[:width], None if bias is None else bias[width : 2 * width],
        call["bias_k"], call["add_zero_attn"],
    )  # fmt: skip
    causal = call["is_causal"] and call["key_padding_mask"] is None and not call["need_weights"]
    masks = None if causal else call["attn_mask"], call["key_padding_mask"]
    captured = capture_heads(query, keys, projections, masks, causal=causal, grad=grad, fixed_keys=call["static_k"])
    captured.kind = "self" if call["query"] is call["key"] else None
    return captured


def capture_module(module: nn.MultiheadAttention, args: Any, kwargs: Any, *, grad: bool = False) -> Captured:
    """Return the weights of a call of `nn.MultiheadAttention`."""
    given = MODULE_SIGNATURE.bind(module, *args, **kwargs)
    given.apply_defaults()
    call = given.arguments
    query, keys = (as_batch(call[name], module.batch_first) for name in ("query", "key"))
    causal = call["is_causal"] and call["key_padding_mask"] is None and not call["need_weights"]
    masks = None if causal else call["attn_mask"], call["key_padding_mask"]
    captured = capture_heads(query, keys, get_projections(module), masks, causal=causal, grad=grad)
    captured.kind = "self" if call["query"] is call["key"] else None
    return captured


def capture_encoder_layer(layer: nn.TransformerEncoderLayer, args: Any, kwargs: Any, *, grad: bool = False) -> Captured:
    """Return the weights of a layer that ran as one operator; its own attention module was not called."""
    given = LAYER_SIGNATURE.bind(layer, *args, **kwargs)
    given.apply_defaults()
    call = given.arguments
    source, padding = call["src"], call["src_key_padding_mask"]
    if source.is_nested:
        lengths = torch.tensor([len(sequence) for sequence in source.unbind()], device=source.device)
        source = source.to_padded_tensor(0.0)
        padding = torch.arange(source.shape[1], device=source.device) >= lengths[:, None]
    if layer.norm_first:
        source = functional.layer_norm(
            source, layer.norm1.normalized_shape, layer.norm1.weight, layer.norm1.bias, layer.norm1.eps
        )
    captured = capture_heads(
        source, source, get_projections(layer.self_attn), (call["src_mask"], padding), causal=False, grad=grad
    )
    captured.kind, captured.path = "self", "self_attn"
    return captured


def get_projections(module: nn.MultiheadAttention) -> Projections:
    """Return the parameters of a module, which are separate if query and keys differ in width."""
    bias, width = module.in_proj_bias, module.embed_dim
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight[:width], module.in_proj_weight[width : 2 * width]
    else:
        weights = module.q_proj_weight, module.k_proj_weight
    biases = (None, None) if bias is None else (bias[:width], bias[width : 2 * width])
    return Projections(module.num_heads, *weights, *biases, module.bias_k, module.add_zero_attn)


def capture_heads(
    query: Float[Tensor, "batch queries width"],
    keys: Float[Tensor, "batch keys key_width"],
    projections: Projections,
    masks: tuple[Shaped[Tensor, "..."] | None, Shaped[Tensor, "..."] | None],
    *,
    causal: bool,
    grad: bool,
    fixed_keys: Float[Tensor, "batch_heads keys width"] | None = None,
) -> Captured:
    """Project query and keys as the module does, and return the weights of its heads."""
    heads = projections.heads
    with torch.set_grad_enabled(grad and torch.is_grad_enabled()), torch._C.DisableTorchFunction():
        query = functional.linear(query, projections.query, projections.query_bias)
        keys = (
            fixed_keys if fixed_keys is not None else functional.linear(keys, projections.keys, projections.keys_bias)
        )
        if fixed_keys is None and projections.extra_key is not None:
            keys = torch.cat([keys, projections.extra_key.expand(len(keys), -1, -1)], 1)
        query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
        keys = (
            keys.unflatten(0, (-1, heads))
            if fixed_keys is not None
            else keys.unflatten(-1, (heads, -1)).transpose(1, 2)
        )
        if projections.adds_zero:
            keys = torch.cat([keys, keys.new_zeros(*keys.shape[:2], 1, keys.shape[-1])], 2)
        dtype = autocast_type(query)
        query, keys = (query, keys) if dtype is None else (query.to(dtype), keys.to(dtype))
        if not grad:
            query, keys = query.detach(), keys.detach()
        rule, bias = merge_masks(*masks, heads=heads, keys=keys.shape[-2])
    if causal:
        causal_rule = causal_from_start(query.shape[-2], keys.shape[-2])
        rule = causal_rule if rule is None else rule & causal_rule
    return Captured(RecordedWeights(query, keys, query.shape[-1] ** -0.5, rule, bias, grad=grad), NAME)


def merge_masks(
    mask: Shaped[Tensor, "..."] | None, padding: Shaped[Tensor, "..."] | None, *, heads: int, keys: int
) -> tuple[Rule | None, Float[Tensor, "..."] | None]:
    """Merge an attention mask and a padding mask, where True means hidden, into a rule and a bias."""
    rule: Rule | None = None
    bias = None
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, heads))
    if padding is not None:
        padding = torch.atleast_2d(padding)[:, None, None, :]
    for part in (mask, padding):
        if part is None:
            continue
        if part.shape[-1] < keys:  # learned keys and zeros are always visible
            part = functional.pad(part, (0, keys - part.shape[-1]))
        if part.dtype == torch.bool:
            rule = TensorRule(~part) if rule is None else rule & ~part
        else:
            bias = part if bias is None else bias + part
    return rule, bias


def as_batch(tensor: Float[Tensor, "..."], batch_first: bool) -> Float[Tensor, "batch positions width"]:
    """Return a sequence, or a batch of them in either layout, as a batch."""
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    if tensor.ndim == 2:
        return tensor[None]
    return tensor if batch_first else tensor.transpose(0, 1)


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module runs the forward of one of torch's own classes."""
    return isinstance(module, kind) and type(module).forward is kind.forward and "forward" not in vars(module)


def runs_in_one_piece(module: nn.Module) -> bool:
    """Return whether torch may run a module as one operator, which an active mode would prevent."""
    if is_plain(module, nn.TransformerEncoder):
        return all(is_plain(layer, nn.TransformerEncoderLayer) for layer in module.layers)  # type: ignore[union-attr]
    return is_fused_layer(module) or is_plain(module, nn.MultiheadAttention)


def is_fused_layer(module: nn.Module) -> bool:
    """Return whether a module is torch's own encoder layer, which may run as one operator."""
    if not is_plain(module, nn.TransformerEncoderLayer):
        return False
    return is_plain(module.self_attn, nn.MultiheadAttention)  # type: ignore[arg-type]
