"""What is recorded of attention that a model computes itself, compared with torch's own results."""

import math
import sys
import types
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard import RegardError, Weights, watch
from regard.attention.intercept.flex_weights import FlexWeights
from regard.attention.weights import DenseWeights

X = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(3, 7, 8, generator=torch.Generator().manual_seed(2))


class Calls(nn.Module):
    """Runs a function of tensors as the forward of a module."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, *inputs, **others):
        return self.run(*inputs, **others)


def see(run, *inputs, **others):
    """Return what a run gives watched, and the one call that was recorded."""
    model = Calls(run)
    plain = model(*inputs, **others)
    with watch(model) as seen:
        watched = model(*inputs, **others)
    torch.testing.assert_close(watched, plain, rtol=0, atol=0)
    (calls,) = seen.values()
    (call,) = calls
    return call


def heads(batch=2, heads=4, queries=5, width=6, seed=0):
    return torch.randn(batch, heads, queries, width, generator=torch.Generator().manual_seed(seed))


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(3)) < 0.6},
    "float": {"attn_mask": torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(4))},
    "scale": {"scale": 0.3},
    "lowest": {"attn_mask": torch.full((5, 7), torch.finfo(torch.float32).min)},
}


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("mask", MASKS)
def test_weights_of_sdpa_are_its_output_for_the_identity(mask, groups):
    query, keys, values = heads(), heads(heads=groups, queries=7, seed=1), heads(heads=groups, queries=7, seed=2)
    call = see(functional.scaled_dot_product_attention, query, keys, values, enable_gqa=True, **MASKS[mask])
    identity = torch.eye(7).expand(2, 4, 7, 7)
    whole = keys.repeat_interleave(4 // groups, 1)
    expected = functional.scaled_dot_product_attention(query, whole, identity, **MASKS[mask])
    torch.testing.assert_close(call.dense(), expected)
    torch.testing.assert_close(call.received(), expected.sum(-2))
    torch.testing.assert_close(call[1, 2, 3], expected[1, 2, 3])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [5, 9])
def test_the_log_sum_exp_is_that_of_the_call_itself(queries, causal, grad):
    query, keys, values = (part.requires_grad_(grad) for part in (heads(queries=queries), heads(seed=1), heads(seed=2)))
    call = see(functional.scaled_dot_product_attention, query, keys, values, is_causal=causal)
    scores = query @ keys.mT * 6**-0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(queries, 5, dtype=torch.bool).tril(), -math.inf)
    torch.testing.assert_close(call.lse, scores.logsumexp(-1))
    torch.testing.assert_close(call.dense(), scores.softmax(-1))
    assert see(functional.scaled_dot_product_attention, query, keys, values, torch.zeros(queries, 5)).lse is None


@pytest.mark.parametrize("width", [0, 1, 8, 48])
def test_float64_and_any_width_keep_their_bits(width):
    query, keys, values = (heads(width=width, seed=seed).double() for seed in range(3))
    call = see(functional.scaled_dot_product_attention, query, keys, values)
    torch.testing.assert_close(call.dense(), torch.softmax(query @ keys.mT / math.sqrt(width or 1), -1))


def test_views_that_negate_keep_their_bits():
    query, keys = heads(), torch.complex(heads(seed=1), heads(seed=1)).conj().imag
    assert keys.is_neg()
    call = see(functional.scaled_dot_product_attention, query, keys, keys)
    torch.testing.assert_close(call.dense(), torch.softmax(query @ keys.mT * 6**-0.5, -1))


INDICES = (0, (0, slice(1, 3), slice(2, None)), (slice(None, 1), 3), (-1, slice(None), slice(1, 4), slice(2)), [1, 0])


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_selects_what_it_selects_of_the_matrix(index, groups):
    query, keys = heads(), heads(heads=groups, queries=7, seed=1)
    call = see(functional.scaled_dot_product_attention, query, keys, keys, enable_gqa=True)
    torch.testing.assert_close(call[index], call.dense()[index])


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("rows", [-1, slice(3, 5), [4, 0], slice(3, 3)], ids=str)
def test_a_few_rows_are_computed_by_themselves(rows, mask, groups):
    query, keys = heads(queries=16), heads(heads=groups, queries=7, seed=1)
    masks = {"bool": torch.rand(2, 1, 16, 7) < 0.6, "float": torch.randn(4, 16, 7)}
    call = see(functional.scaled_dot_product_attention, query, keys, keys, enable_gqa=True, attn_mask=masks.get(mask))
    few = call[:, 1, rows, 2:]
    assert "base" not in call.__dict__  # the log-sum-exp of all rows
    full = call.dense()
    torch.testing.assert_close(few, full[:, 1, rows, 2:])
    torch.testing.assert_close(call[:, 1, rows, 2:], full[:, 1, rows, 2:])


def test_autocast_is_followed():
    query, keys = heads(), heads(queries=7, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        call = see(functional.scaled_dot_product_attention, query, keys, keys)
    expected = torch.softmax(query.bfloat16().float() @ keys.bfloat16().float().mT * 6**-0.5, -1)
    torch.testing.assert_close(call.dense(), expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("settings", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 8, "vdim": 8}])
def test_multihead_attention_of_torch_is_seen(settings, batch_first, training):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first, **settings).train(training)
    hidden, masked = torch.zeros(3, 7, dtype=torch.bool), torch.rand(6, 7) < 0.3
    hidden[0, 5:], masked[:, 0] = True, False
    inputs = (X, Y, Y) if batch_first else (X.transpose(0, 1), *[Y.transpose(0, 1)] * 2)
    masks = {"key_padding_mask": hidden, "attn_mask": masked}
    with torch.no_grad():
        plain, expected = layer(*inputs, **masks, average_attn_weights=False)
        with watch(layer) as seen:
            output, _ = layer(*inputs, **masks, average_attn_weights=False)
    assert torch.equal(output, plain)
    torch.testing.assert_close(seen[""][0].dense(), expected)


def test_a_call_of_the_function_is_seen():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2)

    def run(query, keys):
        return functional.multi_head_attention_forward(
            query, keys, keys, 8, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
            layer.out_proj.weight, layer.out_proj.bias, need_weights=False,
        )[0]  # fmt: skip

    expected = layer(X, Y[:, :6], Y[:, :6], average_attn_weights=False)[1]
    torch.testing.assert_close(see(run, X, Y[:, :6]).dense(), expected.detach())


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor is True")
def test_the_fast_path_of_an_encoder_keeps_its_bits(nested, norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[0, 4:] = True
    with torch.no_grad():
        plain = model(X, src_key_padding_mask=padding)
        with watch(model, "dense") as seen:
            output = model(X, src_key_padding_mask=padding)
    assert torch.equal(output, plain)
    with watch(model, "dense") as slow:  # with gradients, torch calls the modules one by one
        model(X, src_key_padding_mask=padding)
    assert list(seen) == list(slow) == ["layers.0.self_attn", "layers.1.self_attn"]
    for path in seen:
        torch.testing.assert_close(seen[path][0][1:], slow[path][0][1:])
        torch.testing.assert_close(seen[path][0][0, :, :4], slow[path][0][0, :, :4])


class HandWritten(nn.Module):
    """The attention of a small GPT, as one writes it by hand."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.drop = nn.Dropout(dropout)
        self.kept = None

    def forward(self, x):
        batch, length, width = x.shape
        query, keys, values = (
            part.view(batch, length, 2, 4).transpose(1, 2) for part in self.project(x).split(width, 2)
        )
        scores = query @ keys.transpose(-2, -1) / 2
        scores = scores.masked_fill(torch.ones(length, length).tril() == 0, float("-inf"))
        self.kept = functional.softmax(scores, dim=-1)
        mixed = self.drop(self.kept) @ values
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


