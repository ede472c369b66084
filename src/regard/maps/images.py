"""Maps of the attention to images, of Transformers models that read patches.

A vision-language model reads the patches as tokens among those of the text; a vision model reads
them after a token that stands for the whole image, if it has one. Only the weights from words to
patches are computed, while the model runs; none are held beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.build import TITLE
from regard.views.display import truncate
from regard.views.image_map import ImageMap, PatchImage


def reads_images(processor: Any) -> bool:
    """Return whether a processor prepares images."""
    return hasattr(processor, "image_processor") or hasattr(processor, "image_mean")


def look_at_images(model: Any, processor: Any, images: Any, text: str | None) -> ImageMap:
    """Return which patches of the images the words of a text looked at, or without a text the whole image.

    Args:
        model: A Transformers model that reads images: with a text a vision-language model such as LLaVA, whose
            patches are tokens of its text; without, a vision model such as ViT, or CLIP for its vision part.
        processor: Its processor.
        images: An image, or a list of images.
        text: The text; the marks of the images are added if it has none.
    """
    if model.training:
        raise RegardError("look: the model is in training mode; call model.eval() first")
    image_list = list(images) if isinstance(images, (list, tuple)) else [images]
    if not image_list:
        raise RegardError("look: expected at least one image")
    if text is None:
        return look_at_patches(model, getattr(processor, "image_processor", processor), image_list)
    return look_from_words(model, processor, image_list, text)


def look_at_patches(model: Any, processor: Any, images: Sequence[Any]) -> ImageMap:
    """Return the attention of a vision model to the patches of an image."""
    if len(images) > 1:
        raise RegardError(f"look: a vision model reads one image, got {len(images)}")
    pixels = processor(images=images, return_tensors="pt")["pixel_values"].to(model.device)
    vision = getattr(model, "vision_model", model)
    patch = getattr(vision.config, "patch_size", None)
    if not isinstance(patch, int):
        raise RegardError(f"look: {type(model).__name__} does not read patches of one size")
    grid = (pixels.shape[-2] // patch, pixels.shape[-1] // patch)
    patches = math.prod(grid)
    first = None

    def keep(weights: Weights) -> Tensor | None:
        nonlocal first
        count = weights.shape[-1] - patches
        if weights.shape[-2] != weights.shape[-1] or count < 0:
            return None
        first = count
        return weights[0, :, : count or patches, count:].cpu()

    layers = run_watched(vision, {"pixel_values": pixels}, keep)
    if not layers:
        raise RegardError(f"look: {type(model).__name__} has no attention over the {patches} patches of the image")
    labels = [f"token {index}" for index in range(first or 0)] or [
        f"patch {row},{column}" for row in range(grid[0]) for column in range(grid[1])
    ]
    if first == 1:
        labels = ["[CLS]"]
    image = PatchImage(restore_pixels(pixels[0], processor), grid)
    return ImageMap(tuple(labels), (image,), torch.stack(layers).float().numpy(), type(model).__name__)


def look_from_words(model: Any, processor: Any, images: Sequence[Any], text: str) -> ImageMap:
    """Return the attention of a vision-language model from the tokens of its text to the patches before them."""
    mark = getattr(processor, "image_token", None)
    if isinstance(mark, str) and mark not in text:
        text = f"{mark * len(images)}{text}"
    inputs = dict(processor(images=list(images), text=text, return_tensors="pt").to(model.device))
    config = model.config
    token = getattr(config, "image_token_id", getattr(config, "image_token_index", None))
    ids = inputs["input_ids"][0]
    columns = (ids == token).nonzero().flatten()
    rows = range(int(columns[-1]) + 1, len(ids)) if len(columns) else range(0)
    if not rows:
        raise RegardError(f"look: {type(model).__name__} reads no patches of the image before tokens of the text")
    grids = find_grids(inputs, len(columns), len(images), config)

    def keep(weights: Weights) -> Tensor | None:
        if weights.shape[-2:] != (len(ids), len(ids)):
            return None  # of the vision part
        return weights[0, :, rows.start :, int(columns[0]) : rows.start][..., columns - columns[0]].cpu()

    layers = run_watched(model, inputs, keep)
    if not layers:
        raise RegardError(f"look: {type(model).__name__} has no attention over text and patches")
    seen = show_images(inputs["pixel_values"], images, processor.image_processor)
    tokenizer = processor.tokenizer
    labels = tuple(tokenizer.convert_ids_to_tokens(ids[rows.start :].tolist()))
    title = f"{type(model).__name__}: {truncate(text.replace(str(mark), ''), TITLE)}"
    patch_images = tuple(PatchImage(pixels, grid) for pixels, grid in zip(seen, grids, strict=True))
    return ImageMap(labels, patch_images, torch.stack(layers).float().numpy(), title)


def run_watched(model: Any, inputs: dict[str, Any], keep: Any) -> list[Tensor]:
    """Run a model, and return what was kept of each call that is not None, in order."""
    with torch.no_grad(), watch(model, keep=keep) as seen:
        model(**inputs)
    return [call for path in seen for call in seen[path] if call is not None]


def find_grids(inputs: dict[str, Any], patches: int, images: int, config: Any) -> list[tuple[int, int]]:
    """Return the rows and columns of patches of each image."""
    if "image_grid_thw" in inputs:  # before neighbors are merged to one token
        merge = config.vision_config.spatial_merge_size
        return [(int(rows) // merge, int(columns) // merge) for _, rows, columns in inputs["image_grid_thw"]]
    side = math.isqrt(patches // images)
    if side * side * images != patches:
        raise RegardError(f"look: expected a square of patches for each of {images} images, got {patches} patches")
    return [(side, side)] * images


def show_images(pixels: Tensor, images: Sequence[Any], processor: Any) -> list[np.ndarray]:
    """Return the images as the model reads them, or as they were given if it reads them as a list of patches."""
    if pixels.ndim == 4 and len(pixels) == len(images):
        return [restore_pixels(image, processor) for image in pixels]
    return [np.asarray(image)[..., :3].astype(np.uint8) for image in images]


def restore_pixels(pixels: Tensor, processor: Any) -> np.ndarray:
    """Return an image that was normalized for a model as colors from 0 to 255."""
    mean, deviation = (torch.tensor(getattr(processor, name))[:, None, None] for name in ("image_mean", "image_std"))
    restored = ((pixels.cpu() * deviation + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    return restored.permute(1, 2, 0).contiguous().numpy()
