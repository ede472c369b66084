"""The grids of patches that models read images and videos as, and the pixels to draw them on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RegardError
from regard.views.image_map import PatchImage

RESAMPLERS = ("perceiver_config", "qformer_config")
"""Settings of the parts that turn patches into a fixed number of vectors."""


def check_grid(model: Any, kind: str, token: int | None) -> None:
    """Raise `RegardError` for a model whose words do not attend to the patches of an image."""
    name, config = type(model).__name__, model.config
    if hasattr(model, "text_model") and hasattr(model, "vision_model"):
        raise RegardError(
            f"look: {name} reads image and text apart, so no word looks at a patch; "
            "leave out the text, or pass the tokenizer and the text alone"
        )
    resampled = [resampler for resampler in RESAMPLERS if getattr(config, resampler, None) is not None]
    followed = resampled == ["perceiver_config"] and token is not None
    if resampled and not followed and getattr(config, "use_resampler", True):
        raise RegardError(
            f"look: the words of {name} look at vectors of a resampler, which are not followed to their patches; "
            "regard.watch records their attention"
        )
    if token is None:
        raise RegardError(
            f"look: {name} has no tokens for patches of the {kind} in its text; regard.watch records its attention"
        )


def build_patch_images(
    inputs: dict[str, Any], images: Any, patches: int, config: Any, processor: Any, grid: tuple[int, int] | None = None
) -> tuple[PatchImage, ...]:
    """Return the images as they are drawn, with their grids; of a video, the first frame of each group of frames.

    Args:
        inputs: What the processor prepared.
        images: The images or the frames.
        patches: The number of tokens that stand for patches.
        config: The configuration of the model.
        processor: The processor of the model.
        grid: The rows and columns of patches, if the tokens do not stand for one patch each.
    """
    if "video_grid_thw" in inputs:
        (groups, rows, columns), merge = inputs["video_grid_thw"][0].tolist(), config.vision_config.spatial_merge_size
        firsts = np.arange(groups) * len(images) // groups
        return tuple(PatchImage(to_colors(images[index]), (rows // merge, columns // merge)) for index in firsts)
    if "image_grid_thw" in inputs:  # before neighbors are merged to one token
        merge = config.vision_config.spatial_merge_size
        grids = [(rows // merge, columns // merge) for _, rows, columns in inputs["image_grid_thw"].tolist()]
        return tuple(PatchImage(to_colors(image), grid) for image, grid in zip(images, grids, strict=True))
    pixels = inputs["pixel_values"]
    pixels = pixels.flatten(0, 1) if pixels.ndim == 5 else pixels  # of each text, all its images
    if pixels.ndim != 4 or len(pixels) != len(images):
        raise RegardError(
            "look: the processor cuts images into tiles, whose patches form no single grid; switch that off, for "
            "Idefics 3 by processor.image_processor.do_image_splitting = False"
        )
    grid = grid or (find_side(patches, len(images), config),) * 2
    return tuple(PatchImage(restore_pixels(each, processor.image_processor), grid) for each in pixels)


def find_side(patches: int, images: int, config: Any) -> int:
    """Return the rows, and columns, of the square of patches of each image."""
    side = math.isqrt(patches // images)
    vision = getattr(config, "vision_config", None)
    size, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    whole = not isinstance(size, int) or not isinstance(patch, int) or size // patch % max(1, side) == 0
    if side * side * images != patches or not whole:
        raise RegardError(f"look: expected a square of patches for each of {images} images, got {patches} patches")
    return side


def restore_pixels(pixels: Tensor, processor: Any) -> np.ndarray:
    """Return an image that was normalized for a model as colors from 0 to 255."""
    mean, deviation = (torch.tensor(getattr(processor, name))[:, None, None] for name in ("image_mean", "image_std"))
    restored = ((pixels.cpu() * deviation + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    return restored.permute(1, 2, 0).contiguous().numpy()


def to_colors(image: Any) -> np.ndarray:
    """Return an image as it was given, as red, green and blue."""
    return np.asarray(image)[..., :3].astype(np.uint8)