@pytest.mark.parametrize("training", [False, True])
def test_a_gpt_written_by_hand_is_seen_before_dropout(training):
    torch.manual_seed(0)
    model = nn.Sequential(HandWritten(0.5), HandWritten(0.5)).train(training)
    torch.manual_seed(1)
    plain = model(X)
    torch.manual_seed(1)
    with watch(model) as seen:
        output = model(X)
    assert torch.equal(output, plain)
    for path, layer in (("0", model[0]), ("1", model[1])):
        torch.testing.assert_close(seen[path][0].dense(), layer.kept.detach(), rtol=0, atol=0)


def log_softmax(scores):
    return functional.log_softmax(scores, -1).exp()


def log_softmax_in_place(scores):
    return functional.log_softmax(scores, -1).exp_()


def softmin(scores):
    return functional.softmin(-scores, dim=-1)


def log_sum(scores):
    return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))


def exponentials(scores):
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


def exponentials_in_place(scores):
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    powers /= powers.sum((-1,), keepdim=True)
    return powers


WRITTEN = {
    "matmul": lambda w, v: w @ v,
    "bmm": lambda w, v: torch.bmm(w.reshape(6, 5, 7), v.reshape(6, 7, 4)),
    "einsum": lambda w, v: torch.einsum("bhij,bhjd->bihd", w, v),
    "dots": lambda w, v: torch.einsum("...ij,...jd->...id", w, v),
    "transposed": lambda w, v: v.mT @ w.transpose(-1, -2),
    "after a cast": lambda w, v: w.to(torch.float64) @ v.double(),
    "in a list": lambda w, v: torch.einsum("bhij,bhjd->bhid", [w, v]),
}


