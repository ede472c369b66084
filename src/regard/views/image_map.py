"""ImageMap: which patches of an image each word looked at, drawn over the image.

    image_map.select("cat")  # (rows, columns) of the patches
    image_map.save_picture("cat.png", "cat")
    image_map.save_html("look.html")  # every word beside its images

This module does not import torch.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, UInt8

from regard.errors import RegardError, unknown_name
from regard.files import write_bytes, write_text
from regard.views.attention_map import IndexOrMean, to_slice
from regard.views.display import sanitize_text
from regard.views.document import build_document, read_static
from regard.views.shades import ceiling
from regard.views.svg.pixels import encode_png, to_pixels

SIDE = 224
"""Minimum length of the longer side of a drawn image, in pixels."""

HEAT, IMAGE = 0.65, 0.35
"""Shares of the heat and of the image in a drawn pixel."""


@dataclass(frozen=True)
class PatchImage:
    """An image and the grid of its patches.

    Args:
        pixels: Red, green and blue, from 0 to 255.
        grid: Rows and columns of patches.
    """

    pixels: UInt8[np.ndarray, "height width 3"]
    grid: tuple[int, int]

    @property
    def patches(self) -> int:
        """Number of patches."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, eq=False)
class ImageMap:
    """Weights from words to the patches of one or several images, by layer and head.

    Args:
        rows: Labels of the rows: the words, or the token that stands for the whole image.
        images: The images. The columns are their patches, image by image, each row by row.
        weights: An array of shape (layers, heads, rows, patches).
        title: Title of the map.

    Raises:
        RegardError: If the weights do not match rows and images.
    """

    rows: tuple[str, ...]
    images: tuple[PatchImage, ...]
    weights: Float32[np.ndarray, "layers heads rows patches"]
    title: str = ""

    def __post_init__(self) -> None:
        expected = len(self.rows), sum(image.patches for image in self.images)
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            raise RegardError(
                f"image map: expected weights of shape (layers, heads, {expected[0]}, {expected[1]}), "
                f"got {self.weights.shape}"
            )

    def select(
        self, row: int | str, image: int = 0, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
    ) -> Float[np.ndarray, "grid_rows grid_columns"]:
        """Return the weights of a row on the patches of an image, for one layer and head or their mean."""
        if not 0 <= image < len(self.images):
            raise RegardError(f"image must be from 0 to {len(self.images) - 1}, got {image}")
        layers, heads = to_slice("layer", layer, len(self.weights)), to_slice("head", head, self.weights.shape[1])
        first = sum(each.patches for each in self.images[:image])
        chosen = self.weights[layers, heads, self.find_row(row), first : first + self.images[image].patches]
        return chosen.mean((0, 1)).reshape(self.images[image].grid)

    def find_row(self, row: int | str) -> int:
        """Return the index of a row, given as its index or its label (the first one with it)."""
        if isinstance(row, str):
            if row not in self.rows:
                raise unknown_name("image map: row", row, self.rows)
            return self.rows.index(row)
        if not -len(self.rows) <= row < len(self.rows):
            raise RegardError(f"row must be from 0 to {len(self.rows) - 1}, got {row}")
        return row % len(self.rows)

    def draw(
        self, row: int | str, image: int = 0, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Return the pixels of an image with the weights of a row as heat over it."""
        heat = self.select(row, image, layer=layer, head=head)
        pixels = self.images[image].pixels
        scale = max(1, -(-SIDE // max(pixels.shape[:2])))
        picture = pixels.repeat(scale, 0).repeat(scale, 1)
        down, across = (np.arange(size) * cells // size for size, cells in zip(picture.shape, heat.shape, strict=False))
        shades = to_pixels((heat / ceiling(heat)).astype(np.float32))[down][:, across]
        return np.round(HEAT * shades + IMAGE * picture).astype(np.uint8)

    def save_picture(
        self,
        path: str | Path,
        row: int | str,
        image: int = 0,
        *,
        layer: IndexOrMean = "mean",
        head: IndexOrMean = "mean",
    ) -> Path:
        """Save an image with the weights of a row over it as .png; return the path."""
        if Path(path).suffix.lower() != ".png":
            raise RegardError(f'{path}: expected .png, got "{Path(path).suffix}"')
        write_bytes(Path(path), encode_png(self.draw(row, image, layer=layer, head=head)))
        return Path(path)

    def to_html(self, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
        """Return a self-contained HTML page with every row beside its images."""
        figures = [
            f"<figure><figcaption>{escape(sanitize_text(label))}</figcaption>"
            + "".join(self._draw_element(row, image, layer, head) for image in range(len(self.images)))
            + "</figure>"
            for row, label in enumerate(self.rows)
        ]
        title = sanitize_text(self.title) or "Attention"
        body = f"<h1>{escape(title)}</h1>\n" + "\n".join(figures)
        return build_document(title, body, style=read_static("page.css"), images=True)

    def _draw_element(self, row: int, image: int, layer: IndexOrMean, head: IndexOrMean) -> str:
        content = base64.b64encode(encode_png(self.draw(row, image, layer=layer, head=head))).decode()
        return f'<img alt="image {image}" src="data:image/png;base64,{content}">'

    def save_html(self, path: str | Path, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> Path:
        """Save the page of `to_html`; return the path."""
        write_text(Path(path), self.to_html(layer=layer, head=head))
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page in a sandboxed iframe for notebooks."""
        style = "width: 100%; height: 640px; border: 0"
        return f'<iframe sandbox title="Attention" style="{style}" srcdoc="{escape(self.to_html())}"></iframe>'
