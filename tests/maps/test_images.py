"""Attention to images, on models built from their configurations; images are small and made here."""

import numpy as np
import pytest
import torch

import regard
from regard import RegardError

pytest.importorskip("transformers")

from transformers import (
    BatchFeature,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    Idefics2Config,
    Idefics2ForConditionalGeneration,
    Idefics2ImageProcessor,
    Idefics2Processor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    IdeficsConfig,
    IdeficsForVisionText2Text,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    SiglipImageProcessor,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}
NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def make_image(seed=0, height=16, width=16):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


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


def of_words_and_images(*marks):
    from tokenizers import Tokenizer, models, pre_tokenizers

    entries = ["<unk>", "<image>", "a", "red", "dog", *marks]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(entries)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<image>", *marks]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<unk>", additional_special_tokens=special
    )


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


def read_eagerly(model, inputs):
    """Return the weights of the text part by the model's own eager attention."""
    model.set_attn_implementation("eager")
    return torch.stack(model(**inputs, output_attentions=True).attentions)[:, 0].detach()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by the processor itself
def test_words_of_paligemma_look_at_several_images():
    text_config = {**SIZES, "vocab_size": 2000, "num_key_value_heads": 1, "head_dim": 8, "model_type": "gemma2"}
    text_config |= {"attn_logit_softcapping": 5.0, "pad_token_id": 0}
    vision_config = {**VISION, "model_type": "siglip_vision_model"}
    sizes = {"projection_dim": 16, "hidden_size": 16}
    config = PaliGemmaConfig(text_config=text_config, vision_config=vision_config, image_token_id=1, **sizes)
    model = spread(PaliGemmaForConditionalGeneration(config))
    image_processor = SiglipImageProcessor(size={"height": 16, "width": 16}, image_seq_length=16)
    processor = PaliGemmaProcessor(image_processor, of_words_and_images())
    images = [make_image(1), make_image(2)]
    picture = regard.look(model, processor, images, " a red dog")
    assert (picture.rows, [each.grid for each in picture.images]) == (("<unk>", "a", "red", "dog"), [(4, 4), (4, 4)])
    inputs = processor(images=images, text="<image><image> a red dog", return_tensors="pt")
    expected = read_eagerly(model, {name: inputs[name] for name in inputs if name != "labels"})
    np.testing.assert_allclose(picture.weights, expected[:, :, 32:, :32], atol=1e-5)