SOFTMAXES = [
    lambda s: s.softmax(-1),
    lambda s: torch.softmax(s, dim=3),
    log_softmax,
    log_softmax_in_place,
    softmin,
    log_sum,
    exponentials,
    exponentials_in_place,
]


@pytest.mark.parametrize("softmax", SOFTMAXES)
@pytest.mark.parametrize("way", WRITTEN)
def test_a_softmax_contracted_with_values_is_attention(way, softmax):
    scores, values = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)
    call = see(lambda: WRITTEN[way](softmax(scores), values))
    torch.testing.assert_close(call.dense(), scores.softmax(-1))


UNBATCHED = {
    "matmul": lambda w, v: w @ v,
    "mm": torch.mm,
    "addmm": lambda w, v: torch.addmm(v[:1], w, v),
    "einsum": lambda w, v: torch.einsum("ij,jd->id", w, v),
    "einsum without its result": lambda w, v: torch.einsum("ij, jd", w, v),
    "tensordot": lambda w, v: torch.tensordot(w, v, dims=([-1], [0])),
    "tensordot of one axis": lambda w, v: torch.tensordot(w, v, 1),
    "transposed": lambda w, v: v.T @ w.T,
}


@pytest.mark.parametrize("way", UNBATCHED)
def test_a_single_sequence_without_a_batch_is_seen(way):
    scores, values = torch.randn(5, 7), torch.randn(7, 4)
    call = see(lambda: UNBATCHED[way](scores.softmax(-1), values))
    torch.testing.assert_close(call.dense(), scores.softmax(-1))


def test_values_broadcast_over_the_queries_are_seen():
    scores, values = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)
    call = see(lambda: (scores.softmax(-1)[..., None] * values[:, :, None]).sum(-2))
    torch.testing.assert_close(call.dense(), scores.softmax(-1))


def test_exponentials_set_to_zero_are_hidden_keys():
    scores, values, visible = torch.randn(2, 5, 7), torch.randn(2, 7, 4), torch.rand(5, 7) < 0.7

    def assign():
        powers = scores.exp() * visible
        return (powers / powers.sum(-1, keepdim=True)) @ values

    torch.testing.assert_close(see(assign).dense(), scores.masked_fill(~visible, -torch.inf).softmax(-1))


def test_changed_weights_are_those_that_were_used():
    scores, values, visible = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4), torch.rand(5, 7) < 0.7
    call = see(lambda: (scores.softmax(-1) * visible) @ values)
    torch.testing.assert_close(call.dense(), scores.softmax(-1) * visible)
    sinks = see(lambda: torch.cat([scores, scores[..., :1]], -1).softmax(-1)[..., :-1] @ values)
    torch.testing.assert_close(sinks.dense(), torch.cat([scores, scores[..., :1]], -1).softmax(-1)[..., :-1])


def test_a_difference_of_weights_is_what_was_used():
    scores, values = torch.randn(2, 2, 3, 5, 7), torch.randn(2, 3, 7, 4)
    call = see(lambda: (scores[0].softmax(-1) - 0.3 * scores[1].softmax(-1)) @ values)
    torch.testing.assert_close(call.dense(), scores[0].softmax(-1) - 0.3 * scores[1].softmax(-1))


