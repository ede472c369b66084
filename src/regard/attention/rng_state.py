"""Save and restore the random number state, to recompute scores that draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class RandomState:
    """A snapshot of the random number generators of the CPU and a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.devices = [device] if device.type == "cuda" else []
        self.cuda = [torch.cuda.get_rng_state(device) for device in self.devices]

    def has_advanced(self) -> bool:
        """Return whether random numbers were drawn since the snapshot."""
        current = RandomState(self.device)
        pairs = zip((self.cpu, *self.cuda), (current.cpu, *current.cuda), strict=True)
        return not all(torch.equal(before, after) for before, after in pairs)

    @contextmanager
    def restore(self) -> Iterator[None]:
        """Restore the snapshot for the duration of a `with` block."""
        with torch.random.fork_rng(self.devices):
            torch.set_rng_state(self.cpu)
            for device, state in zip(self.devices, self.cuda, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
