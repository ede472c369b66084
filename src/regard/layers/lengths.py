"""The lengths of the sequences in a batch, available to Python without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SequenceLengths:
    """The lengths of the sequences in a batch, on the host and on the device.

    Python reads those on the host, because reading from a GPU waits for all its work; masks use those
    on the device.
    """

    on_host: Int[Tensor, " batch"]
    on_device: Int[Tensor, " batch"]

    @classmethod
    def of(cls, lengths: AnyLengths, device: str | torch.device = "cpu") -> SequenceLengths:
        """Return lengths for sequences on a device; a tensor of lengths is best passed on the CPU."""
        return lengths if isinstance(lengths, SequenceLengths) else cls(lengths.cpu(), to_device(lengths, device))

    def __len__(self) -> int:
        return len(self.on_host)

    def to(self, device: str | torch.device) -> SequenceLengths:
        """Return the lengths for sequences on another device."""
        return SequenceLengths(self.on_host, to_device(self.on_host, device))

    def tolist(self) -> list[int]:
        """Return the lengths as a list."""
        return self.on_host.tolist()

    def map(self, change: Callable[[Tensor], Tensor]) -> SequenceLengths:
        """Apply an elementwise function to the lengths."""
        return SequenceLengths(change(self.on_host), change(self.on_device))

    def has_no_padding(self, size: int) -> bool:
        """Return whether every sequence has this length, so that there is no padding; False where code is compiled."""
        if torch.compiler.is_compiling():  # a graph does not depend on numbers
            return False
        return not len(self) or int(self.on_host.min()) == size

    def real(self, size: int) -> Bool[Tensor, "batch time 1"]:
        """Return a mask that is True in the sequences and False in the padding."""
        return (torch.arange(size, device=self.on_device.device) < self.on_device[:, None])[..., None]

    def real_indices(self, size: int) -> Int[Tensor, " real"]:
        """Return the indices where `real` is True in the flattened batch."""
        inside = torch.arange(size) < self.on_host[:, None]
        return to_device(inside.flatten().nonzero()[:, 0], self.on_device.device)


AnyLengths = SequenceLengths | Int[Tensor, " batch"]


def to_device(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy a tensor to a device; copies to a GPU use pinned memory and do not block."""
    fetched = torch.device(device).type == "cuda" and tensor.is_cpu
    return tensor.pin_memory().to(device, non_blocking=True) if fetched else tensor.to(device)