def test_heads_mixed_after_the_softmax_are_those_that_were_used():
    torch.manual_seed(0)
    scores, values, mix, conv = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4), nn.Linear(3, 3), nn.Conv2d(3, 3, 1)
    mixed = mix(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).detach()
    call = see(lambda: mix(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2) @ values)
    torch.testing.assert_close(call.dense(), mixed)
    torch.testing.assert_close(
        see(lambda: conv(scores.softmax(-1)) @ values).dense(), conv(scores.softmax(-1)).detach()
    )


def test_weights_over_another_axis_are_seen():
    scores, values = torch.randn(2, 7, 1), torch.randn(2, 7, 4)
    pooled = see(lambda: (scores.softmax(1) * values).sum(1))
    torch.testing.assert_close(pooled.dense(), scores.softmax(1).mT)
    turned = see(lambda: scores.softmax(1).transpose(1, 2) @ values)
    torch.testing.assert_close(turned.dense(), scores.softmax(1).mT)
    grouped = torch.randn(2, 5, 7)

    def assign():
        weights = grouped.softmax(-2)
        return (weights / (weights.sum(-1, keepdim=True) + 1)) @ values

    weights = grouped.softmax(-2)
    torch.testing.assert_close(see(assign).dense(), weights / (weights.sum(-1, keepdim=True) + 1))


def test_heads_after_queries_are_put_first():
    scores, values = torch.randn(2, 5, 3, 7), torch.randn(2, 3, 7, 4)
    call = see(lambda: scores.softmax(-1).transpose(1, 2) @ values)
    assert call.shape == (2, 3, 5, 7)


NO_ATTENTION = {
    "probabilities of words": lambda: torch.randn(2, 5, 9).softmax(-1) @ nn.Parameter(torch.randn(9, 4)),
    "an expert for each token": lambda: (torch.randn(6, 4).softmax(-1)[..., None] * torch.randn(6, 4, 8)).sum(1),
    "words of a table": lambda: torch.randn(5, 9).softmax(-1) @ nn.Parameter(torch.randn(4, 9)).T,
    "another axis": lambda: torch.randn(2, 5, 7).softmax(-1).transpose(1, 2) @ torch.randn(2, 5, 4),
}


@pytest.mark.parametrize("name", NO_ATTENTION)
def test_what_is_no_attention_is_not_recorded(name):
    model = Calls(NO_ATTENTION[name])
    with watch(model) as seen:
        model()
    assert len(seen) == 0


def test_keys_overwritten_later_raise_or_were_copied():
    query, cache = heads(), heads(queries=7, seed=1)
    model = Calls(lambda: functional.scaled_dot_product_attention(query, cache, cache))
    expected = torch.softmax(query @ cache.mT * 6**-0.5, -1)
    with watch(model) as seen, watch(model, "dense") as at_once:
        model()
        cache[:, :, 0] += 1  # from now on, memory that is written in place
    with pytest.raises(RegardError) as error:
        seen[""][0].dense()
    assert str(error.value) == (
        "weights: query, keys or mask were modified in place after the recorded call; use the weights before that, "
        'or watch with a reduction such as keep="top:8"'
    )
    torch.testing.assert_close(at_once[""][0], expected)
    with watch(model) as seen:
        model()
        written = torch.softmax(query @ cache.mT * 6**-0.5, -1)
        cache.zero_()
    torch.testing.assert_close(seen[""][0].dense(), written)


def test_inference_tensors_and_single_rows_are_taken_at_once():
    with torch.inference_mode():
        query, cache = heads() * 1, heads(queries=7, seed=1) * 1
        model = Calls(lambda query: functional.scaled_dot_product_attention(query, cache, cache))
        expected = torch.softmax(query @ cache.mT * 6**-0.5, -1)
        with watch(model) as seen:
            model(query)
            model(query[:, :, -1:])
            cache.zero_()
    torch.testing.assert_close(seen[""][0].dense(), expected)
    assert isinstance(seen[""][1], DenseWeights)
    torch.testing.assert_close(seen[""][1].dense(), expected[:, :, -1:])


