"""Models of other libraries, built small; each is skipped where its library is not installed."""

import importlib

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from regard import watch


class Truth(TorchFunctionMode):
    """Keeps every softmax, and the weights of each fused call: its output for values that are the identity matrix."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            query, keys, _, *rest = args if len(args) > 2 else (*args, *(kwargs.pop(name) for name in ("key", "value")))
            identity = torch.eye(keys.shape[-2]).expand(*keys.shape[:-1], keys.shape[-2])
            self.weights.append(function(query, keys, identity, *rest, **kwargs | {"dropout_p": 0.0}))
        elif function is functional.multi_head_attention_forward:
            given = kwargs | {"need_weights": True, "average_attn_weights": False}
            self.weights.append(function(*args, **given)[1])
        output = function(*args, **kwargs)
        if function in (functional.softmax, torch.softmax, torch.Tensor.softmax):
            self.weights.append(output.detach())
        return output


def check(model, run, count):
    """Watch a model: its output keeps its bits, and every attention is recorded with the weights that ran."""
    model.eval()
    with torch.no_grad():
        torch.manual_seed(1)
        plain = run(model)
        torch.manual_seed(1)
        with Truth() as truth, watch(model) as seen:
            output = run(model)
    pairs = zip(leaves(output), leaves(plain), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    report = seen.report()
    assert len(report.seen) == count, str(report)
    assert [one for one in report.unseen if one.ran] == [], str(report)
    left = list(truth.weights)
    for path in seen:
        for call in seen[path]:
            dense = call.dense()
            index = next(
                (i for i, one in enumerate(left) if one.numel() == dense.numel()
                 and torch.allclose(one.reshape(dense.shape), dense, atol=1e-5)), None,
            )  # fmt: skip
            assert index is not None or "Talking" in type(model.get_submodule(path)).__name__, path  # mixed heads
            left.pop(index) if index is not None else None
    return seen


def leaves(output):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("name", "sizes", "count"),
    [
        ("vit_tiny_patch16_224", {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3}, 2),
        ("deit3_small_patch16_224", {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3}, 2),
        ("swin_tiny_patch4_window7_224", {"img_size": 56, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}, 4),
        ("beit_base_patch16_224", {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3}, 2),
        ("cait_xxs24_224", {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3}, 4),
    ],
)
def test_timm(name, sizes, count, fused):
    timm = pytest.importorskip("timm")
    importlib.import_module("timm.layers").set_fused_attn(fused)
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **sizes)
    side = sizes["img_size"]
    check(model, lambda model: model(torch.randn(2, 3, side, side)), count)


@pytest.mark.parametrize(
    "options", [{}, {"attn_flash": True}, {"alibi_pos_bias": True}, {"attn_kv_heads": 2}, {"rotary_pos_emb": True}]
)
def test_x_transformers(options):
    library = pytest.importorskip("x_transformers")
    torch.manual_seed(0)
    layers = library.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    model = library.TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)
    check(model, lambda model: model(torch.arange(9)[None]), 2)


def test_diffusers_unet():
    library = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = library.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=12,
        attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    words = torch.randn(2, 7, 12)
    seen = check(model, lambda model: model(torch.randn(2, 4, 8, 8), 3, words).sample, 8)
    cross = [one for one in seen.report().seen if one.kind == "cross"]
    assert len(cross) == 4
    assert all(seen[one.path][0].shape[-1] == 7 for one in cross)  # the words of the prompt


def test_diffusers_dit():
    library = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = library.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=4
    )
    check(model, lambda m: m(torch.randn(2, 4, 8, 8), torch.tensor([3, 3]), torch.tensor([1, 2])).sample, 2)


def test_diffusers_transformer_with_a_prompt():
    library = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = library.PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8,
        cross_attention_dim=16, caption_channels=12, use_additional_conditions=False,
    )  # fmt: skip
    words, step = torch.randn(2, 7, 12), torch.tensor([3, 3])
    given = {"resolution": None, "aspect_ratio": None}
    seen = check(model, lambda m: m(torch.randn(2, 4, 8, 8), words, step, given).sample, 4)
    cross = [one for one in seen.report().seen if one.kind == "cross"]
    assert [seen[one.path][0].shape[-1] for one in cross] == [7, 7]  # the words of the prompt


def test_diffusers_transformer_that_joins_image_and_prompt():
    library = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = library.SD3Transformer2DModel(
        sample_size=8, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=6, pos_embed_max_size=8,
    )  # fmt: skip
    words, pooled, step = torch.randn(2, 7, 12), torch.randn(2, 6), torch.tensor([3, 3])
    seen = check(model, lambda m: m(torch.randn(2, 4, 8, 8), words, pooled, step).sample, 2)
    assert all(calls[0].shape[-2:] == (16 + 7, 16 + 7) for calls in seen.values())  # patches, then words


def test_open_clip():
    library = pytest.importorskip("open_clip", exc_type=ImportError)
    torch.manual_seed(0)
    model = library.CLIP(
        embed_dim=16, vision_cfg={"image_size": 32, "patch_size": 16, "width": 64, "layers": 2},
        text_cfg={"context_length": 8, "vocab_size": 50, "width": 32, "heads": 4, "layers": 2},
    )  # fmt: skip
    check(model, lambda model: model(torch.randn(2, 3, 32, 32), torch.randint(1, 50, (2, 8))), 4)


@pytest.mark.parametrize("fused", [True, False])
def test_openai_whisper(fused):
    whisper = pytest.importorskip("whisper.model", exc_type=ImportError)
    torch.manual_seed(0)
    model = whisper.Whisper(whisper.ModelDimensions(8, 20, 16, 2, 2, 50, 12, 16, 2, 2))
    torch.nn.init.normal_(model.decoder.positional_embedding)  # whisper leaves it as it was in memory
    whisper.MultiHeadAttention.use_sdpa = fused
    seen = check(model, lambda model: model(torch.randn(2, 8, 40), torch.randint(0, 50, (2, 7))), 6)
    assert [one.kind for one in seen.report().seen] == ["self"] * 2 + ["self", "cross"] * 2


def test_fair_esm():
    esm = pytest.importorskip("esm")
    torch.manual_seed(0)
    model = esm.ESM2(num_layers=2, embed_dim=16, attention_heads=4)
    check(model, lambda model: model(torch.randint(4, 24, (2, 9)))["logits"], 2)
