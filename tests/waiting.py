"""A device that is only pretended, on which it can be seen where Python would wait for a real one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import adam
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.layers import lengths

HOST, DEVICE = torch.device("cpu"), torch.device("cpu:0")
"""The CPU, and what passes for a GPU: tensors lie in the same memory, but have to be copied from one to the other."""

READS = {
    "item", "tolist", "numpy", "cpu", "nonzero", "equal", "allclose", "masked_select", "unique", "is_nonzero",
    "__bool__", "__int__", "__float__", "__index__", "__contains__",
}  # fmt: skip
"""Functions that give Python numbers, or a shape that depends on numbers."""

OPERATORS = {"_local_scalar_dense", "_unique2", "nonzero", "masked_select", "equal", "repeat_interleave"}
SHAPED_BY_MASKS = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)
"""The same of operators; and those that do so where they are given a mask."""

WITH_LENGTHS = {"_pack_padded_sequence": 1, "_pad_packed_sequence": 1, "lstm": 0, "gru": 0, "rnn_tanh": 0}
"""Functions that take lengths on the CPU beside tensors on a GPU, and how many of their last results are on the CPU."""

COPIES = Path(lengths.__file__), "to_device"
"""The one function that copies to a GPU without waiting."""

BY_DEVICE = Path(clip_grad.__file__), Path(adam.__file__)
"""Ask C++ for the device of gradients, which says that it is the CPU; where all are on one device they copy nothing."""


class WaitError(Exception):
    """The CPU would wait here for the device."""


def on_host(*tensors: Tensor) -> bool:
    """Whether all lie on the CPU; what is not known to be there is on the device."""
    return all(getattr(tensor, "is_on_host", False) for tensor in tensors)


def put_on_host(value: Any) -> None:
    """Note that all tensors of a value, which may be a batch, lie on the CPU."""
    for each in tree_leaves(value):
        if isinstance(each, Tensor):
            each.is_on_host = True  # type: ignore[attr-defined]
        elif hasattr(each, "__dataclass_fields__"):
            put_on_host(vars(each))


class Functions(TorchFunctionMode):
    """Refuses what waits among the functions that Python calls; knows where their results lie."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, given = function.__name__, [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if name == "__get__":
            return self.look_up(function, *given)
        if name in READS and not on_host(*given):
            raise WaitError(name)
        if name in ("to", "new_tensor", "tensor", "as_tensor") and self.is_moved(name, args, kwargs):
            return args[0].view_as(args[0])
        whole = [each for each in given if each.ndim]
        if name not in WITH_LENGTHS and len({on_host(each) for each in whole}) == 2:
            raise WaitError(f"{name} of tensors here and there")
        result = function(*args, **kwargs)
        if on_host(*given) and kwargs.get("device") != DEVICE:
            put_on_host(result)
        if name in WITH_LENGTHS:
            put_on_host(result[len(result) - WITH_LENGTHS[name] :])
        return result

    def look_up(self, getter: Any, tensor: Tensor) -> Any:
        if getter == Tensor.is_cpu.__get__:  # type: ignore[attr-defined]
            return on_host(tensor)
        if getter == Tensor.device.__get__:
            return HOST if on_host(tensor) else DEVICE
        result = getter(tensor)
        if on_host(tensor):
            put_on_host(result)
        return result

    def is_moved(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether a tensor goes to the device; refuse ways that wait."""
        where = [torch.device(each) for each in (*args[1:], *kwargs.values()) if isinstance(each, (str, torch.device))]
        where += [HOST if on_host(each) else DEVICE for each in args[1:] if isinstance(each, Tensor)]
        if name != "to":
            if DEVICE in where or (name == "new_tensor" and not on_host(args[0])):
                raise WaitError(f"{name} copies numbers")
            return False
        caller = Path(sys._getframe(2).f_code.co_filename), sys._getframe(2).f_code.co_name
        if HOST in where and not on_host(args[0]) and caller[0] not in BY_DEVICE:
            raise WaitError("to the CPU")
        if DEVICE in where and on_host(args[0]):
            if caller != COPIES:
                raise WaitError("to the device, from memory that is not pinned")
            return True
        return False


class Operators(TorchDispatchMode):
    """Refuses what waits among the operators that functions are made of, and in the backward pass."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if not on_host(*given):
            if operator.overloadpacket.__name__ in OPERATORS:
                raise WaitError(str(operator))
            if operator in SHAPED_BY_MASKS and any(i is not None and i.dtype == torch.bool for i in args[1]):
                raise WaitError(f"{operator} by a mask")
        return operator(*args, **(kwargs or {}))


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise a `WaitError` where the CPU would wait for `DEVICE`."""
    with Operators(), Functions():
        yield


def waits(call: Callable[[], object]) -> str | None:
    """What a call waits for first, if for anything."""
    try:
        with no_waiting():
            call()
    except WaitError as error:
        return str(error)
    return None
