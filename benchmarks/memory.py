"""The memory of this process, from what Linux says of it."""

from __future__ import annotations

from pathlib import Path

PROCESS = Path("/proc/self")


def read_status(name: str) -> int:
    """Return a memory figure in bytes: VmRSS now, or VmHWM at its peak."""
    lines = (PROCESS / "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def start_peak() -> int:
    """Let the peak start again, and return the memory now."""
    (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
    return read_status("VmRSS")


def get_peak() -> int:
    """Return the peak since it started."""
    return read_status("VmHWM")
