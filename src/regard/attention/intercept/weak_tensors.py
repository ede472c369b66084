"""Facts about tensors of a running model, without keeping the tensors alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor

Fact = TypeVar("Fact")


class WeakTensors(Generic[Fact]):
    """What is known of tensors, for as long as they live."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Fact]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __setitem__(self, tensor: Tensor, fact: Fact) -> None:
        key = id(tensor)

        def forget(reference: weakref.ref[Tensor]) -> None:
            if key in self._known and self._known[key][0] is reference:
                del self._known[key]

        self._known[key] = weakref.ref(tensor, forget), fact

    def get(self, tensor: Any) -> Fact | None:
        """Return what is known of a tensor, or None."""
        reference, fact = self._known.get(id(tensor), (None, None))
        return fact if reference is not None and reference() is tensor else None

    def get_facts(self) -> Iterator[Fact]:
        """Iterate over what is known of the tensors that are alive."""
        return (fact for reference, fact in list(self._known.values()) if reference() is not None)

    def clear(self) -> None:
        """Forget all tensors."""
        self._known.clear()
