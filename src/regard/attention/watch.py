"""Record the attention weights of any model by module path, without changing the model.

While a model is watched, hooks track which of its modules is running, and `attend` reports the
weights of each call, which are recorded for the innermost running module. An adapter makes models
of other libraries call `attend`. When nothing is watched, there is no overhead.
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

from regard.attention.join_steps import Extent, check_steps, join_calls
from regard.attention.reductions import as_reduction
from regard.attention.shared_context import disable_compile, set_variable
from regard.attention.weights import Weights
from regard.errors import RegardError

Keep = str | Callable[[Weights], Any]

ADAPTERS = {"transformers": "regard.interop.transformers_watch"}
"""Libraries whose models do not call `attend` -> the module whose `adapt(model)` context makes them call it."""


class AttentionRecording(Mapping[str, list[Any]]):
    """The recorded attention of a watched model: module path -> what was kept of each call, in order.

    `watch` creates it; it fills up as the model runs and stays usable after the `with` block.

    Example:
        >>> with watch(model) as recording:
        ...     model(batch)
        >>> list(recording)
        ['encoder.layers.0.attention', 'encoder.layers.1.attention']
        >>> recording["encoder.layers.0.attention"][0].entropy()
    """

    def __init__(self, keep: Keep, grad: bool) -> None:
        self._name = keep if isinstance(keep, str) else None
        self._keep = build_keeper(keep, grad)
        self._calls: dict[str, list[Any]] = {}
        self._extents: dict[str, list[Extent]] = {}
        self._paths: dict[int, str] = {}
        self._running: list[str] = []
        self._reordered = False
        self._warned = False

    def __getitem__(self, path: str) -> list[Any]:
        if path not in self._calls:
            raise KeyError(f"no attention recorded at {path!r}; recorded paths: {', '.join(self._calls) or 'none'}")
        return self._calls[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"AttentionRecording({ {path: len(calls) for path, calls in self._calls.items()} })"

    def join_steps(self, path: str) -> Any:
        """Join the calls at a path, one per decoding step, into one result for the whole sequence.

        Each call must continue the previous one, as greedy and sampled decoding with a cache do.
        Beam search reorders hypotheses between steps; watch one forced pass over its result instead.

        Args:
            path: The module path, a key of this mapping.

        Returns:
            What one call over the whole sequence would have kept: for `"all"` one `Weights` of all
            queries against all keys; for `"received"` the sum over the steps; otherwise the results
            of the steps, concatenated along the queries.

        Raises:
            RegardError: If the calls do not continue each other, or a function chose what to keep.
            KeyError: If nothing was recorded at the path.

        Example:
            >>> with watch(model, keep="received") as recording:
            ...     greedy(model, batch)
            >>> recording.join_steps("decoder.layers.0.cross")
        """
        calls = self[path]
        prefix = f"join_steps: {path!r}"
        if self._name is None:
            raise RegardError(f'{prefix}: cannot join the results of a function; watch with keep="all" or "top:8"')
        if self._reordered and len(calls) > 1:
            raise RegardError(
                f"{prefix}: beam search reordered the batch between calls, so rows belong to different hypotheses; "
                "watch one forced pass over the result instead"
            )
        check_steps(prefix, self._extents[path])
        return join_calls(self._name, calls, self._extents[path])

    def _record(self, weights: Weights, module: nn.Module | None, first: int) -> None:
        path = self._paths.get(id(module)) if module is not None else self._running[-1] if self._running else None
        if path is not None:
            self._calls.setdefault(path, []).append(self._keep(weights))
            self._extents.setdefault(path, []).append(Extent(weights.shape, first))

    def _warn(self, path: str) -> None:
        """Warn once that a module's attention cannot be recorded because torch computes it in one operator."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"regard.watch: {path or 'the model itself'}: cannot record torch.nn.MultiheadAttention; "
                "use regard.layers.MultiHeadAttention instead",
                stacklevel=3,
            )


_active: ContextVar[tuple[AttentionRecording, ...]] = ContextVar("regard_watching", default=())


def is_watching() -> bool:
    """Return whether a model is being watched in this thread or task."""
    return bool(_active.get())


def report(weights: Weights, module: nn.Module | None = None, first: int = 0) -> None:
    """Report the weights of one `attend` call to all active recordings.

    Args:
        weights: The weights of the call.
        module: The module that made the call; defaults to the innermost running module.
        first: The position of the first key, if a cache has dropped earlier ones.
    """
    for recording in _active.get():
        recording._record(weights, module, first)


