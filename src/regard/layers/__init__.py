"""Modules made of attention."""

from regard.layers.attention import MultiHeadAttention
from regard.layers.cache import KeyValueCache

__all__ = ["KeyValueCache", "MultiHeadAttention"]
