"""Where a model runs."""

from __future__ import annotations

import re

from regard.errors import RegardError


def chosen_device(name: str) -> str:
    """A device that is here; `auto` takes a GPU if there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    found = re.fullmatch(r"cpu|cuda(?::([0-9]{1,4}))?", name)
    if not found:
        raise RegardError(f'--device: there is no "{name}"; auto, cpu, cuda or cuda:1 would be right')
    count = torch.cuda.device_count()
    if name != "cpu" and int(found[1] or 0) >= count:
        raise RegardError(f"--device: {name} is not here; this machine has {count} GPUs")
    return name