def test_gradients_reach_query_and_keys():
    query, keys = heads().requires_grad_(), heads(queries=7, seed=1).requires_grad_()
    model = Calls(lambda: functional.scaled_dot_product_attention(query, keys, keys))
    with watch(model, grad=True) as seen:
        model()
    actual = torch.autograd.grad(seen[""][0].dense().square().sum(), (query, keys))
    expected = torch.autograd.grad(torch.softmax(query @ keys.mT * 6**-0.5, -1).square().sum(), (query, keys))
    torch.testing.assert_close(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("first", ["weights", "received"])
def test_products_of_recorded_weights_are_those_of_the_matrix(mask, groups, first):
    query, keys = heads(), heads(heads=groups, queries=5 if mask == "causal" else 7, seed=1)
    call = see(
        lambda: functional.scaled_dot_product_attention(query, keys, keys, **MASKS[mask], enable_gqa=groups == 2)
    )
    matrix = call.dense()
    (call.received if first == "received" else call.dense)()  # with and without the log-sum-exp at hand
    right, left = torch.randn(4, keys.shape[-2], 3), torch.randn(2, 1, 5, 2)
    torch.testing.assert_close(call @ right, matrix @ right)
    torch.testing.assert_close(call.mT @ left, matrix.mT @ left)
    assert not (call @ right).requires_grad


def test_products_of_recorded_weights_have_gradients_on_request():
    query, keys = heads().double().requires_grad_(), heads(heads=2, queries=7, seed=1).double()
    right, left = torch.randn(7, 3).double(), torch.randn(5, 3).double()
    model = Calls(lambda: functional.scaled_dot_product_attention(query, keys, keys, enable_gqa=True))
    with watch(model, grad=True) as seen:
        model()
    (call,) = seen[""]
    matrix = (query @ keys.repeat_interleave(2, 1).mT / 6**0.5).softmax(-1)
    for product, expected in ((call @ right, matrix @ right), (call.mT @ left, matrix.mT @ left)):
        found, wanted = (
            torch.autograd.grad(part.square().sum(), query, retain_graph=True)[0] for part in (product, expected)
        )
        torch.testing.assert_close(found, wanted)


def test_products_of_a_held_matrix_are_in_float32():
    query, keys = heads().bfloat16(), heads(queries=7, seed=1).bfloat16()
    call = see(lambda: (query @ keys.mT).softmax(-1) @ keys)
    factor = torch.randn(7, 3)
    torch.testing.assert_close(call @ factor, call.dense().float() @ factor)
    torch.testing.assert_close(call.mT @ factor[:5], call.dense().float().mT @ factor[:5])


def test_products_of_flex_attention_recompute_their_rows_in_backward():
    query, keys = heads(queries=300).requires_grad_(), heads(heads=2, queries=400, seed=1)
    call = FlexWeights(query, keys, 6**-0.5, lambda s, b, h, i, j: s + 0.01 * (j - i), None)
    right, left = torch.randn(400, 3), torch.randn(300, 3)
    scores = query @ keys.repeat_interleave(2, 1).mT / 6**0.5 + 0.01 * (torch.arange(400) - torch.arange(300)[:, None])
    matrix = scores.softmax(-1)
    for product, expected in ((call @ right, matrix @ right), (call.mT @ left, matrix.mT @ left)):
        torch.testing.assert_close(product, expected)
        found, wanted = (
            torch.autograd.grad(part.square().sum(), query, retain_graph=True)[0] for part in (product, expected)
        )
        torch.testing.assert_close(found, wanted)


def test_recorded_weights_are_saved(tmp_path):
    query, keys = heads(), heads(heads=2, queries=7, seed=1)
    call = see(lambda: functional.scaled_dot_product_attention(query, keys, keys, enable_gqa=True))
    call.save(tmp_path / "weights")
    torch.testing.assert_close(Weights.load(tmp_path / "weights").dense(), call.dense())


def test_flex_attention_is_seen():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    query, keys = heads(queries=20, width=16), heads(queries=20, width=16, seed=1)
    at = torch.arange(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        visible = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 20, 20, device="cpu")
        call = see(lambda: flex.flex_attention(query, keys, keys, lambda s, b, h, i, j: s + 0.1 * h * (j - i), visible))
    slopes = 0.1 * torch.arange(4)[:, None, None]
    scores = query @ keys.mT / 4 + slopes * (at - at[:, None])
    expected = scores.masked_fill(at > at[:, None], float("-inf")).softmax(-1)
    torch.testing.assert_close(call.dense(), expected)
    torch.testing.assert_close(call.entropy(), torch.special.entr(expected).sum(-1))


@pytest.fixture(scope="module")
def flash_attn():
    """A stand-in for the package: its operators, under their names."""

    @torch.library.custom_op("flash_attn::_flash_attn_forward", mutates_args=())  # type: ignore[untyped-decorator]
    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float, softmax_scale: float, causal: bool,
        window_size_left: int, window_size_right: int, softcap: float, alibi_slopes: torch.Tensor | None,
    ) -> torch.Tensor:  # fmt: skip
        return q.clone()

    @torch.library.custom_op("flash_attn::_flash_attn_varlen_forward", mutates_args=())  # type: ignore[untyped-decorator]
    def packed(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float, causal: bool,
    ) -> torch.Tensor:  # fmt: skip
        return q.clone()

    @torch.library.custom_op("flash_attn_3::_flash_attn_forward", mutates_args=())  # type: ignore[untyped-decorator]
    def third(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_new: torch.Tensor | None, out_: torch.Tensor | None,
        cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None, page_table: torch.Tensor | None,
        softmax_scale: float | None, causal: bool, window_size_left: int, window_size_right: int,
        attention_chunk: int, softcap: float,
    ) -> torch.Tensor:  # fmt: skip
        return q.clone()

    module = types.ModuleType("flash_attn")
    module.forward, module.packed, module.third = forward, packed, third
    sys.modules["flash_attn"] = module
    yield module
    del sys.modules["flash_attn"]


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("window", [(-1, -1), (2, 0)])
def test_flash_attention_is_seen(flash_attn, window, softcap):
    query, keys = heads(queries=5), heads(heads=2, queries=7, seed=1)
    call = see(
        lambda: flash_attn.forward(
            query.transpose(1, 2), keys.transpose(1, 2), keys.transpose(1, 2), 0.0, 0.4, True, *window, softcap, None
        )
    )
    scores = query @ keys.repeat_interleave(2, 1).mT * 0.4
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    gap = torch.arange(7) - torch.arange(5)[:, None] - 2
    visible = (gap <= 0) & (gap >= (-2 if window[0] > 0 else -9))
    torch.testing.assert_close(call.dense(), scores.masked_fill(~visible, float("-inf")).softmax(-1))


