"""Estimate the memory that a model needs, before it is built, and compare it with what is available."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.errors import RegardError

CGROUP_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of the limit and of the memory in use, in control groups of version 2 and 1."""


class SkipInitialization(TorchFunctionMode):
    """Skip the functions of `torch.nn.init`, which take most of the time on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build models inside the context without allocating their parameters."""
    with ExitStack() as stack:
        stack.enter_context(torch.device("meta"))
        stack.enter_context(SkipInitialization())
        yield


def count_parameter_bytes(model: nn.Module, *, trainable: bool = False) -> int:
    """Return the size of the parameters and buffers, or of the parameters that training updates."""
    if trainable:
        return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def check_memory(needed: int, purpose: str, device: str, advice: str) -> None:
    """Raise a `RegardError` if a model needs more memory than is available.

    Args:
        needed: Number of bytes.
        purpose: What the memory is for.
        device: The device of the memory.
        advice: What to do about it.
    """
    available = get_available_memory(device)
    if available is not None and needed > available:
        kind = "memory" if torch.device(device).type == "cpu" else "GPU memory"
        raise RegardError(
            f"model needs about {format_bytes(needed)} for {purpose}; {format_bytes(available)} of {kind} are "
            f"available; {advice}"
        )


def get_available_memory(device: str = "cpu") -> int | None:
    """Return the free memory of a device in bytes; None if unknown."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if torch.device(device).type != "cpu":
        return None
    known = [size for size in (read_available_memory(), read_cgroup_memory()) if size is not None]
    return min(known, default=None)


def read_available_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the memory that the system can still give out; all of its memory where it does not say."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def read_cgroup_memory(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory left in the control group of this process; None without a limit."""
    try:
        groups = [line.split(":", 2)[1:] for line in membership.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    folders = [root, root / "memory"]
    for controllers, path in groups:
        base = root / "memory" if controllers == "memory" else root if not controllers else None
        folders += [] if base is None else [base / path.lstrip("/")]
    left = [read_group_limit(folder, *names) for folder in folders for names in CGROUP_FILES]
    return min((size for size in left if size is not None), default=None)


def read_group_limit(folder: Path, limit_name: str, usage_name: str) -> int | None:
    """Return the memory left in a control group, cached files included, which it can drop; None without a limit."""
    try:
        limit, usage = int((folder / limit_name).read_text()), int((folder / usage_name).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max" is no limit
        return None
    cached = int(statistics.get("total_inactive_file", statistics.get("inactive_file", 0)))
    return max(0, limit - usage + cached)


def format_bytes(size: int) -> str:
    """Format a number of bytes: 12 GB."""
    gigabytes = size / 1e9
    return f"{gigabytes:,.0f} GB" if gigabytes >= 10 else f"{gigabytes:.1f} GB"
