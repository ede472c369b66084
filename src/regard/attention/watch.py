"""Record the attention weights of any model by module path, without changing the model.

The model runs its own attention, and what goes into it is recorded: `attend` reports its weights,
and a torch function mode sees the attention that a model computes in any other way
(`attention/intercept/`). When nothing is watched, there is no overhead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

from regard.attention.analysis import QUERY_MEASURES, QueryMeasure, as_query_measure
from regard.attention.intercept.captured import INTERCEPTED, Captured
from regard.attention.intercept.frames import Frame
from regard.attention.intercept.mode import AttentionMode
from regard.attention.intercept.recorded_weights import HeldWeights, RecordedWeights
from regard.attention.join_steps import CallShape, Kept, join_calls, keep_first_keys, locate_steps
from regard.attention.kernels.reference import SMALL
from regard.attention.reductions import as_reduction
from regard.attention.shared_context import set_variable
from regard.attention.watch_report import UNCOMPILED, WHOLE_MODEL, AttentionReport, build_report, has_compiled_part
from regard.attention.weights import Weights
from regard.errors import RegardError

Keep = str | Callable[[Weights], Any] | Sequence[str | Callable[[Weights], Any]]


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

    def __init__(self, model: nn.Module, keep: Keep, grad: bool) -> None:
        self._kept = resolve_kept(keep)
        self._keep = build_keeper(keep, grad)
        self._calls: dict[str, list[Any]] = {}
        self._shapes: dict[str, list[CallShape]] = {}
        self._notes: dict[str, list[Captured]] = {}
        self._model = model
        modules = {module: remove_compiled(path) for path, module in model.named_modules()}
        self._mode = AttentionMode(modules, self._record, self._is_active, grad=grad)

    def __getitem__(self, path: str) -> list[Any]:
        path = "" if path == WHOLE_MODEL else path
        if path not in self._calls:
            paths = ", ".join(recorded or WHOLE_MODEL for recorded in self._calls) or "none"
            raise KeyError(f"no attention recorded at {path!r}; recorded paths: {paths}")
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
        if self._kept is None:
            raise RegardError(f'{prefix}: cannot join the results of a function; watch with keep="all" or "top:8"')
        if self._mode.reordered and len(calls) > 1:
            raise RegardError(
                f"{prefix}: beam search reordered the batch between calls, so rows belong to different hypotheses; "
                "watch one forced pass over the result instead"
            )
        shapes = [
            shape._replace(kind=note.kind or "self")
            for shape, note in zip(self._shapes[path], self._notes[path], strict=True)
        ]
        return join_calls(self._kept, calls, locate_steps(prefix, shapes))

    def report(self) -> AttentionReport:
        """Return what was recorded and how, and which modules that look like attention were not, and why.

        Example:
            >>> print(recording.report())
        """
        return build_report(self._model, self._notes, self._mode)

    def _is_active(self) -> bool:
        return any(recording is self for recording in _active.get())

    def _record(self, captured: Captured, frame: Frame) -> None:
        """Keep the weights of a call made by a module."""
        weights = captured.weights
        assert weights is not None
        path = ".".join(part for part in (frame.path, captured.path) if part)
        shape = CallShape(weights.shape)
        if isinstance(weights, (RecordedWeights, HeldWeights)):
            shape = CallShape(weights.shape, weights.find_last_key(), find_last_key(weights))
        kept = self._keep(weights)
        self._calls.setdefault(path, []).append(kept)
        self._shapes.setdefault(path, []).append(shape)
        self._notes.setdefault(path, []).append(captured)


_active: ContextVar[tuple[AttentionRecording, ...]] = ContextVar("regard_watching", default=())


def is_watching() -> bool:
    """Return whether a model is being watched in this thread or task."""
    return bool(_active.get())


def report(weights: Weights, module: nn.Module | None = None) -> None:
    """Report the weights of one call to all active recordings.

    Args:
        weights: The weights of the call.
        module: The module that made the call; defaults to the innermost running module.
    """
    for recording in _active.get():
        recording._mode.add_reported(Captured(weights, "attend"), module)


def report_reordering() -> None:
    """Report to all active recordings that the rows of the batch were reordered, as beam search does."""
    for recording in _active.get():
        recording._mode.reordered = True


def suspend_watching() -> AbstractContextManager[None]:
    """Return a context in which no attention is recorded, for `attend`, which reports its weights itself."""
    return set_variable(_active, ())


@contextmanager
def watch(model: nn.Module, keep: Keep = "all", *, grad: bool = False) -> Iterator[AttentionRecording]:
    """Record the attention weights of every attention module in a model, by module path.

    The model runs its own attention, to the same bits, and what goes into it is recorded. Only calls
    from the current thread (or task) are recorded, so several threads can watch the same model.
    Compiled code runs uncompiled while it is watched, which causes a warning. `report()` of the
    result lists what was recorded, and what looks like attention but was not.

    Args:
        model: Any module: of regard, torch, Hugging Face Transformers or another library, or your own.
        keep: What to keep of each call. `"all"` keeps the lazy `Weights`, which hold references to
            query and keys. `"top:8"`, `"received"`, `"entropy"`, `"argmax"` and `"dense"` compute
            that result during the call and keep nothing else, and so do the measures of
            `regard.attention.analysis`: `"sink"`, `"sink:4"`, `"previous"`, `span(3, 9)` and
            `induction(tokens)`. A function is called with the `Weights`, and its result is kept. Of a
            tuple of these, a tuple is kept; its reductions share one pass over the weights.
        grad: Whether to keep the gradient, for `"all"`, `"dense"`, `span`, `sink`, `previous` or a function.

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
    recording = AttentionRecording(model, keep, grad)
    compiled = has_compiled_part(model)
    if compiled:
        warnings.warn("regard.watch: the compiled model runs uncompiled while it is watched", stacklevel=3)
    with set_variable(_active, (*_active.get(), recording)), recording._mode:
        yield recording
    message = recording.report().describe_silence()
    if message:
        warnings.warn(f"regard.watch: {message}", stacklevel=3)
    if recording._mode.uncompiled and not compiled:
        warnings.warn(f"regard.watch: {UNCOMPILED}", stacklevel=3)