def report_reordering() -> None:
    """Report to all active recordings that the rows of the batch were reordered, as beam search does."""
    for recording in _active.get():
        recording._reordered = True


def suspend_watching() -> AbstractContextManager[None]:
    """Return a context in which no `attend` call is recorded, for callers that `report` in another form."""
    return set_variable(_active, ())


@contextmanager
def watch(model: nn.Module, keep: Keep = "all", *, grad: bool = False) -> Iterator[AttentionRecording]:
    """Record the attention weights of every attention module in a model, by module path.

    Only calls from the current thread (or task) are recorded, so several threads can watch the same
    model. Two cases cause a warning: a compiled model runs uncompiled while it is watched, and
    `torch.nn.MultiheadAttention` cannot be recorded.

    Args:
        model: Any module that calls `attend` at any depth, or a model of Hugging Face Transformers.
        keep: What to keep of each call. `"all"` keeps the lazy `Weights`, which hold references to
            query and keys. `"top:8"`, `"received"`, `"entropy"`, `"argmax"` and `"dense"` compute
            that result during the call and keep nothing else. A function is called with the
            `Weights`, and its result is kept.
        grad: Whether to keep the gradient, for `"all"`, `"dense"` or a function.

    Yields:
        The `AttentionRecording`, a mapping from module path to the list of what was kept.

    Raises:
        RegardError: If `model` is not a module, `keep` is unknown, or `grad` does not fit `keep`.

    Example:
        >>> with watch(model, keep="top:8") as recording:
        ...     model(batch)
        >>> top_weights, indices = recording["decoder.layers.3.cross"][0]
    """
    if not isinstance(model, nn.Module):
        raise RegardError(f"watch: expected an nn.Module, got {type(model).__name__}")
    recording = AttentionRecording(keep, grad)
    with ExitStack() as stack:
        stack.enter_context(disable_model_compile(model))
        for library in find_libraries(model):
            stack.enter_context(import_module(ADAPTERS[library]).adapt(model))
        for path, module in model.named_modules():
            plain = ".".join(name for name in path.split(".") if name != "_orig_mod")  # the path before torch.compile
            recording._paths[id(module)] = plain
            for hook in register_hooks(module, plain, recording):
                stack.callback(hook.remove)
        stack.enter_context(set_variable(_active, (*_active.get(), recording)))
        yield recording


def find_libraries(model: nn.Module) -> list[str]:
    """Return the libraries with an adapter that define modules of the model."""
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    return [library for library in ADAPTERS if library in roots]


def register_hooks(module: nn.Module, path: str, recording: AttentionRecording) -> Iterator[Any]:
    """Register hooks that track which module of a watched model is running."""

    def push_path(*_: Any) -> None:
        if any(recording is active for active in _active.get()):
            recording._running.append(path)
            if is_torch_attention(module):
                recording._warn(path)

    def pop_path(*_: Any) -> None:
        if any(recording is active for active in _active.get()):
            recording._running.pop()

    yield module.register_forward_pre_hook(push_path)
    yield module.register_forward_hook(pop_path, always_call=True)


def is_torch_attention(module: nn.Module) -> bool:
    """Return whether a module is torch's own attention, unmodified."""
    return isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward


def build_keeper(keep: Keep, grad: bool) -> Callable[[Weights], Any]:
    """Return the function that extracts what to keep from the weights of a call."""
    if callable(keep):
        return keep if grad else lambda weights: keep(weights.detach())
    if keep == "all":
        return (lambda weights: weights) if grad else (lambda weights: weights.detach())
    if keep == "dense":
        return (lambda weights: weights.dense()) if grad else (lambda weights: weights.detach().dense())
    if not isinstance(keep, str):
        raise RegardError(f"watch: keep must be a name or a function, got {type(keep).__name__}")
    other_names = ("all", "dense")
    as_reduction(keep, other_names)  # fail now rather than during a run
    if grad:
        raise RegardError(f'watch: grad=True cannot be combined with keep="{keep}"; pass keep="all" or "dense"')
    return lambda weights: weights.reduce(keep)[0]


def disable_model_compile(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which the model's compiled code runs uncompiled."""
    if "torch._dynamo" not in sys.modules or not any(is_compiled(module) for module in model.modules()):
        return nullcontext()
    warnings.warn("regard.watch: the compiled model runs uncompiled while it is watched", stacklevel=4)
    return disable_compile()


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module was compiled, by torch.compile or in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
