"""Gradients compared with differences."""

from collections.abc import Callable, Sequence
from typing import Any

import jaxtyping
import torch
from torch import Tensor


def gradcheck(function: Callable[..., Any], inputs: Sequence[Tensor], **options: Any) -> bool:
    """torch's own, which calls the function hundreds of times; shapes and types are checked in the first call alone."""
    outputs = function(*inputs)
    torch.autograd.backward([output.sum() for output in ([outputs] if isinstance(outputs, Tensor) else outputs)])
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.jaxtyping_disable = True
    try:
        return torch.autograd.gradcheck(function, inputs, **options)
    finally:
        jaxtyping.config.jaxtyping_disable = before
