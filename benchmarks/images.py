"""Memory of looking at images: `python benchmarks/images.py WAY MODEL SIDE`.

Each call is a fresh process that builds a model from its configuration (random weights), runs it once on a
random image and prints one JSON line: the peak memory above that of the loaded model, in bytes, the seconds by the
clock and those of all cores together.

WAY is `forward` (the plain model), `look` (`regard.look`) or `eager` (`output_attentions=True`). MODEL is `vit`
(ViT-base) or `llava` (a vision tower and a language model of 12 layers, 12 heads and width 768 each). SIDE is
that of the image in pixels; patches have 16.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from memory import get_peak, start_peak
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

import regard

BASE: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
TEXT = "<image> what is on the table"


def build_vit(side: int) -> tuple[Any, Any, tuple[str, ...]]:
    """Build a model of ViT-base's size with its processor."""
    model = ViTForImageClassification(ViTConfig(**BASE, image_size=side, patch_size=16))
    return model.eval(), ViTImageProcessor(size={"height": side, "width": side}), ()


def build_llava(side: int) -> tuple[Any, Any, tuple[str, ...]]:
    """Build a vision-language model with its processor and a text."""
    words = ["<unk>", *TEXT.split()]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vision = {**BASE, "image_size": side, "patch_size": 16, "model_type": "clip_vision_model"}
    config = LlavaConfig(
        text_config={**BASE, "vocab_size": 32000, "model_type": "llama", "max_position_embeddings": 2**16},
        vision_config=vision, image_token_index=1, vision_feature_layer=-2,
    )  # fmt: skip
    processor = LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", additional_special_tokens=["<image>"]),
        patch_size=16, vision_feature_select_strategy="default", image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config).eval(), processor, (TEXT,)


BUILDERS = {"vit": build_vit, "llava": build_llava}


def main(way: str, name: str, side: int) -> None:
    """Run one way once, and print what it took."""
    torch.manual_seed(0)
    model, processor, text = BUILDERS[name](side)
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    if way == "eager":
        model.set_attn_implementation("eager")
    with torch.no_grad():
        before, start, cores = start_peak(), time.perf_counter(), time.process_time()
        if way == "look":
            regard.look(model, processor, image, *text)
        else:
            inputs = processor(images=image, **({"text": text[0]} if text else {}), return_tensors="pt")
            model(**inputs, output_attentions=way == "eager")
        seconds, core_seconds, used = time.perf_counter() - start, time.process_time() - cores, get_peak() - before
    times = {"seconds": round(seconds, 2), "core_seconds": round(core_seconds, 2)}
    print(json.dumps({"way": way, "model": name, "side": side, "bytes": used, **times}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