def remove_compiled(path: str) -> str:
    """Return the path of a module as it is without torch.compile."""
    return ".".join(name for name in path.split(".") if name != "_orig_mod")


def find_last_key(weights: Weights) -> Any:
    """Return the last key in use of recorded weights, a vector for each sequence and head; None if unknown."""
    if not isinstance(weights, RecordedWeights) or not weights.keys.shape[-2]:
        return None
    seen = weights.find_last_key()
    if seen is None:
        return weights.keys[..., -1, :].detach().clone()
    index = (seen * torch.arange(1, len(seen) + 1, device=seen.device)).argmax().reshape(1)
    return weights.keys.detach().index_select(-2, index)[..., 0, :]


def resolve_kept(keep: Keep) -> Kept | None:
    """Return what is kept, with measures of queries in place of their names; None if a function chooses it."""
    if isinstance(keep, str):
        return as_query_measure(keep) or keep
    if isinstance(keep, (tuple, list)):
        parts = [resolve_kept(part) for part in keep]
        return None if None in parts else tuple(part for part in parts if part is not None)
    return keep if isinstance(keep, QueryMeasure) else None


def build_keeper(keep: Keep, grad: bool) -> Callable[[Weights], Any]:
    """Return the function that extracts what to keep from the weights of a call."""
    if isinstance(keep, (tuple, list)):
        return build_tuple_keeper(keep, grad)
    measure = resolve_kept(keep)
    if isinstance(measure, QueryMeasure):
        return lambda weights: measure_queries(measure, weights, grad)
    if callable(keep):
        return lambda weights: keep(hold(weights, grad))
    if keep == "all":
        return lambda weights: hold(weights, grad)
    if keep == "dense":
        return lambda weights: (weights if grad else weights.detach()).materialize().clone().dense()
    if not isinstance(keep, str):
        raise RegardError(f"watch: keep must be a name, a function or a tuple of them, got {type(keep).__name__}")
    as_reduction(keep, ("all", "dense", *QUERY_MEASURES))  # fail now rather than during a run
    if grad:
        raise RegardError(f'watch: grad=True cannot be combined with keep="{keep}"; pass keep="all" or "dense"')
    return lambda weights: settle(weights).reduce(keep)[0]


def build_tuple_keeper(keep: Sequence[Any], grad: bool) -> Callable[[Weights], tuple[Any, ...]]:
    """Return the function that extracts several results; reductions are computed in one pass."""
    if not keep:
        raise RegardError("watch: keep must name at least one result, got none")
    keepers = [build_keeper(part, grad) for part in keep]
    reductions = [part for part in keep if is_reduction(part)]

    def extract(weights: Weights) -> tuple[Any, ...]:
        reduced = iter(settle(weights).reduce(*reductions) if reductions else ())
        return tuple(
            next(reduced) if is_reduction(part) else keeper(weights) for part, keeper in zip(keep, keepers, strict=True)
        )

    return extract


def is_reduction(keep: object) -> bool:
    """Return whether a valid `keep` names a reduction of weights."""
    return isinstance(keep, str) and keep not in ("all", "dense") and as_query_measure(keep) is None


def measure_queries(measure: QueryMeasure, weights: Weights, grad: bool) -> Any:
    """Return a measure of the queries of a call, which are the last keys in use."""
    with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
        if isinstance(weights, RecordedWeights) and weights.shape[-2] < weights.shape[-1]:
            count = CallShape(weights.shape, weights.find_last_key()).count_keys()
            weights = keep_first_keys(weights, count)
        return measure(settle(weights))


def settle(weights: Weights) -> Weights:
    """Return weights as a matrix if they are small and intercepted, so that several results are computed fast."""
    is_small = weights.shape[-2] == 1 or weights.shape.numel() <= SMALL
    return weights.materialize() if isinstance(weights, INTERCEPTED) and is_small else weights


def hold(weights: Weights, grad: bool) -> Weights:
    """Return weights that stay what they were in the call."""
    if isinstance(weights, INTERCEPTED):
        return weights.hold()
    return weights if grad else weights.detach()
