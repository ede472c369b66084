"""How torch calls operators, compiled functions and functions that ask a mode what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

COMPILING = ("torch._dynamo", "torch.nn.attention.flex_attention")
"""Modules that compile graphs, which call neither hooks nor modes; the second one imports the first when it runs."""

COMPILED_CALL = "compile_wrapper"
"""The name of the function that torch.compile puts around another one."""

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def without_override(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function of torch that does not ask a mode what to do, so that the mode can stay on inside."""
    asks = ("has_torch_function", "has_torch_function_unary")
    names = function.__globals__ | dict.fromkeys(asks, lambda *_: False)
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


BACKWARD = {
    function: without_override(function) for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
}
"""Functions that run the model again, for gradient checkpoints -> the same with the mode on inside."""


def name_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an operator by name, whose order differs between versions; of others as they are."""
    operator = function.default if isinstance(function, torch._ops.OpOverloadPacket) else function
    if not isinstance(operator, torch._ops.OpOverload):
        return args, kwargs
    names = [argument.name for argument in operator._schema.arguments]
    return (), dict(zip(names, args, strict=False)) | kwargs


def is_called_compiled() -> bool:
    """Return whether the innermost module calls the running code through a compiled function.

    Those inside of flex_attention, which compiles parts of itself, do not count.
    """
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not nn.Module._call_impl.__code__:
        wrapped, frame = frame, frame.f_back
        if wrapped.f_code.co_name == COMPILED_CALL and frame.f_globals.get("__name__") != COMPILING[1]:
            return True
    return False
