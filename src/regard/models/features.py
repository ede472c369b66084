"""Features of target positions that are more than one vector each."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from torch import Tensor

AnyFeatures = TypeVar("AnyFeatures", bound="Features")


@dataclass(frozen=True, eq=False)
class Features:
    """What an output layer needs at each position; all tensors have the same leading axes.

    It is indexed like a tensor of vectors: `features[0]`, `features[:5]`, `features[is_target]`.
    """

    def __getitem__(self: AnyFeatures, index: Any) -> AnyFeatures:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[index] for name, value in tensors.items() if isinstance(value, Tensor)})

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))
