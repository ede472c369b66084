"""Weights as the pixels of a picture, for maps of more cells than a drawing can have elements."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from jaxtyping import Float32, UInt8

from regard.views.shades import RAMP


def shade_picture(weights: Float32[np.ndarray, "rows columns"], most: float, longest: int) -> str:
    """The weights as a PNG of at most `longest` pixels a side, in a data: address."""
    return "data:image/png;base64," + base64.b64encode(png(shade_pixels(pooled(weights, longest) / most))).decode()


def pooled(weights: Float32[np.ndarray, "rows columns"], longest: int) -> Float32[np.ndarray, "height width"]:
    """The weights themselves, or the largest of every block: so no strong one is lost."""
    for axis in (0, 1):
        count = weights.shape[axis]
        if count > longest:
            weights = np.maximum.reduceat(weights, np.arange(longest) * count // longest, axis=axis)
    return weights


def shade_pixels(shades: Float32[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width 3"]:
    """The colours of shades between 0 and 1."""
    places = np.linspace(0, 1, len(RAMP))
    channels = [np.interp(shades, places, channel) for channel in zip(*RAMP, strict=True)]
    return np.round(np.stack(channels, axis=2)).astype(np.uint8)


def png(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The pixels as a PNG file (ISO/IEC 15948): eight bits a channel, no filter."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, content) for name, content in parts)


def chunk(name: bytes, content: bytes) -> bytes:
    """One part of a PNG file, with its length and checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
