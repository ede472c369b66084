"""A report of what `watch` recorded, and of what looks like attention but was not seen."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regard.attention.intercept.captured import Captured
from regard.attention.intercept.mode import AttentionMode

LOOKS_LIKE_ATTENTION = re.compile(r"attention(?!output$)|attn(?!.*(norm|drop|mask|bias))", re.IGNORECASE)
LINEAR = re.compile(r"linear|mamba|ssm|rwkv|retention|deltanet|delta_net|performer|favor|fourier|hyena", re.IGNORECASE)

UNCOMPILED = "compiled code ran uncompiled; its output differs from that of the compiled code by rounding"
SCRIPTED = re.compile(r"aten::\w*(softmax|attention)")
SCRIPT = "TorchScript runs its own graph, which nothing can be recorded from"
WHOLE_MODEL = "(model)"
"""What stands for the path of a watched model that is itself an attention."""


@dataclass(frozen=True)
class SeenAttention:
    """One attention that was recorded.

    Attributes:
        path: Where it is in the model.
        module: The class of the module.
        kind: "self", "cross" or "pooling", or several of them, judged by what the module was given.
        how: "lazy" if weights are computed on demand, "matrix" if the model itself holds them.
        function: The function that was intercepted.
        calls: How often it ran.
        heads: The number of heads; None if its weights have no axis for them.
        groups: The number of groups of heads that share keys; None if each has its own or it is not known.
        features: What is special to its scores: softcap, window, sinks, alibi.
    """

    path: str
    module: str
    kind: str
    how: str
    function: str
    calls: int
    heads: int | None
    groups: int | None
    features: dict[str, Any]


@dataclass(frozen=True)
class UnseenModule:
    """A module that looks like attention, and why nothing was recorded for it."""

    path: str
    module: str
    reason: str
    ran: bool


@dataclass(frozen=True)
class AttentionReport:
    """What `watch` recorded, and what it did not."""

    seen: tuple[SeenAttention, ...]
    unseen: tuple[UnseenModule, ...]
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)

    def describe_silence(self) -> str | None:
        """Describe why nothing was recorded although modules ran that look like attention; None otherwise."""
        missed = [module for module in self.unseen if module.ran]
        if self.seen or not missed:
            return None
        return f"no attention was recorded; {missed[0].path or 'the model'} ({missed[0].module}): {missed[0].reason}"

    def __str__(self) -> str:
        lines = [f"{len(self.seen)} attention{'' if len(self.seen) == 1 else 's'} recorded"]
        rows = [("path", "module", "kind", "heads", "how", "calls", "scores")]
        rows += [
            (one.path or WHOLE_MODEL, one.module, one.kind, format_heads(one), f"{one.how}: {one.function}",
             str(one.calls), format_features(one.features))
            for one in self.seen
        ]  # fmt: skip
        lines += align(rows) if self.seen else []
        if self.unseen:
            looks = "module looks" if len(self.unseen) == 1 else "modules look"
            recorded = "was" if len(self.unseen) == 1 else "were"
            lines += ["", f"{len(self.unseen)} {looks} like attention and {recorded} not recorded"]
            lines += align([(one.path or WHOLE_MODEL, one.module, one.reason) for one in self.unseen])
        return "\n".join([*lines, *self.notes])


def build_report(model: nn.Module, calls: Mapping[str, Sequence[Captured]], mode: AttentionMode) -> AttentionReport:
    """Build the report of a recording."""
    modules = {path: module for module, path in mode.modules.items()}
    seen = tuple(describe_calls(path, notes, modules.get(path)) for path, notes in calls.items())
    unseen = (*find_unseen(modules, calls, mode), *find_scripts(model, mode))
    return AttentionReport(seen, unseen, tuple(describe_notes(model, mode)))


def describe_notes(model: nn.Module, mode: AttentionMode) -> Iterator[str]:
    """Yield what else there is to know of a recording."""
    if mode.outside:
        yield (
            f"{mode.outside} calls of attention functions outside of the model's forward were not recorded; "
            "wrap them in a module"
        )
    notes = (
        (mode.unread, "its weights were overwritten in place before they could be kept"),
        (mode.flow.mapped, "attention or a softmax inside torch.vmap, which cannot be recorded"),
        (mode.flow.gates, "its softmax weighs tensors elementwise, as a gate does or as pooling does; not recorded"),
    )
    for paths, text in notes:
        yield from (f"{path or '(model)'}: {text}" for path in dict.fromkeys(paths))
    if mode.uncompiled or has_compiled_part(model):
        yield UNCOMPILED
    if mode.elsewhere:
        yield "modules ran in another thread, where nothing is recorded: watch in the thread that runs the model"


def describe_calls(path: str, notes: Sequence[Captured], module: nn.Module | None) -> SeenAttention:
    """Describe the calls that were recorded for one module."""
    features: dict[str, Any] = read_features(module)
    for note in notes:
        features |= note.features
    heads = {note.shape[-3] if len(note.shape) > 3 else None for note in notes}
    count = heads.pop() if len(heads) == 1 else None
    groups = next((note.groups for note in notes if note.groups is not None), read_groups(module, count))
    return SeenAttention(
        path, type(module).__name__, join_names(note.kind or "self" for note in notes),
        join_names(note.how for note in notes), join_names(note.function for note in notes), len(notes), count,
        None if groups == count else groups, features,
    )  # fmt: skip


def read_features(module: nn.Module | None) -> dict[str, Any]:
    """Return what a module says of its scores in the attributes that Transformers gives it."""
    features = {}
    for attribute, name in (("sliding_window", "window"), ("attn_logit_softcapping", "softcap")):
        value = getattr(module, attribute, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value:
            features[name] = value
    if isinstance(getattr(module, "sinks", None), torch.Tensor):
        features["sinks"] = True
    return features


def read_groups(module: nn.Module | None, heads: int | None) -> int | None:
    """Return the number of groups of heads, which a model may have repeated before its attention."""
    repeats = getattr(module, "num_key_value_groups", None)
    return heads // repeats if isinstance(repeats, int) and repeats > 1 and heads else None


def find_unseen(
    modules: Mapping[str, nn.Module], calls: Mapping[str, Any], mode: AttentionMode
) -> Iterator[UnseenModule]:
    """Iterate over the modules that call what cannot be recorded, or look like attention without any around them."""
    named = {
        path: module for path, module in modules.items()
        if LOOKS_LIKE_ATTENTION.search(type(module).__name__) and next(module.parameters(), None) is not None
    }  # fmt: skip
    for path, reason in mode.refused.items():
        yield UnseenModule(path, type(modules[path]).__name__, reason, ran=True)
    for path, module in named.items():
        related = any(is_within(other, path) or is_within(path, other) for other in (*calls, *mode.refused))
        if not related and not any(is_within(other, path) and other != path for other in named):
            ran = path in mode.ran or path in mode.elsewhere
            yield UnseenModule(path, type(module).__name__, explain(path, module, mode), ran)


def find_scripts(model: nn.Module, mode: AttentionMode) -> Iterator[UnseenModule]:
    """Iterate over the outermost TorchScript modules whose graph computes a softmax or attention."""
    scripts = {module: path for module, path in mode.modules.items() if isinstance(module, torch.jit.ScriptModule)}
    for module, path in scripts.items():
        if any(path != other and (not other or is_within(path, other)) for other in scripts.values()):
            continue
        name = get_class_name(module)
        if SCRIPTED.search(str(getattr(module, "inlined_graph", ""))) or LOOKS_LIKE_ATTENTION.search(name):
            yield UnseenModule(path, name, SCRIPT, ran=not path or path.rpartition(".")[0] in mode.ran)


def get_class_name(module: nn.Module) -> str:
    """Return the name of a module's class, also if it was compiled to TorchScript."""
    return getattr(module, "original_name", None) or type(module).__name__