def test_packed_flash_attention_is_seen(flash_attn):
    query, ends = torch.randn(7, 4, 6), torch.tensor([0, 3, 7], dtype=torch.int32)
    call = see(lambda: flash_attn.packed(query, query, query, ends, ends, 4, 4, 0.0, 0.4, True))
    scores = query.transpose(0, 1) @ query.permute(1, 2, 0) * 0.4
    visible = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4)).bool().tril()
    torch.testing.assert_close(call.dense()[0], scores.masked_fill(~visible, float("-inf")).softmax(-1))


@pytest.mark.parametrize("packed", [False, True])
def test_flash_attention_3_is_seen(flash_attn, packed):
    query, ends = torch.randn(7, 4, 6), torch.tensor([0, 3, 7], dtype=torch.int32)
    given, ends = (query, ends) if packed else (query[None], None)
    call = see(lambda: flash_attn.third(given, given, given, None, None, ends, ends, None, 0.4, True, -1, -1, 0, 0.0))
    scores = query.transpose(0, 1) @ query.permute(1, 2, 0) * 0.4
    visible = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4)) if packed else torch.ones(7, 7)
    torch.testing.assert_close(call.dense()[0], scores.masked_fill(~visible.bool().tril(), float("-inf")).softmax(-1))


@pytest.mark.parametrize("others", [{"page_table": torch.zeros(1, 1)}, {"attention_chunk": 4}])
def test_flash_attention_that_cannot_be_recorded_is_reported(flash_attn, others):
    x = torch.randn(1, 7, 4, 6)
    given = dict.fromkeys(("k_new", "out_", "cu_seqlens_q", "cu_seqlens_k", "page_table")) | {
        "softmax_scale": 0.4, "causal": True, "window_size_left": -1, "window_size_right": -1, "attention_chunk": 0,
        "softcap": 0.0,
    }  # fmt: skip
    model = Calls(lambda: flash_attn.third(x, x, x, **given | others))
    with pytest.warns(UserWarning, match=next(iter(others))), watch(model) as seen:
        assert torch.equal(model(), x)
    assert len(seen) == 0
    (missed,) = seen.report().unseen
    assert missed.reason == f"it calls _flash_attn_forward with {next(iter(others))}, which is not recorded"


