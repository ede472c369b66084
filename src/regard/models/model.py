"""What every model says of itself, so that nothing else has to recognise it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from torch import nn


class Model(nn.Module, ABC):
    """A model of any task, and what look, explain, decoding and the server ask of it."""

    attentions: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Kind of attention -> paths of the modules that compute it, first layer first.

    The kinds are "cross" from target to source, "encoder" within the source, "decoder" within the
    target, "self" within a text, and "pooling" over the words of a text. The first is shown by default.
    """

    residual_attentions: frozenset[str] = frozenset()
    """Kinds whose layers each add to what goes in, so that attention rollout means something for them."""

    most_places: int | None = None
    """The most tokens that can be read at once, or written in a target; None where there is no limit."""

    @property
    @abstractmethod
    def input_embedding(self) -> nn.Module:
        """The submodule that gives each token, or word, of the input text its vector."""

    @property
    def attended(self) -> tuple[str, ...]:
        """Paths of the attention that is shown by default; empty without attention."""
        return next(iter(self.attentions.values()), ())
