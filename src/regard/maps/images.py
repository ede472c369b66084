"""Maps of the attention to images, of Transformers models that read patches.

A vision-language model reads the patches as tokens among those of the text; a vision model reads
them after a token that stands for the whole image, if it has one. Only the weights from words to
patches are computed, while the model runs; none are held beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.build import TITLE
from regard.maps.hugging_face import run_without_cache
from regard.maps.patches import build_patch_images, check_grid, restore_pixels
from regard.maps.resampler import build_resampler
from regard.views.display import truncate
from regard.views.image_map import ImageMap, PatchImage

Keep = Callable[[Weights], Tensor | None]


def reads_images(processor: Any) -> bool:
    """Return whether a processor prepares images."""
    return hasattr(processor, "image_processor") or hasattr(processor, "image_mean")


def look_at_images(model: Any, processor: Any, images: Any, text: str | None) -> ImageMap:
    """Return which patches of the images the words of a text looked at, or without a text the whole image.

    Args:
        model: A Transformers model that reads images: with a text a vision-language model such as LLaVA, whose
            patches are tokens of its text; without, a vision model such as ViT, or CLIP for its vision part.
        processor: Its processor.
        images: An image, a list of images, or a video: an array (frames, height, width, 3).
        text: The text; the marks of the images are added if it has none.
    """
    if model.training:
        raise RegardError("look: the model is in training mode; call model.eval() first")
    if getattr(images, "ndim", 3) == 4:
        if text is None:
            raise RegardError("look: a video needs a text, whose words look at its frames")
        return look_from_words(model, processor, images, text, kind="video")
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


def look_from_words(model: Any, processor: Any, images: Any, text: str, kind: str = "image") -> ImageMap:
    """Return the attention of a vision-language model from the tokens of its text to the patches before them.

    `images` are a list of images if the kind is "image", and the frames of one video if it is "video".
    """
    config, name = model.config, type(model).__name__
    token = getattr(config, f"{kind}_token_id", getattr(config, f"{kind}_token_index", None))
    check_grid(model, kind, token)
    mark = getattr(processor, f"{kind}_token", None)
    if isinstance(mark, str) and mark not in text:
        text = f"{mark * (len(images) if kind == 'image' else 1)}{text}"
    given = {"images": list(images)} if kind == "image" else {"videos": [images]}
    inputs = dict(processor(**given, text=text, return_tensors="pt").to(model.device))
    inputs.pop("labels", None)
    ids = inputs["input_ids"][0]
    columns = (ids == token).nonzero().flatten()
    rows = range(int(columns[-1]) + 1, len(ids)) if len(columns) else range(0)
    if not rows:
        raise RegardError(f"look: {name} reads no patches of the {kind} before tokens of the text")
    resampler = build_resampler(config, inputs)
    grid = None if resampler is None else resampler.grid
    patch_images = build_patch_images(inputs, images, len(columns), config, processor, grid)

    def keep(weights: Weights) -> Tensor | None:
        if resampler is not None and resampler.add(weights):
            return None
        if weights.shape[-2:] != (len(ids), len(ids)):
            return None  # of the vision part
        return weights[0, :, rows.start :, int(columns[0]) : rows.start][..., columns - columns[0]].cpu()

    layers = run_watched(model, inputs, keep)
    if not layers:
        raise RegardError(f"look: {name} has no attention over text and patches")
    labels = tuple(processor.tokenizer.convert_ids_to_tokens(ids[rows.start :].tolist()))
    title = f"{name}: {truncate(text.replace(str(mark), ''), TITLE)}"
    to_tokens = torch.stack(layers).float()
    to_patches = to_tokens if resampler is None else resampler.spread(to_tokens)
    return ImageMap(labels, patch_images, to_patches.numpy(), title)


def run_watched(model: nn.Module, inputs: dict[str, Any], keep: Keep) -> list[Tensor]:
    """Run a model, and return what was kept of each call that is not None, in order."""
    with torch.no_grad(), watch(model, keep=keep) as seen:
        run_without_cache(model, **inputs)
    return [call for path in seen for call in seen[path] if call is not None]
