"""torch's fused attention operators, one small class each: (output, log-sum-exp) and the gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

aten = torch.ops.aten

LONG = 1024  # queries from which cuDNN's attention is worth the plan it makes for every new shape

Gradients = tuple[Tensor, Tensor, Tensor]
"""Of query, keys and values."""


class Work(NamedTuple):
    """What an operator is given: values as wide as keys, and causal from the top left (query i sees keys 0..i)."""

    query: Float[Tensor, "batch heads queries width"]
    keys: Float[Tensor, "batch heads keys width"]
    values: Float[Tensor, "batch heads keys width"]
    mask: Float[Tensor, "#batch #heads #queries keys"] | None  # added to the scores
    causal: bool
    scale: float

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, keys and values."""
        return self.query, self.keys, self.values


class Operator(ABC):
    """One fused operator; `extra` is what its backward wants besides."""

    @abstractmethod
    def forward(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        """Output, log-sum-exp (batch, heads, queries), extra."""

    @abstractmethod
    def backward(self, work: Work, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        """Gradients of query, keys and values."""


class CpuFlash(Operator):
    """FlashAttention for CPUs; takes a mask and causal together."""

    def forward(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        output, lse = torch._scaled_dot_product_flash_attention_for_cpu(
            *work.inputs, 0.0, work.causal, attn_mask=work.mask, scale=work.scale
        )
        return output, lse, None

    def backward(self, work: Work, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *work.inputs, output, lse, 0.0, work.causal, attn_mask=work.mask, scale=work.scale
        )


class CudaFlash(Operator):
    """FlashAttention for half precision on CUDA; takes no mask."""

    def forward(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_flash_attention(
            *work.inputs, 0.0, work.causal, False, scale=work.scale
        )
        return output, lse, extra

    def backward(self, work: Work, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        *lengths, seed, offset = extra
        return aten._scaled_dot_product_flash_attention_backward(
            gradient, *work.inputs, output, lse, *lengths, 0.0, work.causal, seed, offset, scale=work.scale
        )


class CudaCudnn(Operator):
    """cuDNN's attention for half precision, the fastest on Hopper for long sequences; used without a mask."""

    def forward(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra, _ = aten._scaled_dot_product_cudnn_attention(
            *work.inputs, None, True, 0.0, work.causal, False, scale=work.scale
        )
        return output, lse.reshape(work.query.shape[:-1]), extra

    def backward(self, work: Work, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        *lengths, seed, offset = extra
        return aten._scaled_dot_product_cudnn_attention_backward(
            gradient,
            *work.inputs,
            output,
            lse[..., None],
            seed,
            offset,
            None,
            *lengths,
            0.0,
            work.causal,
            scale=work.scale,
        )


class CudaEfficient(Operator):
    """Memory-efficient attention on CUDA: any precision up to float32, takes a mask and causal together."""

    def forward(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        output, lse, *extra = aten._scaled_dot_product_efficient_attention(
            *work.inputs, aligned_mask(work), True, 0.0, work.causal, scale=work.scale
        )
        return output, lse[..., : work.query.shape[-2]], extra

    def backward(self, work: Work, gradient: Tensor, output: Tensor, lse: Tensor, extra: Any) -> Gradients:
        padded = pad(lse, (0, -lse.shape[-1] % 32), value=math.inf)  # in multiples of 32; rows of inf weigh nothing
        by_rows = output.transpose(1, 2).contiguous().transpose(1, 2)  # in memory (batch, queries, heads, width)
        wanted = [True, True, True, False]
        *found, _ = aten._scaled_dot_product_efficient_attention_backward(
            gradient,
            *work.inputs,
            aligned_mask(work),
            by_rows,
            padded,
            *extra,
            0.0,
            wanted,
            work.causal,
            scale=work.scale,
        )
        return found[0], found[1], found[2]


def aligned_mask(work: Work) -> Tensor | None:
    """The mask in the query's type, each row starting at a multiple of 16 numbers, as CUDA's operator wants it."""
    if work.mask is None:
        return None
    length, mask = work.keys.shape[-2], work.mask.to(work.query.dtype)
    if length % 16 or not mask.is_contiguous():
        mask = pad(mask, (0, -length % 16))[..., :length]
    return mask.expand(*work.query.shape[:-1], length)


def operator_for(query: Tensor, mask: bool) -> Operator | None:
    """The fastest operator for tensors like this one, with a mask or without; None where there is none."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    width = query.shape[-1]
    if query.is_cpu:
        return CpuFlash()
    if not query.is_cuda or query.dtype == torch.float64:
        return None
    if half and not mask and width <= 128 and query.shape[-2] >= LONG and has_fast_cudnn(query.device):
        return CudaCudnn()
    if half and not mask and width <= 256 and torch.backends.cuda.flash_sdp_enabled():
        return CudaFlash()
    return CudaEfficient()


def has_fast_cudnn(device: torch.device) -> bool:
    """Whether a GPU is one where cuDNN's attention leads, and may be used."""
    return torch.backends.cuda.cudnn_sdp_enabled() and torch.cuda.get_device_capability(device) >= (9, 0)
