"""The device that a model runs on."""

from __future__ import annotations

import re

from regard.errors import RegardError


def resolve_device(name: str) -> str:
    """Return a device of this machine; `auto` is a GPU if there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    match = re.fullmatch(r"cpu|cuda(?::([0-9]{1,4}))?", name)
    if not match:
        raise RegardError(f'--device: unknown "{name}"; choose from auto, cpu, cuda, cuda:1')
    count = torch.cuda.device_count()
    if name != "cpu" and int(match[1] or 0) >= count:
        raise RegardError(f"--device: {name} is not available; this machine has {count} GPUs")
    return name