@pytest.mark.parametrize("way", ["logsumexp", "sigmoid"])
@pytest.mark.parametrize("keep", ["all", "received"])
def test_sinks_that_rescale_the_output_of_flex_attention_are_in_its_weights(way, keep):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    query, keys, values = (heads(queries=9, width=16, seed=seed) for seed in range(3))
    sinks = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    whole = flex.noop_mask
    block_mask = flex.create_block_mask(whole, None, None, 9, 9, device="cpu").as_tuple()

    def attend_with_sinks():
        output, lse, _ = flex.flex_attention_hop(query, keys, values, flex._identity, block_mask, 0.25, {})
        lse = (lse * math.log(2)).unsqueeze(-1)  # the operator's logarithm has base 2
        sink = sinks.view(1, -1, 1, 1).expand_as(lse)
        if way == "sigmoid":
            return output * torch.sigmoid(lse - sink)
        return output.contiguous() * torch.exp(lse - torch.logsumexp(torch.cat([lse, sink], -1), -1, keepdim=True))

    model = Calls(attend_with_sinks)
    with watch(model, keep=keep) as seen:
        output = model()
    scores = query @ keys.mT * 0.25
    logits = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(2, -1, 9, 1)], -1)
    expected = logits.softmax(-1)[..., :-1]
    torch.testing.assert_close(output, expected @ values)
    (call,) = seen[""]
    if keep == "received":
        torch.testing.assert_close(call, expected.sum(-2))
        return
    torch.testing.assert_close(call.dense(), expected)
    torch.testing.assert_close(call @ values, expected @ values)
    torch.testing.assert_close(call.mT @ query, expected.mT @ query)
    assert seen.report().seen[0].features == {"sinks": True}


@pytest.mark.parametrize("training", [False, True])
def test_nested_recordings_leave_torch_as_it_was(training):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2).train(training)
    with torch.no_grad(), watch(model) as outer, watch(model.layers[1]) as inner:
        model(X)
        assert torch._C._is_torch_function_enabled()
        model.layers[0].self_attn(X, Y, Y)
    assert torch._C._is_torch_function_enabled()
    assert {path: len(calls) for path, calls in outer.items()} == {"layers.0.self_attn": 2, "layers.1.self_attn": 1}
    assert {path: len(calls) for path, calls in inner.items()} == {"self_attn": 1}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_inside_leaves_torch_as_it_was(error):
    layer = nn.MultiheadAttention(8, 2)

    def interrupt(*_):
        raise error

    layer.out_proj.register_forward_pre_hook(interrupt)
    model = Calls(lambda: (layer(X, X, X), layer.out_proj(X)))
    model.layer = layer
    with pytest.raises(error), watch(model) as seen:
        model()
    with pytest.raises(error), watch(layer, keep=interrupt) as refused:
        layer(X, X, X)
    assert torch._C._is_torch_function_enabled()
    assert seen._mode.frame is refused._mode.frame is None


def test_a_module_that_returns_nothing_is_seen():
    scores, values = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)
    store = []
    model = Calls(lambda: store.append(scores.softmax(-1) @ values))
    try:
        raise ValueError
    except ValueError:  # an error that is handled while the model runs is not the model's
        with watch(model) as seen:
            model()
    torch.testing.assert_close(seen[""][0].dense(), scores.softmax(-1))


def write_item(weights):
    weights[..., 0] = 7.0


