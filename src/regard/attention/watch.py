"""Record the attention of any module by its path, without a flag threaded through the model.

While a model is watched, hooks on its modules keep track of which one is running,
and `attend` reports the weights of each call to the innermost. Nothing is paid when
nothing watches.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

from regard.attention.reductions import as_reduction
from regard.attention.weights import Weights
from regard.errors import RegardError

Keep = str | Callable[[Weights], Any]


class Seen(Mapping[str, list[Any]]):
    """What was seen: module path -> what was kept of each of its calls, in order."""

    def __init__(self, keep: Callable[[Weights], Any]) -> None:
        self._keep = keep
        self._calls: dict[str, list[Any]] = {}
        self._running: list[str] = []

    def __getitem__(self, path: str) -> list[Any]:
        if path not in self._calls:
            raise KeyError(f"nothing was seen at {path!r}; calls were seen at: {', '.join(self._calls) or 'no path'}")
        return self._calls[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"Seen({ {path: len(calls) for path, calls in self._calls.items()} })"

    def _record(self, weights: Weights) -> None:
        if self._running:
            self._calls.setdefault(self._running[-1], []).append(self._keep(weights))


_active: ContextVar[tuple[Seen, ...]] = ContextVar("regard_watching", default=())


def watching() -> bool:
    """Whether anything watches in this thread or task."""
    return bool(_active.get())


def report(weights: Weights) -> None:
    """Tell all that watch of one call of `attend`."""
    for seen in _active.get():
        seen._record(weights)


@contextmanager
def watch(model: nn.Module, keep: Keep = "all", *, grad: bool = False) -> Iterator[Seen]:
    """Collect the weights of every attention inside a model, by module path.

    Only calls made in the thread (or task) that watches are seen, so that several can
    watch one model, each its own calls. A compiled model runs uncompiled meanwhile,
    which is said once.

    Args:
        model: Any module in which `attend` is called, at whatever depth.
        keep: What to keep of each call. `"all"`: the lazy `Weights`, which hold on to query
            and keys; `"top:8"`, `"received"`, `"entropy"`, `"argmax"` or `"dense"`: just that,
            at once; or a function of the `Weights`.
        grad: Keep the gradient of weights kept with `"all"`, `"dense"` or a function.

    Example:
        >>> with watch(model, keep="top:8") as seen:
        ...     model(batch)
        >>> seen["decoder.layers.3.cross"][0]
    """
    if not isinstance(model, nn.Module):
        raise RegardError(f"watch: found {type(model).__name__}; an nn.Module is needed")
    seen = Seen(keeper(keep, grad))
    with ExitStack() as stack:
        stack.enter_context(uncompiled(model))
        for path, module in model.named_modules():
            plain = ".".join(name for name in path.split(".") if name != "_orig_mod")  # as it was before torch.compile
            for hook in follow(module, plain, seen):
                stack.callback(hook.remove)
        token = _active.set((*_active.get(), seen))
        stack.callback(_active.reset, token)
        yield seen


def follow(module: nn.Module, path: str, seen: Seen) -> Iterator[Any]:
    """Hooks that tell which module of a watched model is running."""

    def enter(*_: Any) -> None:
        if any(seen is each for each in _active.get()):
            seen._running.append(path)

    def leave(*_: Any) -> None:
        if any(seen is each for each in _active.get()):
            seen._running.pop()

    yield module.register_forward_pre_hook(enter)
    yield module.register_forward_hook(leave, always_call=True)


def keeper(keep: Keep, grad: bool) -> Callable[[Weights], Any]:
    """The function that keeps of each call what was asked for."""
    if callable(keep):
        return keep if grad else lambda weights: keep(weights.detach())
    if keep == "all":
        return (lambda weights: weights) if grad else (lambda weights: weights.detach())
    if keep == "dense":
        return (lambda weights: weights.dense()) if grad else (lambda weights: weights.detach().dense())
    if not isinstance(keep, str):
        raise RegardError(f"watch: keep is {type(keep).__name__}; a name or a function is needed")
    as_reduction(keep, torch.Size((0, 0)), torch.empty(()))  # a wrong name is said here, not in the middle of a run
    if grad:
        raise RegardError(f'watch: "{keep}" has no gradient; keep "all" or "dense" with grad=True')
    return lambda weights: weights.reduce(keep)[0]


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Run compiled code as plain Python for a while: compiled graphs call no hooks."""
    if "torch._dynamo" not in sys.modules or not any(is_compiled(module) for module in model.modules()):
        yield
        return
    warnings.warn("regard.watch: the compiled model runs uncompiled while it is watched", stacklevel=4)
    with torch.compiler.set_stance("force_eager"):
        yield


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was compiled, by torch.compile or in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