def is_within(inner: str, outer: str) -> bool:
    """Return whether a path is another one or below it; every path is below that of the model."""
    return inner == outer or inner.startswith(f"{outer}.") or (outer == "" and inner == "")


def explain(path: str, module: nn.Module, mode: AttentionMode) -> str:
    """Explain why nothing was recorded for a module."""
    hints = [hint for other, hint in mode.hints.items() if is_within(other, path) or is_within(path, other)]
    if path not in mode.ran:
        return "it ran in another thread" if path in mode.elsewhere else "it did not run in this thread"
    if hints:
        return hints[0]
    if LINEAR.search(type(module).__name__):
        return "linear attention: it has no softmax over keys"
    return "in this thread, it ran without a softmax over keys and without a function that is intercepted"


def has_compiled_part(model: nn.Module) -> bool:
    """Return whether a module of a model was compiled, by torch.compile or in place, or has a compiled function."""
    if "torch._dynamo" not in sys.modules:
        return False
    modules = list(model.modules())
    namespaces = [vars(part) for part in (*modules, *{type(module) for module in modules})]
    if any("_orig_mod" in module._modules or module._compiled_call_impl is not None for module in modules):
        return True
    return any(
        type(part) is FunctionType and hasattr(part, "_torchdynamo_orig_callable")
        for space in namespaces
        for part in space.values()
    )


def join_names(names: Iterator[str]) -> str:
    """Join different names in order."""
    return ", ".join(dict.fromkeys(names))


def format_heads(one: SeenAttention) -> str:
    """Format the number of heads and of their groups."""
    if one.heads is None:
        return "1" if one.groups is None else f"{one.groups} groups"
    return str(one.heads) if one.groups is None else f"{one.heads} in {one.groups} groups"


def format_features(features: Mapping[str, Any]) -> str:
    """Format what is special to scores."""
    return ", ".join(name if value is True else f"{name} {value}" for name, value in features.items())


def align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align the columns of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
