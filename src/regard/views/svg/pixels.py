"""Encode weights as a PNG image, for maps with too many cells for SVG elements."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from jaxtyping import Float32, UInt8

from regard.views.shades import RAMP


def encode_png_url(weights: Float32[np.ndarray, "rows columns"], vmax: float, max_size: int) -> str:
    """Encode the weights as a PNG data URL of at most `max_size` pixels per side."""
    return (
        "data:image/png;base64," + base64.b64encode(encode_png(to_pixels(max_pool(weights, max_size) / vmax))).decode()
    )


def max_pool(weights: Float32[np.ndarray, "rows columns"], max_size: int) -> Float32[np.ndarray, "height width"]:
    """Reduce the weights to at most `max_size` per side, keeping the maximum of every block."""
    for axis in (0, 1):
        count = weights.shape[axis]
        if count > max_size:
            weights = np.maximum.reduceat(weights, np.arange(max_size) * count // max_size, axis=axis)
    return weights


def to_pixels(shades: Float32[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width 3"]:
    """Convert shades between 0 and 1 to RGB pixels."""
    stops = np.linspace(0, 1, len(RAMP))
    channels = [np.interp(shades, stops, channel) for channel in zip(*RAMP, strict=True)]
    return np.round(np.stack(channels, axis=2)).astype(np.uint8)


def encode_png(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode pixels as PNG (ISO/IEC 15948) with 8 bits per channel and no filter."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(encode_png_chunk(name, content) for name, content in parts)


def encode_png_chunk(name: bytes, content: bytes) -> bytes:
    """Encode a PNG chunk with its length and checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
