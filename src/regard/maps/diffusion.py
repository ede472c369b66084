"""Maps from the words of a prompt to the image that a diffusers pipeline with a U-Net makes of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.build import TITLE
from regard.views.display import truncate
from regard.views.image_map import ImageMap, PatchImage

OWN = ("prompt", "negative_prompt", "num_images_per_prompt", "output_type", "return_dict", "prompt_embeds")
"""Options of a pipeline that a map sets, or that it cannot have."""


def writes_images(model: Any) -> bool:
    """Return whether a model is a pipeline that makes images of a prompt with a U-Net."""
    return all(hasattr(model, part) for part in ("unet", "tokenizer", "text_encoder", "vae")) and callable(model)


def look_at_generation(pipeline: Any, prompt: str, options: dict[str, Any]) -> ImageMap:
    """Return how strongly each place of a generated image looked at each word of the prompt, averaged over the steps.

    Args:
        pipeline: A diffusers pipeline with a U-Net, such as `StableDiffusionPipeline`.
        prompt: The prompt.
        options: Options of the pipeline, such as `num_inference_steps` or `generator`.
    """
    for name in OWN:
        if name in options:
            raise RegardError(f"look: {name} is not an option of {type(pipeline).__name__}")
    tokenizer = pipeline.tokenizer
    ids = tokenizer(prompt, truncation=True, max_length=tokenizer.model_max_length)["input_ids"]
    means = StepMeans(tokenizer.model_max_length, len(ids))
    hook = pipeline.unet.register_forward_pre_hook(means.start_step, with_kwargs=True)
    try:
        with torch.no_grad(), watch(pipeline.unet, keep=means.add):
            image = pipeline(prompt, **options, output_type="np").images[0]
    finally:
        hook.remove()
    if not means.sums:
        raise RegardError(f"look: the U-Net of {type(pipeline).__name__} has no cross-attention to the prompt")
    labels = tuple(tokenizer.convert_ids_to_tokens(ids))
    pixels = (np.asarray(image)[..., :3] * 255).round().astype(np.uint8)
    weights = means.resize()
    picture = PatchImage(pixels, (weights.shape[-2], weights.shape[-1]))
    title = f"{type(pipeline).__name__}: {truncate(prompt, TITLE)}"
    return ImageMap(labels, (picture,), weights.flatten(-2).numpy(), title)


class StepMeans:
    """Means over the steps of a diffusion of what each cross-attention gives to the tokens of the prompt.

    Args:
        keys: The number of tokens that the U-Net attends to, padding included.
        tokens: The number of tokens of the prompt.
    """

    def __init__(self, keys: int, tokens: int) -> None:
        self.keys, self.tokens = keys, tokens
        self.sums: list[Tensor] = []
        self.steps, self._next, self._size = 0, 0, (0, 0)

    def start_step(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a step; a hook of the U-Net."""
        sample = kwargs["sample"] if "sample" in kwargs else args[0]
        self._size = (sample.shape[-2], sample.shape[-1])
        self.steps, self._next = self.steps + 1, 0

    def add(self, weights: Weights) -> None:
        """Add the weights of one attention for the prompt, which follows the negative prompt in the batch."""
        if weights.shape[-1] != self.keys or weights.shape[-2] == self.keys:
            return  # self-attention
        grid = find_grid(weights.shape[-2], self._size)
        step = weights[-1, :, :, : self.tokens].transpose(-2, -1).unflatten(-1, grid).float().cpu()
        if self._next < len(self.sums):
            self.sums[self._next] += step
        else:
            self.sums.append(step)
        self._next += 1

    def resize(self) -> Float[Tensor, "layers heads tokens rows columns"]:
        """Return the means of all layers on the finest grid; of each layer's heads, if layers differ in their number.

        A coarse place spreads over several fine ones, each of which gets its weight.
        """
        finest = max((each.shape[-2:] for each in self.sums), key=math.prod)
        layers = [interpolate(each / self.steps, finest, mode="nearest") for each in self.sums]
        if len({len(layer) for layer in layers}) > 1:
            layers = [layer.mean(0, keepdim=True) for layer in layers]
        return torch.stack(layers)


def find_grid(queries: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return rows and columns of the places that attend, in a U-Net that halves its input some number of times."""
    rows, columns = size
    while rows * columns > queries:
        rows, columns = -(-rows // 2), -(-columns // 2)
    if rows * columns != queries:
        raise RegardError(f"look: {queries} places do not form a grid of {size[0]} x {size[1]}, halved")
    return rows, columns
