"""A key-value cache in preallocated memory."""

from __future__ import annotations

from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError


class KeyValueCache:
    """A cache of keys and values with a fixed capacity.

    `append` copies into preallocated buffers; `keys` and `values` are views. The cache stores no
    gradients: use it under `torch.no_grad()`. `MultiHeadAttention.new_cache` creates one that fits
    a layer.

    Args:
        batch: The batch axes.
        heads: Number of key and value heads.
        capacity: Maximum number of positions.
        width: Width of each key.
        value_width: Width of each value. Defaults to `width`.
        dtype: Type of keys and values.
        device: Device of keys and values.

    Attributes:
        length: Number of positions in use.
        capacity: Maximum number of positions.

    Example:
        >>> cache = KeyValueCache((2,), heads=8, capacity=100, width=64)
        >>> cache.append(keys, values)  # (2, 8, new, 64)
        >>> out = attend(query, cache.keys, cache.values, visible=causal())
    """

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
                raise RegardError(f"cache: {name} must be an integer of at least 0, got {size!r}")
        self.length = 0
        self.capacity = capacity
        self._keys = torch.empty(*batch, heads, capacity, width, dtype=dtype, device=device)
        self._values = torch.empty(*batch, heads, capacity, value_width or width, dtype=dtype, device=device)

    @property
    def keys(self) -> Float[Tensor, "*batch heads length width"]:
        """The cached keys."""
        return self._keys[..., : self.length, :]

    @property
    def values(self) -> Float[Tensor, "*batch heads length value_width"]:
        """The cached values."""
        return self._values[..., : self.length, :]

    def append(
        self, keys: Float[Tensor, "*batch heads new width"], values: Float[Tensor, "*batch heads new value_width"]
    ) -> None:
        """Append keys and values.

        Args:
            keys: (*batch, heads, new, width).
            values: (*batch, heads, new, value width).

        Raises:
            RegardError: If the shapes do not fit, the capacity is exceeded, or gradients are required.
        """
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise RegardError("cache: cannot store gradients; use the cache under torch.no_grad()")
        if keys.shape[:-2] != self._keys.shape[:-2] or keys.shape[-1] != self._keys.shape[-1]:
            expected, shape = self._keys.shape, keys.shape
            raise RegardError(
                f"cache: expected (*batch, heads) {tuple(expected[:-2])} and width {expected[-1]}, "
                f"got {tuple(shape[:-2])} and width {shape[-1]}"
            )
        end = self.length + keys.shape[-2]
        if end > self.capacity:
            raise RegardError(f"cache: {end} positions exceed the capacity of {self.capacity}")
        self._keys[..., self.length : end, :] = keys
        self._values[..., self.length : end, :] = values
        self.length = end

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Replace row i of the first axis with row rows[i], in place; rows may repeat."""
        if len(rows) != len(self._keys):
            raise RegardError(f"cache: expected {len(self._keys)} rows, got {len(rows)}")
        for part in (self.keys, self.values):
            part.copy_(part.index_select(0, rows))

    def __repr__(self) -> str:
        return f"KeyValueCache({self.length} of {self.capacity} positions, shape={tuple(self._keys.shape)})"
