"""torch's fused attention operators behind one interface: output, log-sum-exp and gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad

aten = torch.ops.aten

Gradients = tuple[Tensor, Tensor, Tensor]
"""The gradients of query, keys and values."""


class OperatorInputs(NamedTuple):
    """The inputs of an operator: values are as wide as keys; if causal, query i sees keys 0..i."""

    query: Float[Tensor, "batch heads queries width"]
    keys: Float[Tensor, "batch heads keys width"]
    values: Float[Tensor, "batch heads keys width"]
    mask: Float[Tensor, "#batch #heads #queries keys"] | None  # added to the scores
    causal: bool
    scale: float

    @property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, keys and values."""
        return self.query, self.keys, self.values


class Operator(ABC):
    """A fused operator; `extra` is further data for its backward."""

    @abstractmethod
    def forward(self, inputs: OperatorInputs) -> tuple[Tensor, Tensor, Any]:
        """Return output, log-sum-exp (batch, heads, queries) and extra."""

    @abstractmethod
    def backward(self, inputs: OperatorInputs, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        """Return the gradients of query, keys and values."""


class CpuFlash(Operator):
    """FlashAttention for CPUs; supports a mask together with causal."""

    def forward(self, inputs: OperatorInputs) -> tuple[Tensor, Tensor, Any]:
        output, lse = torch._scaled_dot_product_flash_attention_for_cpu(
            *inputs.qkv, 0.0, inputs.causal, attn_mask=inputs.mask, scale=inputs.scale
        )
        return output, lse, None

    def backward(self, inputs: OperatorInputs, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *inputs.qkv, output, lse, 0.0, inputs.causal, attn_mask=inputs.mask, scale=inputs.scale
        )


class CudaFlash(Operator):
    """FlashAttention for half precision on CUDA; does not support a mask."""

    def forward(self, inputs: OperatorInputs) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_flash_attention(
            *inputs.qkv, 0.0, inputs.causal, False, scale=inputs.scale
        )
        return output, lse, extra

    def backward(self, inputs: OperatorInputs, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        *lengths, seed, offset = extra
        return aten._scaled_dot_product_flash_attention_backward(
            gradient, *inputs.qkv, output, lse, *lengths, 0.0, inputs.causal, seed, offset, scale=inputs.scale
        )


class CudaCudnn(Operator):
    """cuDNN's attention for half precision; used without a mask."""

    def forward(self, inputs: OperatorInputs) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_cudnn_attention(
            *inputs.qkv, None, True, 0.0, inputs.causal, False, scale=inputs.scale
        )
        return output, lse.reshape(inputs.query.shape[:-1]), extra

    def backward(self, inputs: OperatorInputs, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        *lengths, seed, offset = extra
        return aten._scaled_dot_product_cudnn_attention_backward(
            gradient,
            *inputs.qkv,
            output,
            lse[..., None],
            seed,
            offset,
            None,
            *lengths,
            0.0,
            inputs.causal,
            scale=inputs.scale,
        )


class CudaEfficient(Operator):
    """Memory-efficient attention on CUDA, up to float32; supports a mask together with causal."""

    def forward(self, inputs: OperatorInputs) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra = aten._scaled_dot_product_efficient_attention(
            *inputs.qkv, align_mask(inputs), True, 0.0, inputs.causal, scale=inputs.scale
        )
        return output, lse[..., : inputs.query.shape[-2]], extra

    def backward(self, inputs: OperatorInputs, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        padded = pad(lse, (0, -lse.shape[-1] % 32), value=math.inf)  # to a multiple of 32; rows of inf have no weight
        by_rows = output.transpose(1, 2).contiguous().transpose(1, 2)  # memory layout (batch, queries, heads, width)
        needs_grad = [True, True, True, False]
        *gradients, _ = aten._scaled_dot_product_efficient_attention_backward(
            gradient,
            *inputs.qkv,
            align_mask(inputs),
            by_rows,
            padded,
            *extra,
            0.0,
            needs_grad,
            inputs.causal,
            scale=inputs.scale,
        )
        return gradients[0], gradients[1], gradients[2]


def align_mask(inputs: OperatorInputs) -> Tensor | None:
    """Return the mask in the query's type with rows aligned to 16 elements, as the CUDA operator requires."""
    if inputs.mask is None:
        return None
    length, mask = inputs.keys.shape[-2], inputs.mask.to(inputs.query.dtype)
    if length % 16 or not mask.is_contiguous():
        mask = pad(mask, (0, -length % 16))[..., :length]
    return mask.expand(*inputs.query.shape[:-1], length)


FULL_OPERATORS: dict[int, Operator] = {
    SDPBackend.CUDNN_ATTENTION.value: CudaCudnn(),
    SDPBackend.FLASH_ATTENTION.value: CudaFlash(),
}
"""Operators on a GPU without a mask, by the number that torch gives them."""


def choose_operator(query: Tensor, mask: bool) -> Operator | None:
    """Return the operator for queries like this one, with or without a mask; None if there is none.

    On a GPU it is that of torch's function for such queries, keys and values, so that the output of self-attention
    has the same bits whether weights are returned or not.
    """
    if query.is_cpu:
        return CpuFlash()
    if not query.is_cuda or query.dtype == torch.float64:
        return None
    half = query.dtype in (torch.float16, torch.bfloat16)
    operator = FULL_OPERATORS.get(torch._fused_sdp_choice(query, query, query)) if half and not mask else None
    return CudaEfficient() if operator is None else operator
