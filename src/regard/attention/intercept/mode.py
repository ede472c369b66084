"""The torch function mode that sees what a watched model calls, and the table of what is intercepted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from regard.attention.intercept import dot_product, flash, flex, functions, multi_head, roles, written_softmax
from regard.attention.intercept.captured import Captured, NotRecordedError
from regard.attention.intercept.frames import Frame
from regard.attention.intercept.rescaling import Rescaling
from regard.attention.intercept.softmax import SoftmaxFlow
from regard.attention.intercept.torch_calls import (
    BACKWARD,
    COMPILING,
    OPERATORS,
    is_called_compiled,
    name_arguments,
)
from regard.attention.intercept.tracks import FunctionCall, Softmax, capture_softmax
from regard.attention.shared_context import disable_compile

CAPTURES: dict[str, Callable[..., Captured]] = {
    dot_product.NAME: dot_product.capture,
    multi_head.NAME: multi_head.capture_function,
    flex.NAME: flex.capture,
    flash.NAME: flash.capture,
    flash.PACKED_NAME: flash.capture,
}
"""Functions that compute attention, by name -> what builds the weights from their arguments."""

SOFTMAXES = functions.SOFTMAXES | functions.LOG_SOFTMAXES | functions.LOG_SUMS
REORDERINGS = {"index_select", "__getitem__"}
SAMPLING_FUNCTION = "grid_sample"
SAMPLING = "it samples values at learned positions (deformable attention)"
ATTENTION_WORDS = ("attention", "attn", "flash", "sdpa")


Record = Callable[[Captured, Frame], None]


@lru_cache(maxsize=1024)
def is_of_interest(function: Callable[..., Any]) -> bool:
    """Return whether a function may be attention, or begin one that is written out, or tell something of a model.

    Most functions of a model are not: what they cost while the model is watched is what a call of this costs.
    """
    name = getattr(function, "__name__", "")
    known = {*CAPTURES, *REORDERINGS, *written_softmax.EXPONENTIALS, SAMPLING_FUNCTION}
    is_listed = function in SOFTMAXES or function in BACKWARD or name.partition(".")[0] in known
    return is_listed or is_unknown_attention(function)


def is_unknown_attention(function: Callable[..., Any]) -> bool:
    """Return whether a function is an operator that seems to be attention, by its name."""
    return isinstance(function, OPERATORS) and any(word in str(function) for word in ATTENTION_WORDS)


def is_overridden(module: nn.Module, args: Any) -> bool:
    """Return whether tensors of other types, or other function modes, keep torch from running a module in one piece."""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    tensors = (*module.parameters(), *(part for part in args if isinstance(part, Tensor)))
    return any(type(tensor) not in (Tensor, nn.Parameter) for tensor in tensors) or any(
        not isinstance(mode, AttentionMode) for mode in modes
    )


class AttentionMode(TorchFunctionMode):
    """Sees the torch functions that the modules of a model call, and captures attention; results keep their bits.

    Of a plain call of `scaled_dot_product_attention` it calls the operator behind it, which returns more.

    Args:
        modules: The modules of the model and their paths.
        record: Called with each attention that was captured and the module that computed it.
        is_active: Whether to capture in this thread or task now.
        grad: Whether weights keep their gradient.
    """

    def __init__(
        self, modules: dict[nn.Module, str], record: Record, is_active: Callable[[], bool], *, grad: bool
    ) -> None:
        super().__init__()
        self.modules, self.record, self.is_active, self.grad = modules, record, is_active, grad
        self.frame: Frame | None = None
        self.flow = SoftmaxFlow(lambda: self.frame, self.settle, grad=grad)
        self.rescaling = Rescaling(grad=grad)
        self.uncompiled = False  # whether a compiled function ran uncompiled
        self.ran: dict[str, int] = {}  # how often each module ran
        self.hints: dict[str, str] = {}  # why a module that ran may have no attention to see
        self.refused: dict[str, str] = {}  # modules that call attention which cannot be recorded, and why
        self.unread: list[str] = []  # modules whose matrix was overwritten before it was recorded
        self.elsewhere: set[str] = set()  # modules that ran in other threads
        self.thread = threading.get_ident()
        self.outside = 0  # calls of attention functions outside of the model
        self.reordered = False  # whether a cache was reordered between steps
        self._contexts = ExitStack()
        self._eager = False
        self.key_counts: set[int] = set()  # of recorded calls

    def __deepcopy__(self, memo: Any) -> AttentionMode:
        """Return itself: a watched score may be copied with its hooks, which ignore modules that are not watched."""
        return self

    def __enter__(self) -> Any:
        fused = {part for module in self.modules if multi_head.is_fused_layer(module) for part in module.modules()}
        hooks: list[Any] = []
        for module in self.modules:
            if module not in fused and not isinstance(module, torch.jit.ScriptModule):
                hooks.append(module.register_forward_pre_hook(self.enter_module))
                hooks.append(module.register_forward_hook(self.leave_module, with_kwargs=True, always_call=True))
        if fused:  # hooks of its own would take a layer off torch's fast path
            hooks.append(
                register_module_forward_pre_hook(
                    lambda module, args: self.enter_module(module, args) if module in fused else None
                )
            )
            hooks.append(
                register_module_forward_hook(
                    lambda module, *rest: self.leave_module(module, *rest) if module in fused else None,
                    with_kwargs=True,
                    always_call=True,
                )
            )
        for hook in hooks:
            self._contexts.callback(hook.remove)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        while self.frame is not None:  # an interrupt calls no hooks
            self.close(self.frame)
        super().__exit__(*error)
        self._contexts.close()

    @contextmanager
    def resume(self) -> Iterator[None]:
        """Switch the mode on again while one of its functions runs."""
        super().__enter__()
        try:
            yield
        finally:
            super().__exit__(None, None, None)

    def enter_module(self, module: nn.Module, args: Any) -> None:
        """Note that a module of the model starts to run."""
        path = self.modules.get(module)
        if path is not None and threading.get_ident() != self.thread:
            self.elsewhere.add(path)
        if path is None or not self.is_active():
            return
        if not self._eager and any(name in sys.modules for name in COMPILING):
            self._eager = True
            self._contexts.enter_context(disable_compile())
        self.frame = Frame(path, module, self.frame, sys.exc_info()[1])
        self.ran[path] = self.ran.get(path, 0) + 1
        self.frame.in_one_piece = multi_head.runs_in_one_piece(module) and not is_overridden(module, args)
        # only the outermost of nested modules and recordings has a guard: hooks do not return in reverse order
        if self.frame.in_one_piece and not torch._C._is_torch_function_all_disabled():
            self.frame.guard = torch._C.DisableTorchFunction()
            self.frame.guard.__enter__()

    def leave_module(self, module: nn.Module, args: Any, *rest: Any) -> None:
        """Record the attention of a module that returns; `rest` is its keyword arguments and its result."""
        if module not in self.modules or not self.is_active():
            return
        frame = self.frame
        while frame is not None and frame.module is not module:
            frame = frame.parent
        if frame is None:
            return
        while self.frame is not None and self.frame is not frame:  # left by an exception
            self.close(self.frame)
        failed = rest[-1] is None and sys.exc_info()[1] is not frame.handled
        try:
            if not failed:
                with torch._C.DisableTorchFunction():
                    self.finish(frame, args, rest[0])
        finally:
            self.close(frame)

    def close(self, frame: Frame) -> None:
        """Forget a module that has returned."""
        frame.active = False
        if frame.guard is not None:
            frame.guard.__exit__(None, None, None)
        self.frame = frame.parent
        if self.frame is None:
            self.flow.clear()
        elif frame.attended:
            self.frame.attended = True

    def finish(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record what a module leaves to record when it returns, and tell of which kind its attention was."""
        if frame.in_one_piece and not frame.attended:
            for captured in self.capture_fast_path(frame.module, args, kwargs):
                self.add(captured)
        for captured in frame.deferred:
            self.add(captured, frame)
        self.settle(frame, frame.pending)
        bare = frame.parent is not None and next(frame.module.parameters(), None) is None
        for captured in frame.captured:
            if captured.kind is None and bare and frame.parent is not None:  # it was given projected query and keys
                frame.parent.captured.append(captured)
            elif captured.kind is None:
                captured.kind = roles.find_role(frame.module, args, kwargs, *captured.shape[-2:])
        if frame.softmaxes and not frame.attended:
            self.hints.setdefault(frame.path, "the result of its softmax is not contracted with values over its axis")

    def settle(self, frame: Frame, finished: list[Softmax]) -> None:
        """Record softmaxes that were attention."""
        for one in list(finished):
            frame.pending.remove(one)
            captured = capture_softmax(one, grad=self.grad)
            if captured is None:
                self.unread.append(frame.path)
            else:
                self.add(captured, frame)

    def add_reported(self, captured: Captured, module: nn.Module | None) -> None:
        """Record a call that was reported, by a module that may run without being called."""
        if module is None:
            self.add(captured)
        elif module in self.modules:
            self.add(captured, Frame(self.modules[module], module, None))

    def add(self, captured: Captured, frame: Frame | None = None) -> None:
        """Record an attention call for the module that makes it."""
        frame = self.frame if frame is None else frame
        if frame is None:
            self.outside += 1
            return
        with torch._C.DisableTorchFunction():
            self.record(captured, frame)
        self.key_counts.add(captured.shape[-1])
        captured.weights = None
        frame.captured.append(captured)
        frame.attended = True

    def capture_fast_path(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Captured]:
        """Return the weights of a module that torch may have run as one operator."""
        if isinstance(module, nn.MultiheadAttention):
            return [multi_head.capture_module(module, args, kwargs, grad=self.grad)]
        if isinstance(module, nn.TransformerEncoderLayer):
            return [multi_head.capture_encoder_layer(module, args, kwargs, grad=self.grad)]
        return []

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        follows = self.flow.tracks or self.flow.written or self.rescaling
        if not (follows or is_of_interest(function)) or not self.is_active():
            return function(*args, **kwargs)
        flow, call = self.flow, FunctionCall(function, args, kwargs)
        if flow.tracks:
            flow.before(call)
        if function in BACKWARD:  # gradient checkpoints run modules again
            with self.resume():
                return BACKWARD[function](*args, **kwargs)
        result = dot_product.call_operator(*args, **kwargs) if self.takes_operator(function) else None
        output, lse = (function(*args, **kwargs), None) if result is None else result
        name = getattr(function, "__name__", "")
        if function in SOFTMAXES:
            with torch._C.DisableTorchFunction():
                flow.start(call, output)
        elif flow.tracks or flow.written or name in written_softmax.EXPONENTIALS:
            with torch._C.DisableTorchFunction():
                flow.follow(call, output)
        if self.rescaling:
            with torch._C.DisableTorchFunction():
                self.rescaling.follow(call, output)
        capture = CAPTURES.get(name.partition(".")[0])
        if capture is not None:
            args, kwargs = name_arguments(function, args, kwargs)
            self.capture(capture, args, kwargs if lse is None else kwargs | {"lse": lse}, output)
        elif self.frame is None:
            self.check_reordering(name, args)
        elif name == SAMPLING_FUNCTION:
            self.frame.samples = True
            self.hints[self.frame.path] = f"{SAMPLING}: no softmax over keys"
        elif is_unknown_attention(function):
            self.refused[self.frame.path] = f"it calls {function}, an operator that is not intercepted"
        return output

    def takes_operator(self, function: Callable[..., Any]) -> bool:
        """Return whether a function is torch's attention, called by the model, and no other mode has to see it."""
        if function is not scaled_dot_product_attention or self.frame is None or functions.is_in_vmap():
            return False
        return torch._C._len_torch_function_stack() == 0

    def capture(
        self, capture: Callable[..., Captured], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Capture one call of an attention function."""
        if self.frame is None:
            self.outside += 1
            return
        if functions.is_in_vmap():
            self.flow.mapped.append(self.frame.path)
            return
        with torch._C.DisableTorchFunction():
            try:
                captured = capture(*args, grad=self.grad, **kwargs)
            except NotRecordedError as reason:
                self.refused[self.frame.path] = str(reason)
                return
        self.uncompiled = self.uncompiled or (self._eager and is_called_compiled())
        if captured.function == flex.NAME:
            self.rescaling.start(captured, output)
            self.frame.deferred.append(captured)
        else:
            self.add(captured)

    def check_reordering(self, name: str, args: tuple[Any, ...]) -> None:
        """Note that rows of a batch of cached keys are selected between two steps, as beam search does."""
        if name in REORDERINGS and len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[-1], Tensor):
            cache, rows = args[0], args[-1]
            if cache.ndim > 3 and rows.ndim == 1 and cache.shape[-2] in self.key_counts:
                self.reordered = True
