"""The state of the random numbers, for a score that draws some and is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class RandomState:
    """The state of the random numbers at one time, to be had again later."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.devices = [device] if device.type == "cuda" else []
        self.cuda = [torch.cuda.get_rng_state(device) for device in self.devices]

    def moved(self) -> bool:
        """Whether numbers were drawn since."""
        now = RandomState(self.device)
        pairs = zip((self.cpu, *self.cuda), (now.cpu, *now.cuda), strict=True)
        return not all(torch.equal(before, after) for before, after in pairs)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """For a while, the same numbers again."""
        with torch.random.fork_rng(self.devices):
            torch.set_rng_state(self.cpu)
            for device, state in zip(self.devices, self.cuda, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