class QwenProcessor:
    """What Qwen2-VL's processor does, whose video part needs torchvision: pairs of frames, 2 x 2 patches a token."""

    image_token, video_token = "<image>", "<video>"

    def __init__(self):
        self.tokenizer = of_words_and_images("<video>", "<start>")
        self.image_processor = Qwen2VLImageProcessor(
            patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 4096}, **NORMAL
        )

    def __call__(self, text, return_tensors, images=None, videos=None):
        if images is not None:
            data = dict(self.image_processor(images, return_tensors=return_tensors))
            grids, mark = data["image_grid_thw"], self.image_token
        else:
            data, mark = cut_frames(torch.tensor(videos[0])), self.video_token
            grids = data["video_grid_thw"]
        parts = text.split(mark)
        counts = [int(grid.prod()) // 4 for grid in grids]
        text = parts[0] + "".join(f" {mark} " * count + part for count, part in zip(counts, parts[1:], strict=True))
        ids = torch.tensor([self.tokenizer(text)["input_ids"]])
        kinds = (ids == 1) + 2 * (ids == 5)
        return BatchFeature({**data, "input_ids": ids, "mm_token_type_ids": kinds.int()})


def cut_frames(frames):
    """Cut frames into patches of 4 x 4, in pairs of frames, neighbors of 2 x 2 patches after each other."""
    count, height, width, _ = frames.shape
    cells = (frames / 127.5 - 1).reshape(count // 2, 2, height // 8, 2, 4, width // 8, 2, 4, 3)
    patches = cells.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(-1, 3 * 2 * 4 * 4)
    return {"pixel_values_videos": patches, "video_grid_thw": torch.tensor([[count // 2, height // 4, width // 4]])}


def build_qwen():
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    vision_config = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
    config = Qwen2VLConfig(
        text_config={**SIZES, "vocab_size": 8, "num_key_value_heads": 1, "rope_parameters": rope},
        vision_config=vision_config, image_token_id=1, video_token_id=5, vision_start_token_id=6,
    )  # fmt: skip
    return spread(Qwen2VLForConditionalGeneration(config))


def test_words_of_qwen_look_at_images_of_any_shape():
    model, processor = build_qwen(), QwenProcessor()
    images, text = [make_image(1, 16, 24), make_image(2, 32, 16)], "<start> <image> <start> <image> a red dog"
    picture = regard.look(model, processor, images, text)
    assert (picture.rows, [each.grid for each in picture.images]) == (("a", "red", "dog"), [(2, 3), (4, 2)])
    np.testing.assert_array_equal(picture.images[1].pixels, images[1])
    expected = read_eagerly(model, processor(images=images, text=text, return_tensors="pt"))
    np.testing.assert_allclose(picture.select("red", 0, layer=0, head=1).ravel(), expected[0, 1, 17, 1:7], atol=1e-5)
    np.testing.assert_allclose(picture.select("red", 1, layer=1, head=0).ravel(), expected[1, 0, 17, 8:16], atol=1e-5)


def test_words_of_qwen_look_at_the_frames_of_a_video():
    model, processor = build_qwen(), QwenProcessor()
    video, text = np.stack([make_image(seed, 16, 24) for seed in range(6)]), "<start> <video> a red dog"
    picture = regard.look(model, processor, video, text)
    assert (picture.rows, [each.grid for each in picture.images]) == (("a", "red", "dog"), [(2, 3)] * 3)
    np.testing.assert_array_equal(picture.images[2].pixels, video[4])  # the first of the third pair
    expected = read_eagerly(model, processor(videos=[video], text=text, return_tensors="pt"))
    np.testing.assert_allclose(picture.select("dog", 2, layer=1, head=1).ravel(), expected[1, 1, 21, 13:19], atol=1e-5)


@pytest.mark.parametrize("tiles", [False, True])
def test_words_of_idefics_3_look_at_images_that_are_not_cut_into_tiles(tiles):
    marks = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    text_config = {**SIZES, "model_type": "llama", "vocab_size": 8, "num_key_value_heads": 2, "pad_token_id": 0}
    config = Idefics3Config(text_config=text_config, vision_config=VISION, scale_factor=2, image_token_id=1)
    model = spread(Idefics3ForConditionalGeneration(config))
    sizes = {"size": {"longest_edge": 32 if tiles else 16}, "max_image_size": {"longest_edge": 16}}
    tokenizer = of_words_and_images(*marks)
    tokenizer.pad_token = "<unk>"
    processor = Idefics3Processor(
        Idefics3ImageProcessor(**sizes, **NORMAL, do_image_splitting=tiles), tokenizer, image_seq_len=4
    )
    images = [make_image(1), make_image(2)]
    if tiles:
        with pytest.raises(RegardError, match="cuts images into tiles, whose patches form no single grid"):
            regard.look(model, processor, images, "a red dog")
        return
    picture = regard.look(model, processor, images, "a red dog")
    assert (picture.rows[-3:], picture.weights.shape) == (("a", "red", "dog"), (2, 2, 4, 8))
    inputs = processor(images=images, text="<image><image>a red dog", return_tensors="pt")
    columns = (inputs["input_ids"][0] == 1).nonzero().flatten()
    expected = read_eagerly(model, inputs)[:, :, -4:, columns]
    np.testing.assert_allclose(picture.weights, expected, atol=1e-5)


def test_clip_reads_a_text_with_its_text_part():
    model = spread(CLIPModel(CLIPConfig(text_config={**SIZES, "vocab_size": 20}, vision_config=VISION)))
    attention = regard.look(model, of_words_and_images(), "a red dog")
    model.set_attn_implementation("eager")
    expected = torch.stack(model.text_model(torch.tensor([[2, 3, 4]]), output_attentions=True).attentions)[:, 0]
    assert attention.rows == ("a", "red", "dog")
    np.testing.assert_allclose(attention.weights, expected.detach(), atol=1e-5)


def test_words_of_idefics_2_are_followed_through_its_resampler_to_the_patches():
    image_library = pytest.importorskip("PIL.Image")
    text_config = {**SIZES, "model_type": "mistral", "num_key_value_heads": 2, "vocab_size": 9, "pad_token_id": 0}
    perceiver = {"resampler_n_latents": 3, "resampler_depth": 2, "num_key_value_heads": 1, "resampler_head_dim": 8}
    perceiver |= {"resampler_n_heads": 2, "hidden_size": 16}
    config = Idefics2Config(text_config=text_config, vision_config=VISION, perceiver_config=perceiver, image_token_id=1)
    model = spread(Idefics2ForConditionalGeneration(config))
    tokenizer = of_words_and_images("<fake_token_around_image>", "<end_of_utterance>")
    tokenizer.pad_token = "<unk>"
    image_processor = Idefics2ImageProcessor(
        size={"shortest_edge": 8, "longest_edge": 16}, do_image_splitting=False, **NORMAL
    )
    processor = Idefics2Processor(image_processor, tokenizer, image_seq_len=3)
    images = [image_library.fromarray(make_image(seed, 8, 16)) for seed in (1, 2)]
    picture = regard.look(model, processor, images, "a red dog")
    assert (picture.rows[-3:], [each.grid for each in picture.images]) == (("a", "red", "dog"), [(2, 4)] * 2)
    inputs = processor(images=images, text="<image><image>a red dog", return_tensors="pt")
    columns = (inputs["input_ids"][0] == 1).nonzero().flatten()
    rows = slice(int(columns[-1]) + 1, None)
    layers = [layer.self_attn for layer in model.model.connector.perceiver_resampler.layers]
    model.set_attn_implementation("eager")
    matrices = []
    for layer in layers:
        layer.register_forward_hook(lambda *call: matrices.append(call[-1][1]))
    expected = read_eagerly(model, inputs)[:, :, rows, columns]
    parts = []
    for index in range(2):  # rollout over patches and vectors, of which the patches stay what they are
        rollout = torch.eye(11)
        for matrix in matrices:
            step = torch.eye(11)
            step[8:] = (step[8:] + matrix[index].mean(0)) / 2
            rollout = step @ rollout
        parts.append(rollout[8:, :8] / rollout[8:, :8].sum(-1, keepdim=True))
    expected = torch.cat([expected[..., :3] @ parts[0], expected[..., 3:] @ parts[1]], -1)
    np.testing.assert_allclose(picture.weights, expected.detach(), atol=1e-5)


def test_words_that_look_at_no_patches_are_refused():
    vision_config = {"embed_dim": 16, "image_size": 16, "patch_size": 4, "num_hidden_layers": 1}
    vision_config |= {"num_attention_heads": 2, "intermediate_size": 16}
    crossed = IdeficsForVisionText2Text(
        IdeficsConfig(vocab_size=9, additional_vocab_size=0, vision_config=vision_config, **SIZES)
    )
    resampled = IdeficsForVisionText2Text(
        IdeficsConfig(
            vocab_size=9, additional_vocab_size=0, vision_config=vision_config, use_resampler=True,
            perceiver_config={"resampler_n_latents": 3, "resampler_depth": 1}, **SIZES,
        )
    )  # fmt: skip
    clip = CLIPModel(CLIPConfig(text_config={**SIZES, "vocab_size": 20}, vision_config=VISION))
    for model, message in (
        (resampled, "look: the words of IdeficsForVisionText2Text look at vectors of a resampler, which are not "
         "followed to their patches; regard.watch records their attention"),
        (crossed, "look: IdeficsForVisionText2Text has no tokens for patches of the image in its text; "
         "regard.watch records its attention"),
        (clip, "look: CLIPModel reads image and text apart, so no word looks at a patch; leave out the text, or pass "
         "the tokenizer and the text alone"),
    ):  # fmt: skip
        with pytest.raises(RegardError) as error:
            regard.look(model.eval(), crop_processor(), make_image(), "a red dog")
        assert str(error.value) == message


@pytest.mark.slow
def test_the_patch_that_decides_is_found():
    """A model learns the color of the one patch with a white bar among patches of random colors.

    Some images have no bar, and a class of their own: a model that overlooked the patches of a color
    could not tell them from these, so it must find the patches of every color.
    """
    torch.manual_seed(2)
    sizes = {**VISION, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = ViTForImageClassification(ViTConfig(**sizes, num_labels=len(COLORS) + 1, initializer_range=0.2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(350):
        images, _, labels = sample_patches(64)
        loss = torch.nn.functional.cross_entropy(model(images).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    processor = ViTImageProcessor(size={"height": 16, "width": 16}, **NORMAL)
    images, places, labels = sample_patches(100)
    assert (model(images).logits.argmax(-1) == labels).float().mean() > 0.95
    maps = [regard.look(model, processor, ((image + 1) * 127.5).byte().permute(1, 2, 0).numpy()) for image in images]
    found = torch.tensor([int(each.select("[CLS]").argmax()) for each in maps]) == places
    for color in range(len(COLORS)):
        assert found[labels == color].float().mean() > 0.9


COLORS = torch.tensor([[1.0, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]])


def sample_patches(count):
    """Images of 4 x 4 colored patches; the place of the white bar and the color under it, or -1 and the last label."""
    places, colors = torch.randint(16, (count,)), torch.randint(len(COLORS), (count, 16))
    marked = torch.rand(count) < len(COLORS) / (len(COLORS) + 1)
    images = COLORS[colors].view(count, 4, 4, 3).permute(0, 3, 1, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    for index in marked.nonzero().flatten().tolist():
        place = int(places[index])
        row, column = 4 * (place // 4), 4 * (place % 4)
        images[index, :, row : row + 2, column : column + 4] = 1
    labels = colors.gather(1, places[:, None])[:, 0]
    return images, torch.where(marked, places, -1), torch.where(marked, labels, len(COLORS))


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
