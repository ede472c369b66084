"""The lengths of sequences that stand side by side, known to Python without waiting for the device they are on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SequenceLengths:
    """How long each sequence of a batch is, kept twice, as to read a number from a GPU is to wait for all its work.

    Python decides by those on the host; masks are made of those on the device of the sequences.
    """

    on_host: Int[Tensor, " batch"]
    on_device: Int[Tensor, " batch"]

    @classmethod
    def of(cls, lengths: AnyLengths, device: str | torch.device = "cpu") -> SequenceLengths:
        """Lengths as a layer is given them whose sequences are on a device; a tensor of them is best on the CPU."""
        return lengths if isinstance(lengths, SequenceLengths) else cls(lengths.cpu(), moved(lengths, device))

    def __len__(self) -> int:
        return len(self.on_host)

    def to(self, device: str | torch.device) -> SequenceLengths:
        """The same lengths beside sequences on another device."""
        return SequenceLengths(self.on_host, moved(self.on_host, device))

    def tolist(self) -> list[int]:
        """All of them as numbers."""
        return self.on_host.tolist()

    def map(self, change: Callable[[Tensor], Tensor]) -> SequenceLengths:
        """What a function makes of them, number by number."""
        return SequenceLengths(change(self.on_host), change(self.on_device))

    def fill(self, size: int) -> bool:
        """Whether every sequence has this length, so that there is no padding."""
        return not len(self) or int(self.on_host.min()) == size

    def real(self, size: int) -> Bool[Tensor, "batch time 1"]:
        """True where a sequence is, False at the padding after it."""
        return (torch.arange(size, device=self.on_device.device) < self.on_device[:, None])[..., None]

    def places(self, size: int) -> Int[Tensor, " real"]:
        """Where `real` is True, sequence after sequence, counted through from the first place of the first one."""
        inside = torch.arange(size) < self.on_host[:, None]
        return moved(inside.flatten().nonzero()[:, 0], self.on_device.device)


AnyLengths = SequenceLengths | Int[Tensor, " batch"]


def moved(tensor: Tensor, device: str | torch.device) -> Tensor:
    """A tensor on a device; a GPU fetches it from pinned memory while the CPU goes on."""
    fetched = torch.device(device).type == "cuda" and tensor.is_cpu
    return tensor.pin_memory().to(device, non_blocking=True) if fetched else tensor.to(device)