WRITES = {
    "zero_": lambda w: w.zero_(),
    "a list": lambda w: torch._foreach_zero_([w]),
    "a view": lambda w: w.view(6, 5, 7)[0].mul_(3),
    "an item": write_item,
    "dropout": lambda w: functional.dropout(w, 0.5, training=True, inplace=True),
    "the next softmax": lambda w: torch.softmax(w * 5, -1, out=w),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_weights_overwritten_after_use_were_copied(write, inference):
    scores, values = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)

    def run():
        weights = scores.softmax(-1)
        context = weights @ values
        WRITES[write](weights)
        return context

    with torch.inference_mode(inference), torch.random.fork_rng():
        call = see(run)
    torch.testing.assert_close(call.dense(), scores.softmax(-1))


def test_weights_overwritten_unseen_are_reported():
    scores, values = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)

    def run():
        weights = scores.softmax(-1)
        context = weights @ values
        torch.ops.aten.zero_.default(weights)
        return context

    model = Calls(run)
    with watch(model) as seen:
        model()
    assert len(seen) == 0
    assert "(model): its weights were overwritten in place before they could be kept" in str(seen.report())


@pytest.mark.parametrize("keep", ["dense", "top:2"])
def test_a_gradient_of_a_function_of_parameters_is_unchanged(keep):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2)
    parameters = dict(layer.named_parameters())
    gradient = torch.func.grad(lambda given: torch.func.functional_call(layer, given, (X, X, X))[0].sum())
    expected = gradient(parameters)
    with watch(layer, keep) as seen:
        actual = gradient(parameters)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert len(seen[""]) == 1


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_padded(layout):
    parts = [torch.randn(3, 2, 8), torch.randn(5, 2, 8)]
    nested = torch.nested.nested_tensor(parts, layout=layout).transpose(1, 2)
    nested = nested if layout is torch.jagged else nested.contiguous()
    with torch.no_grad(), watch(Calls(functional.scaled_dot_product_attention)) as seen:
        seen._model(nested, nested, nested)
    expected = torch.zeros(2, 2, 5, 5)
    for sequence, part in zip(expected, parts, strict=True):
        length = len(part)
        sequence[:, :length, :length] = torch.softmax(part.transpose(0, 1) @ part.permute(1, 2, 0) * 8**-0.5, -1)
    torch.testing.assert_close(seen[""][0].dense(), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_sequences_of_torch_see_no_padding():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    parts = [X[0, :4], X[1]]
    nested = torch.nested.nested_tensor(parts)
    with torch.no_grad():
        plain = layer(nested, nested, nested, need_weights=False)[0]
        with watch(layer) as seen:
            output = layer(nested, nested, nested, need_weights=False)[0]
        assert all(map(torch.equal, output.unbind(), plain.unbind()))
        expected = torch.zeros(2, 2, 6, 6)
        for sequence, part in zip(expected, parts, strict=True):
            sequence[:, : len(part), : len(part)] = layer(part, part, part, average_attn_weights=False)[1]
    torch.testing.assert_close(seen[""][0].dense(), expected)


@pytest.mark.parametrize("keep", ["top:2", "received"])
def test_no_matrix_outlives_its_layer(keep):
    references = []

    def run(x):
        assert all(reference() is None for reference in references)
        weights = (x @ x.mT).softmax(-1)
        references.append(weakref.ref(weights))
        return weights @ x

    model = nn.Sequential(*[Calls(run) for _ in range(3)])
    with torch.no_grad(), watch(model, keep) as seen:
        model(X)
    assert len(references) == len(seen) == 3


class Typed(torch.Tensor):
    """A tensor type of its own."""


class CountCalls(torch.overrides.TorchFunctionMode):
    """Counts the functions of torch that are called."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_tensor_types_and_modes_of_others_are_respected():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2).eval()
    with torch.no_grad(), CountCalls() as plain:
        layer(X, X, X)
    with torch.no_grad(), CountCalls() as around, watch(layer) as seen, CountCalls() as inside:
        layer(X, X, X)
    assert around.calls >= plain.calls
    assert inside.calls >= plain.calls > 0
    assert len(seen[""]) == 1
    layer.out_proj.weight = nn.Parameter(layer.out_proj.weight.detach().as_subclass(Typed))
    with watch(layer) as seen:
        assert isinstance(layer(X, X, X)[0], Typed)
    assert len(seen[""]) == 1
