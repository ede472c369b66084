"""torch's fused attention operators, one small class each: (output, log-sum-exp) and the gradients.

All take (batch, heads, queries, width) and values as wide as keys. `causal` is
top-left: query i sees keys 0..i. `mask` is added to the scores and broadcasts to
(batch, heads, queries, keys).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


class Operator(ABC):
    """One fused operator; `extra` is what its backward wants besides."""

    @abstractmethod
    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Any]:
        """Output, log-sum-exp (batch, heads, queries), extra."""

    @abstractmethod
    def backward(
        self,
        gradient: Tensor,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        output: Tensor,
        lse: Tensor,
        causal: bool,
        scale: float,
        extra: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, keys and values."""


class CpuFlash(Operator):
    """FlashAttention for CPUs; takes a mask and causal together."""

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Any]:
        output, lse = aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, 0.0, causal, attn_mask=mask, scale=scale
        )
        return output, lse, None

    def backward(
        self,
        gradient: Tensor,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        output: Tensor,
        lse: Tensor,
        causal: bool,
        scale: float,
        extra: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *inputs, output, lse, 0.0, causal, attn_mask=mask, scale=scale
        )
        return found


class CudaFlash(Operator):
    """FlashAttention for half precision on CUDA; takes no mask."""

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_flash_attention(
            query, keys, values, 0.0, causal, False, scale=scale
        )
        return output, lse, extra

    def backward(
        self,
        gradient: Tensor,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        output: Tensor,
        lse: Tensor,
        causal: bool,
        scale: float,
        extra: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        starts_q, starts_k, longest_q, longest_k, seed, offset = extra
        found: tuple[Tensor, Tensor, Tensor] = aten._scaled_dot_product_flash_attention_backward(
            gradient,
            *inputs,
            output,
            lse,
            starts_q,
            starts_k,
            longest_q,
            longest_k,
            0.0,
            causal,
            seed,
            offset,
            scale=scale,
        )
        return found


class CudaCudnn(Operator):
    """cuDNN's attention for half precision, the fastest on Hopper; used without a mask."""

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_cudnn_attention(
            query, keys, values, None, True, 0.0, causal, False, scale=scale
        )
        return output, lse.reshape(query.shape[:-1]), extra

    def backward(
        self,
        gradient: Tensor,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        output: Tensor,
        lse: Tensor,
        causal: bool,
        scale: float,
        extra: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        starts_q, starts_k, longest_q, longest_k, seed, offset = extra
        found: tuple[Tensor, Tensor, Tensor] = aten._scaled_dot_product_cudnn_attention_backward(
            gradient, *inputs, output, lse[..., None], seed, offset, None, starts_q, starts_k, longest_q, longest_k,
            0.0, causal, scale=scale,
        )  # fmt: skip
        return found


class CudaEfficient(Operator):
    """Memory-efficient attention on CUDA: any precision up to float32, takes a mask and causal together."""

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra = aten._scaled_dot_product_efficient_attention(
            query, keys, values, aligned(mask, query, keys), True, 0.0, causal, scale=scale
        )
        return output, lse[..., : query.shape[-2]], extra

    def backward(
        self,
        gradient: Tensor,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        output: Tensor,
        lse: Tensor,
        causal: bool,
        scale: float,
        extra: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, _ = inputs
        padding = -lse.shape[-1] % 32  # the operator keeps its log-sum-exp in multiples of 32
        *found, _ = aten._scaled_dot_product_efficient_attention_backward(
            gradient, *inputs, aligned(mask, query, keys), output, torch.nn.functional.pad(lse, (0, padding)),
            *extra, 0.0, [True, True, True, False], causal, scale=scale,
        )  # fmt: skip
        return found[0], found[1], found[2]


def aligned(mask: Tensor | None, query: Tensor, keys: Tensor) -> Tensor | None:
    """The mask in the query's type, each row starting at a multiple of 16 numbers, as the operator wants it."""
    if mask is None:
        return None
    length = keys.shape[-2]
    padded = torch.nn.functional.pad(mask.to(query.dtype), (0, -length % 16))[..., :length]
    return padded.expand(*query.shape[:-1], length)


def operator_for(query: Tensor, mask: bool) -> Operator | None:
    """The fastest operator for tensors like this one, with a mask or without; None where there is none."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    if query.device.type == "cpu":
        return CpuFlash()
    if query.device.type != "cuda" or query.dtype == torch.float64:
        return None
    if (
        half
        and not mask
        and query.shape[-1] <= 128
        and torch.backends.cuda.cudnn_sdp_enabled()
        and hopper(query.device)
    ):
        return CudaCudnn()
    if half and not mask and query.shape[-1] <= 256 and torch.backends.cuda.flash_sdp_enabled():
        return CudaFlash()
    return CudaEfficient()


def hopper(device: torch.device) -> bool:
    """Whether a GPU is one where cuDNN's attention leads."""
    return torch.cuda.get_device_capability(device) >= (9, 0)
