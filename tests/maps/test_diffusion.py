"""Attention of a diffusers pipeline to its prompt, on small models with random weights."""

import numpy as np
import pytest
import torch

import regard
from regard import RegardError
from regard.attention.weights import DenseWeights
from regard.maps.diffusion import StepMeans

diffusers = pytest.importorskip("diffusers")

from transformers import CLIPTextConfig, CLIPTextModel  # noqa: E402

from tests.maps.test_images import of_words_and_images, spread  # noqa: E402

SIZES = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def build_pipeline():
    tokenizer = of_words_and_images("<pad>")
    tokenizer.pad_token, tokenizer.model_max_length = "<pad>", 6
    text = CLIPTextModel(CLIPTextConfig(vocab_size=8, max_position_embeddings=6, **SIZES))
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=12,
        attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4)
    scheduler = diffusers.DDIMScheduler(steps_offset=1, clip_sample=False)
    pipeline = diffusers.StableDiffusionPipeline(
        vae.eval(), spread(text), tokenizer, unet.eval(), scheduler, None, None,
        requires_safety_checker=False,
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


class Spy:
    """A plain attention of diffusers that keeps its own matrix."""

    def __init__(self):
        self.calls = []

    def __call__(self, attention, hidden_states, encoder_hidden_states=None, attention_mask=None, temb=None, **_):
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query = attention.head_to_batch_dim(attention.to_q(hidden_states))
        keys = attention.head_to_batch_dim(attention.to_k(context))
        weights = attention.get_attention_scores(query, keys)
        if encoder_hidden_states is not None:
            self.calls.append(weights.unflatten(0, (len(hidden_states), -1))[-1])  # of the prompt
        states = attention.batch_to_head_dim(weights @ attention.head_to_batch_dim(attention.to_v(context)))
        return attention.to_out[1](attention.to_out[0](states))


def test_a_heat_map_for_each_word_of_the_prompt():
    pipeline = build_pipeline()
    options = {"num_inference_steps": 3, "height": 8, "width": 16}
    picture = regard.look(pipeline, "a red dog", **options, generator=torch.manual_seed(0))
    assert picture.rows == ("a", "red", "dog")
    image = pipeline("a red dog", **options, generator=torch.manual_seed(0), output_type="np").images[0]
    np.testing.assert_array_equal(picture.images[0].pixels, (image * 255).round().astype(np.uint8))
    spy = Spy()
    pipeline.unet.set_attn_processor(dict.fromkeys(pipeline.unet.attn_processors, spy))
    pipeline("a red dog", **options, generator=torch.manual_seed(0))
    assert picture.images[0].grid == (8, 16)
    layers = len(spy.calls) // 3
    means = [torch.stack(spy.calls[layer::layers]).mean(0)[..., :3].mT for layer in range(layers)]
    heights = [{8 * 16: 8, 4 * 8: 4}[mean.shape[-1]] for mean in means]
    assert heights == [8, 4, 8, 8]
    for shown, mean, height in zip(picture.weights, means, heights, strict=True):  # coarse places are repeated
        expected = mean.unflatten(-1, (height, -1)).repeat_interleave(8 // height, -2)
        expected = expected.repeat_interleave(8 // height, -1).flatten(-2)
        np.testing.assert_allclose(shown, expected.detach(), atol=1e-5)


def test_layers_with_different_heads_show_their_mean():
    means = StepMeans(keys=5, tokens=2)
    means.start_step(None, (torch.zeros(2, 4, 2, 2),), {})
    for heads, places in ((1, 4), (2, 1)):
        weights = torch.zeros(2, heads, places, 5)
        weights[1, 0, :, 1] = 1  # of the prompt, on its second token
        means.add(DenseWeights(weights))
    assert means.resize().tolist() == [[[[[0, 0], [0, 0]], [[1, 1], [1, 1]]]], [[[[0, 0], [0, 0]], [[0.5, 0.5]] * 2]]]


def test_what_does_not_fit_is_said():
    pipeline = build_pipeline()
    for arguments, options, message in (
        (("a", "dog"), {}, "look: expected a prompt after StableDiffusionPipeline"),
        ((" ",), {}, "look: the text is empty"),
        (("a dog",), {"output_type": "pil"}, "look: output_type is not an option of StableDiffusionPipeline"),
    ):
        with pytest.raises(RegardError) as error:
            regard.look(pipeline, *arguments, **options)
        assert str(error.value) == message
