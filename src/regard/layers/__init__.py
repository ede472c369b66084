"""Layers built on `attend`, for your own models.

Example:
    >>> from regard.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(width=512, heads=8)
    >>> out, weights = layer(x, visible=causal(), return_weights=True)
"""

from regard.layers.attention import MultiHeadAttention
from regard.layers.cache import KeyValueCache

__all__ = ["KeyValueCache", "MultiHeadAttention"]
