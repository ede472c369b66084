"""Attention to images, on models built from their configurations; images are small and made here."""

import numpy as np
import pytest
import torch

import regard
from regard import RegardError

pytest.importorskip("transformers")

from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}
NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def make_image(seed=0, size=16):
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def crop_processor():
    return CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, **NORMAL)


def spread(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def test_a_vision_model_shows_where_the_whole_image_looks():
    model = spread(ViTForImageClassification(ViTConfig(**VISION)))
    processor = ViTImageProcessor(size={"height": 16, "width": 16}, **NORMAL)
    picture = regard.look(model, processor, make_image())
    pixels = processor(images=make_image(), return_tensors="pt")["pixel_values"]
    model.set_attn_implementation("eager")
    expected = torch.stack(model(pixels, output_attentions=True).attentions)[:, 0, :, :1, 1:]
    assert picture.rows == ("[CLS]",)
    np.testing.assert_allclose(picture.weights, expected.detach(), atol=1e-5)
    np.testing.assert_array_equal(picture.images[0].pixels, make_image())
    cell = picture.select("[CLS]", layer=1, head=0)[2, 3].item()
    assert cell == pytest.approx(expected[1, 0, 0, 2 * 4 + 3].item(), abs=1e-6)


def test_clip_shows_its_vision_part():
    model = spread(CLIPModel(CLIPConfig(text_config={**SIZES, "vocab_size": 20}, vision_config=VISION)))
    picture = regard.look(model, crop_processor(), make_image())
    assert (picture.rows, picture.weights.shape) == (("[CLS]",), (2, 2, 1, 16))


def of_words_and_images():
    from tokenizers import Tokenizer, models, pre_tokenizers

    entries = ["<unk>", "<image>", "a", "red", "dog"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(entries)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", additional_special_tokens=["<image>"])


def test_words_of_a_vision_language_model_look_at_patches():
    text_config = {**SIZES, "vocab_size": 5, "model_type": "llama", "num_key_value_heads": 2}
    vision_config = {**VISION, "model_type": "clip_vision_model", "projection_dim": 16}
    model = spread(
        LlavaForConditionalGeneration(
            LlavaConfig(text_config=text_config, vision_config=vision_config, image_token_id=1, vision_feature_layer=-1)
        )
    )
    processor = LlavaProcessor(
        crop_processor(), of_words_and_images(), patch_size=4, vision_feature_select_strategy="default",
        image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    images = [make_image(1), make_image(2)]
    picture = regard.look(model, processor, images, " a red dog")
    assert (picture.rows, picture.weights.shape) == (("a", "red", "dog"), (2, 2, 3, 32))
    inputs = processor(images=images, text="<image><image> a red dog", return_tensors="pt")
    model.set_attn_implementation("eager")
    expected = torch.stack(model(**inputs, output_attentions=True).attentions)[:, 0, :, 32:, :32]
    np.testing.assert_allclose(picture.weights, expected.detach(), atol=1e-5)
    second = picture.select("red", 1, layer=0, head=1)
    np.testing.assert_allclose(second.ravel(), expected[0, 1, 1, 16:].detach(), atol=1e-5)


@pytest.mark.slow
def test_the_patch_that_decides_is_found():
    """A model learns the color of the one patch with a white bar among patches of random colors.

    It must find that patch for two of the three colors; the third it may tell by having found neither.
    """
    torch.manual_seed(0)
    sizes = {**VISION, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = ViTForImageClassification(ViTConfig(**sizes, num_labels=3, initializer_range=0.2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        images, _, colors = sample_patches(64)
        loss = torch.nn.functional.cross_entropy(model(images).logits, colors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    processor = ViTImageProcessor(size={"height": 16, "width": 16}, **NORMAL)
    images, places, colors = sample_patches(60)
    assert (model(images).logits.argmax(-1) == colors).float().mean() > 0.95
    maps = [regard.look(model, processor, ((image + 1) * 127.5).byte().permute(1, 2, 0).numpy()) for image in images]
    found = torch.tensor([int(each.select("[CLS]").argmax()) for each in maps]) == places
    shares = sorted(found[colors == color].float().mean().item() for color in range(3))
    assert shares[1] > 0.9


def sample_patches(count):
    """Images of 4 x 4 patches of red, green or blue; the place and the color of the one with a white bar."""
    places, colors = torch.randint(16, (count,)), torch.randint(3, (count, 16))
    cells = torch.nn.functional.one_hot(colors, 3).float() * 2 - 1
    images = cells.view(count, 4, 4, 3).permute(0, 3, 1, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    for image, place in zip(images, places.tolist(), strict=True):
        row, column = 4 * (place // 4), 4 * (place % 4)
        image[:, row : row + 2, column : column + 4] = 1
    return images, places, colors.gather(1, places[:, None])[:, 0]


def test_what_does_not_fit_is_said():
    model = spread(ViTForImageClassification(ViTConfig(**VISION)))
    processor = ViTImageProcessor(size={"height": 16, "width": 16}, **NORMAL)
    for arguments, options, message in (
        (([make_image(), make_image()],), {}, "look: a vision model reads one image, got 2"),
        (([],), {}, "look: expected at least one image"),
        ((make_image(),), {"top": 3}, "look: top is not an option of ViTForImageClassification, which reads images"),
    ):
        with pytest.raises(RegardError) as error:
            regard.look(model, processor, *arguments, **options)
        assert str(error.value) == message
