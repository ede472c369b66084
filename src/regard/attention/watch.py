"""Record the attention of any module by its path, without a flag threaded through the model.

While a model is watched, hooks on its modules keep track of which one is running,
and `attend` reports the weights of each call to the innermost. Models of other
libraries, which do not call `attend`, are made to by an adapter. Nothing is paid when
nothing watches.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from torch import nn

from regard.attention.joining import Extent, check_steps, join
from regard.attention.reductions import as_reduction
from regard.attention.shared import holding, uncompiled
from regard.attention.weights import Weights
from regard.errors import RegardError

Keep = str | Callable[[Weights], Any]

ADAPTERS = {"transformers": "regard.interop.transformers_watch"}
"""Libraries whose models do not call `attend`, and the module whose `adapted(model)` makes them, for a while."""


class Seen(Mapping[str, list[Any]]):
    """What was seen: module path -> what was kept of each of its calls, in order."""

    def __init__(self, keep: Keep, grad: bool) -> None:
        self._name = keep if isinstance(keep, str) else None
        self._keep = keeper(keep, grad)
        self._calls: dict[str, list[Any]] = {}
        self._extents: dict[str, list[Extent]] = {}
        self._paths: dict[int, str] = {}
        self._running: list[str] = []
        self._reordered = False
        self._warned = False

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

    def joined(self, path: str) -> Any:
        """The calls at a path as one: what they kept of the steps of writing, one below the other.

        What is kept with `"all"` becomes one `Weights`, of all queries against all keys;
        of `"received"` the steps are added up. Each call must continue the one before, as
        greedy and sampled steps with a cache do. Steps of a beam do not: watch one forced
        pass over its result instead.
        """
        calls = self[path]
        where = f"joined: {path!r}"
        if self._name is None:
            raise RegardError(f'{where}: what a function kept cannot be joined; keep "all", "top:8" or the like')
        if self._reordered and len(calls) > 1:
            raise RegardError(
                f"{where}: a beam was reordered between the calls, so their rows belong to different hypotheses; "
                "watch one forced pass over the result instead"
            )
        check_steps(where, self._extents[path])
        return join(self._name, calls, self._extents[path])

    def _record(self, weights: Weights, module: nn.Module | None, first: int) -> None:
        path = self._paths.get(id(module)) if module is not None else self._running[-1] if self._running else None
        if path is not None:
            self._calls.setdefault(path, []).append(self._keep(weights))
            self._extents.setdefault(path, []).append(Extent(weights.shape, first))

    def _warn(self, path: str) -> None:
        """Say once that a module has attention which nobody sees, since torch computes it all in one."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"regard.watch: {path or 'the model itself'}: the attention of torch.nn.MultiheadAttention "
                "is not seen; that of regard.layers.MultiHeadAttention is",
                stacklevel=3,
            )


_active: ContextVar[tuple[Seen, ...]] = ContextVar("regard_watching", default=())


def watching() -> bool:
    """Whether anything watches in this thread or task."""
    return bool(_active.get())


def report(weights: Weights, module: nn.Module | None = None, first: int = 0) -> None:
    """Tell all that watch of one call of `attend`.

    By a module of theirs, or by the innermost that runs; `first` is the position of the
    first key, where a cache has dropped those before it.
    """
    for seen in _active.get():
        seen._record(weights, module, first)


def report_reordering() -> None:
    """Tell all that watch that the rows of a batch changed places between two steps, as in a beam."""
    for seen in _active.get():
        seen._reordered = True


def unwatched() -> AbstractContextManager[None]:
    """Keep what is called meanwhile to oneself, to `report` it in another form."""
    return holding(_active, ())


@contextmanager
def watch(model: nn.Module, keep: Keep = "all", *, grad: bool = False) -> Iterator[Seen]:
    """Collect the weights of every attention inside a model, by module path.

    Only calls made in the thread (or task) that watches are seen, so that several can
    watch one model, each its own calls. A compiled model runs uncompiled meanwhile,
    and torch.nn.MultiheadAttention is not seen; a warning says so.

    Args:
        model: Any module in which `attend` is called, at whatever depth, or a model of Hugging Face
            Transformers.
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
    seen = Seen(keep, grad)
    with ExitStack() as stack:
        stack.enter_context(without_compiling(model))
        for library in libraries_of(model):
            stack.enter_context(import_module(ADAPTERS[library]).adapted(model))
        for path, module in model.named_modules():
            plain = ".".join(name for name in path.split(".") if name != "_orig_mod")  # as it was before torch.compile
            seen._paths[id(module)] = plain
            for hook in follow(module, plain, seen):
                stack.callback(hook.remove)
        stack.enter_context(holding(_active, (*_active.get(), seen)))
        yield seen


def libraries_of(model: nn.Module) -> list[str]:
    """The libraries with an adapter that modules of a model come from."""
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    return [library for library in ADAPTERS if library in roots]


def follow(module: nn.Module, path: str, seen: Seen) -> Iterator[Any]:
    """Hooks that tell which module of a watched model is running."""

    def enter(*_: Any) -> None:
        if any(seen is each for each in _active.get()):
            seen._running.append(path)
            if is_torchs_own(module):
                seen._warn(path)

    def leave(*_: Any) -> None:
        if any(seen is each for each in _active.get()):
            seen._running.pop()

    yield module.register_forward_pre_hook(enter)
    yield module.register_forward_hook(leave, always_call=True)


def is_torchs_own(module: nn.Module) -> bool:
    """Whether a module is torch's attention as it is."""
    return isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward


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
    others = ("all", "dense")
    as_reduction(keep, others)  # a wrong name is said here, not during a run
    if grad:
        raise RegardError(f'watch: "{keep}" has no gradient; keep "all" or "dense" with grad=True')
    return lambda weights: weights.reduce(keep)[0]


def without_compiling(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which a model's compiled code runs as plain Python."""
    if "torch._dynamo" not in sys.modules or not any(is_compiled(module) for module in model.modules()):
        return nullcontext()
    warnings.warn("regard.watch: the compiled model runs uncompiled while it is watched", stacklevel=4)
    return uncompiled()


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was compiled, by torch.compile or in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
