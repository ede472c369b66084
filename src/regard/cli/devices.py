"""Where a model runs."""

from __future__ import annotations

from regard.errors import RegardError


def chosen_device(name: str) -> str:
    """A device that is here; `auto` takes a GPU if there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RegardError(f'--device: there is no "{name}"; auto, cpu, cuda or cuda:1 would be right') from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RegardError(f"--device: {name} is not here; this machine has {torch.cuda.device_count()} GPUs")
    return name
