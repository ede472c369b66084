"""Keys and values of the past, in memory that is taken once."""

from __future__ import annotations

from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError


class KeyValueCache:
    """Room for `capacity` keys and values; what is appended is copied in, what is read is a view."""

    def __init__(
        self,
        batch: tuple[int, ...],
        heads: int,
        capacity: int,
        width: int,
        *,
        value_width: int | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        sizes: list[tuple[str, object]] = [*(("batch", size) for size in batch), ("capacity", capacity)]
        for name, size in sizes:
            if not isinstance(size, (Integral, torch.SymInt)) or size < 0:
                raise RegardError(f"cache: {name} is {size!r}; a whole number from 0 up is needed")
        self.length = 0
        self.capacity = capacity
        self._keys = torch.empty(*batch, heads, capacity, width, dtype=dtype, device=device)
        self._values = torch.empty(*batch, heads, capacity, value_width or width, dtype=dtype, device=device)

    @property
    def keys(self) -> Float[Tensor, "*batch heads length width"]:
        """The keys so far."""
        return self._keys[..., : self.length, :]

    @property
    def values(self) -> Float[Tensor, "*batch heads length value_width"]:
        """The values so far."""
        return self._values[..., : self.length, :]

    def append(
        self, keys: Float[Tensor, "*batch heads new width"], values: Float[Tensor, "*batch heads new value_width"]
    ) -> None:
        """Put new keys and values behind those that are there."""
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise RegardError("cache: memory that is written again keeps no gradients; use it under torch.no_grad()")
        if keys.shape[:-2] != self._keys.shape[:-2] or keys.shape[-1] != self._keys.shape[-1]:
            room, found = self._keys.shape, keys.shape
            raise RegardError(
                f"cache: made for (*batch, heads) {tuple(room[:-2])} of width {room[-1]}, "
                f"found {tuple(found[:-2])} of width {found[-1]}"
            )
        end = self.length + keys.shape[-2]
        if end > self.capacity:
            raise RegardError(f"cache: {end} positions are too many for a capacity of {self.capacity}")
        self._keys[..., self.length : end, :] = keys
        self._values[..., self.length : end, :] = values
        self.length = end

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Put row rows[i] of the first axis in place i, in the same memory; rows may repeat."""
        if len(rows) != len(self._keys):
            raise RegardError(f"cache: {len(rows)} rows are selected; there are places for {len(self._keys)}")
        for part in (self.keys, self.values):
            part.copy_(part.index_select(0, rows))

    def __repr__(self) -> str:
        return f"KeyValueCache({self.length} of {self.capacity} positions, shape={tuple(self._keys.shape)})"
