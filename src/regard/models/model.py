"""The base class of all models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from torch import nn


class Model(nn.Module, ABC):
    """The base class of all models, with what `look`, `explain`, decoding and the server need to know."""

    attentions: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Kind of attention -> paths of the modules that compute it, in layer order.

    Kinds are "cross" (target to source), "encoder" (within the source), "decoder" (within the target),
    "self" (within a text) and "pooling" (over the words of a text). The first one is shown by default.
    """

    residual_attentions: frozenset[str] = frozenset()
    """Kinds whose layers have residual connections, as attention rollout requires."""

    max_length: int | None = None
    """The maximum number of tokens of an input or target; None if unlimited."""

    @property
    @abstractmethod
    def input_embedding(self) -> nn.Module:
        """The submodule that embeds the tokens (or words) of the input."""

    @property
    def default_attention(self) -> tuple[str, ...]:
        """Paths of the attention shown by default; empty for a model without attention."""
        return next(iter(self.attentions.values()), ())
