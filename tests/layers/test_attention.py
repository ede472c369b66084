import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn

from regard import RegardError, attend, causal, lengths
from regard.attention.scores import SCORES, Additive
from regard.layers import MultiHeadAttention
from regard.layers.positions import PositionalEncoding


def torch_twin(layer, **widths):
    """torch's module with the same parameters."""
    twin = nn.MultiheadAttention(layer.output.out_features, layer.heads, batch_first=True, **widths).double()
    with torch.no_grad():
        if widths:
            twin.q_proj_weight.copy_(layer.query.weight)
            twin.k_proj_weight.copy_(layer.keys.weight)
            twin.v_proj_weight.copy_(layer.values.weight)
        else:
            twin.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.keys.weight, layer.values.weight]))
        for part in (layer.query, layer.keys, layer.values):
            nn.init.normal_(part.bias)
        twin.in_proj_bias.copy_(torch.cat([layer.query.bias, layer.keys.bias, layer.values.bias]))
        twin.out_proj.load_state_dict(layer.output.state_dict())
    return twin


@pytest.mark.parametrize("widths", [{}, {"kdim": 10, "vdim": 14}], ids=["self", "cross"])
def test_it_equals_torchs_module(widths):
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, key_width=widths.get("kdim"), value_width=widths.get("vdim")).double()
    twin = torch_twin(layer, **widths)
    query = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 7, 10, dtype=torch.float64) if widths else query
    values = torch.randn(2, 7, 14, dtype=torch.float64) if widths else query
    output, weights = layer(query, keys, values, return_weights=True)
    expected_output, matrix = twin(query, keys, values, average_attn_weights=False)
    torch.testing.assert_close(output, expected_output)
    torch.testing.assert_close(weights.dense(), matrix)
    target = torch.randn_like(output)
    gradients = torch.autograd.grad(
        (output * target).sum(), [query, *layer.query.parameters(), *layer.values.parameters(), layer.output.weight]
    )
    inputs = [query, twin.q_proj_weight, twin.v_proj_weight] if widths else [query, twin.in_proj_weight]
    expected = torch.autograd.grad((expected_output * target).sum(), [*inputs, twin.in_proj_bias, twin.out_proj.weight])
    torch.testing.assert_close(gradients[0], expected[0])
    torch.testing.assert_close(gradients[1], expected[1][:12])
    torch.testing.assert_close(gradients[2], expected[-2][:12])
    torch.testing.assert_close(gradients[3], expected[2] if widths else expected[1][24:])
    torch.testing.assert_close(gradients[4], expected[-2][24:])
    torch.testing.assert_close(gradients[5], expected[-1])


def test_padding_and_causal_equal_torchs():
    layer = MultiHeadAttention(12, 3).double()
    twin = torch_twin(layer)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    expected_output, _ = twin(
        x, x, x, key_padding_mask=padding, attn_mask=torch.ones(5, 5).triu(1).bool(), need_weights=False
    )
    output = layer(x, visible=causal() & lengths(torch.tensor([5, 3])))
    torch.testing.assert_close(output, expected_output)
    torch.testing.assert_close(layer(x, visible=causal() & ~padding[:, None]), expected_output)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("groups", [None, 1, 2])
def test_any_score_with_grouped_heads(score, groups):
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4, score=score, groups=groups)
    x = torch.randn(2, 5, 16) / 8
    out, weights = layer(x, visible=lengths(torch.tensor([5, 2])), return_weights=True)
    assert out.shape == (2, 5, 16)
    assert weights.shape == ((2, 4, 5, 5) if groups is None else (2, groups, 4 // groups, 5, 5))
    assert not weights.dense()[1, ..., 2:].any()
    out.sum().backward()


def test_groups_serve_several_heads_with_one_key():
    layer = MultiHeadAttention(16, 4, groups=2)
    full = MultiHeadAttention(16, 4)
    full.query, full.output = layer.query, layer.output
    with torch.no_grad():
        for repeated, grouped in ((full.keys, layer.keys), (full.values, layer.values)):
            repeated.weight.copy_(grouped.weight.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1))
            repeated.bias.copy_(grouped.bias.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1))
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(layer(x), full(x))
    seen = torch.rand(3, 4, 5, 5) < 0.7
    bias = torch.randn(1, 4, 5, 5)
    torch.testing.assert_close(layer(x, visible=seen, bias=bias), full(x, visible=seen, bias=bias))


def test_projections_can_be_left_out_one_by_one():
    x = torch.randn(2, 5, 8)
    bare = MultiHeadAttention(8, 1, project=())
    bare.output = nn.Identity()
    torch.testing.assert_close(bare(x), torch.softmax(x @ x.mT / 8**0.5, -1) @ x)
    for name in ("query", "keys", "values"):
        layer = MultiHeadAttention(8, 2, project=[name])
        assert [part for part in ("query", "keys", "values") if isinstance(getattr(layer, part), nn.Linear)] == [name]
        assert layer(x).shape == (2, 5, 8)


def test_a_head_may_have_any_width():
    layer = MultiHeadAttention(10, 3, head_width=7)
    assert layer.output.weight.shape == (10, 21)
    assert layer(torch.randn(4, 10)).shape == (4, 10)


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "gaussian"])
@pytest.mark.parametrize("groups", [None, 2])
def test_a_cache_gives_what_the_whole_gives(score, groups):
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4, score=score, groups=groups).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    with torch.no_grad():
        whole, weights = layer(x, visible=causal(), return_weights=True)
        cache = layer.new_cache(2, capacity=6)
        addresses = set()
        for start, stop in ((0, 3), (3, 4), (4, 6)):  # several, one, several
            out, step_weights = layer(x[:, start:stop], cache=cache, visible=causal(), return_weights=True)
            torch.testing.assert_close(out, whole[:, start:stop])
            addresses.add(cache.keys.data_ptr())
            torch.testing.assert_close(step_weights.dense(), weights.dense()[..., start:stop, :stop])
        assert cache.length == 6
        assert len(addresses) == 1
        with pytest.raises(RegardError) as error:
            layer(x[:, :1], cache=cache)
        assert str(error.value) == "cache: 7 positions exceed the capacity of 6"


def test_a_call_that_is_refused_leaves_the_cache_alone():
    layer = MultiHeadAttention(8, 2)
    with torch.no_grad():
        cache = layer.new_cache(2, capacity=5)
        with pytest.raises(RegardError):
            layer(torch.randn(2, 1, 8), cache=cache, bias=torch.ones(9, 9))
        assert cache.length == 0
        with pytest.raises(RegardError) as error:
            layer(torch.randn(1, 1, 8), cache=cache)
    assert str(error.value) == "cache: expected (*batch, heads) (2, 2) and width 4, got (1, 2) and width 4"
    assert repr(cache) == "KeyValueCache(0 of 5 positions, shape=(2, 2, 5, 4))"


def test_a_source_is_projected_once():
    layer = MultiHeadAttention(8, 2)
    source, query = torch.randn(2, 7, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        memory = layer.remember(source)
        torch.testing.assert_close(layer(query, memory), layer(query, source))
        assert memory.length == 7


def test_a_source_of_nothing_gives_zero_but_a_cache_that_nobody_filled_is_said():
    layer, query = MultiHeadAttention(8, 2, bias=False), torch.randn(2, 3, 8)
    with torch.no_grad():
        assert not layer(query, layer.remember(torch.randn(2, 0, 8))).any()
        with pytest.raises(RegardError) as error:
            layer(query, layer.new_cache(2, capacity=4))
    assert str(error.value) == "MultiHeadAttention: keys is an empty cache; fill it with remember, or pass it as cache"


@pytest.mark.parametrize(
    ("batch", "capacity", "message"),
    [
        (2, -1, "cache: capacity must be an integer of at least 0, got -1"),
        (2, 1.5, "cache: capacity must be an integer of at least 0, got 1.5"),
        ("a", 3, "cache: batch must be an integer of at least 0, got 'a'"),
    ],
)
def test_a_cache_of_no_size_is_not_made(batch, capacity, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        MultiHeadAttention(8, 2).new_cache(batch, capacity=capacity)
    assert str(error.value) == message


def test_what_is_no_cache_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        MultiHeadAttention(8, 2)(torch.randn(2, 3, 8), cache=3)
    assert str(error.value) == "MultiHeadAttention: cache must come from new_cache, got int"


def test_a_cache_refuses_gradients():
    layer = MultiHeadAttention(8, 2)
    with pytest.raises(RegardError) as error:
        layer(torch.randn(2, 1, 8), cache=layer.new_cache(2, capacity=3))
    assert str(error.value) == "cache: cannot store gradients; use the cache under torch.no_grad()"


def test_a_cache_is_reordered_in_its_own_memory():
    layer, other = MultiHeadAttention(8, 2), torch.tensor([2, 0, 2])
    x, y = torch.randn(3, 4, 8), torch.randn(3, 1, 8)
    with torch.no_grad():
        cache = layer.new_cache(3, capacity=5)
        layer(x, cache=cache)
        address = cache.keys.data_ptr()
        cache.select(other)
        output = layer(y, cache=cache)
        assert cache.keys.data_ptr() == address
        torch.testing.assert_close(output, layer(y, torch.cat([x[other], y], 1)))
        with pytest.raises(RegardError) as error:
            cache.select(torch.tensor([0]))
    assert str(error.value) == "cache: expected 3 rows, got 1"


def test_a_cache_has_the_type_the_layer_works_in():
    layer, x = MultiHeadAttention(8, 2), torch.randn(3, 4, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        cache = layer.new_cache(3, capacity=4)
        assert cache.keys.dtype == torch.bfloat16
        torch.testing.assert_close(layer(x, cache=cache), layer(x))
        assert layer.double().new_cache(3, capacity=4).keys.dtype == torch.float64
    assert layer.new_cache(3, capacity=4, dtype=torch.float16).keys.dtype == torch.float16


@pytest.mark.parametrize("groups", [None, 2])
def test_a_turn_reaches_queries_and_keys_alone(groups):
    layer, x = MultiHeadAttention(16, 4, groups=groups), torch.randn(2, 5, 16)
    _, plain = layer(x, return_weights=True)
    out, half = layer(x, turn=lambda heads: heads / 2, return_weights=True)
    expected = torch.softmax(plain.dense().log() / 4, -1)  # a score of half a query and half a key is a quarter
    torch.testing.assert_close(half.dense(), expected)
    values = layer.values(x).unflatten(-1, (-1, 4)).transpose(1, 2)
    values = values.unsqueeze(2) if groups else values
    torch.testing.assert_close(out, layer.output((expected @ values).reshape(2, 4, 5, 4).transpose(1, 2).flatten(2)))


def test_queries_and_keys_of_two_sequences_turn_each_by_their_own_positions():
    layer = MultiHeadAttention(8, 2, key_width=6).double()
    x, source = torch.randn(3, 4, 8, dtype=torch.float64), torch.randn(3, 7, 6, dtype=torch.float64)
    turns = [PositionalEncoding("rotary", 8, head_width=4)(length, x).turn for length in (4, 7)]
    out, weights = layer(x, source, turn=turns[0], key_turn=turns[1], return_weights=True)
    speeds = np.array([1.0, 0.01])  # 10000^0 and 10000^(-2 / 4)

    def to_complex(projection, inputs):
        heads = projection(inputs).detach().numpy().reshape(3, -1, 2, 2, 2)  # batch, positions, heads, pairs, 2
        angles = np.arange(heads.shape[1])[:, None, None] * speeds
        return (heads[..., 0] + 1j * heads[..., 1]) * np.exp(1j * angles)

    query, keys = to_complex(layer.query, x), to_complex(layer.keys, source)
    scores = np.einsum("bqhp,bkhp->bhqk", query, keys.conj()).real / 2
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights.dense().detach().numpy(), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, layer.remember(source, turn=turns[1]), turn=turns[0]), out)


@torch.no_grad()
def test_the_keys_of_a_cache_and_of_self_attention_take_no_turn():
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    for keys, advice in (
        (None, "self-attention applies turn to the keys"),
        (layer.remember(x), "pass it to remember as turn"),
    ):
        with pytest.raises(RegardError) as error:
            layer(x, keys, key_turn=lambda heads: heads)
        assert str(error.value) == f"MultiHeadAttention: key_turn requires keys as a tensor; {advice}"


def test_dropout_is_for_training():
    layer = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(2, 5, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_a_score_may_be_a_module():
    score = Additive(4, 4, 6, heads=2)
    layer = MultiHeadAttention(8, 2, score=score)
    layer(torch.randn(2, 5, 8)).sum().backward()
    assert score.energy.grad is not None
    assert "score.energy" in dict(layer.named_parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 10, "heads": 0}, "MultiHeadAttention: heads must be a positive integer, got 0"),
        ({"width": 64, "heads": "8"}, "MultiHeadAttention: heads must be a positive integer, got '8'"),
        ({"width": 8.0, "heads": 2}, "MultiHeadAttention: width must be a positive integer, got 8.0"),
        (
            {"width": 8, "heads": 2, "key_width": 0},
            "MultiHeadAttention: key_width must be a positive integer, got 0",
        ),
        (
            {"width": 10, "heads": 3},
            "MultiHeadAttention: width must be divisible by heads, got 10 and 3; or set head_width",
        ),
        ({"width": 12, "heads": 3, "groups": 0}, "MultiHeadAttention: groups must be a positive integer, got 0"),
        ({"width": 12, "heads": 3, "groups": 2}, "MultiHeadAttention: heads must be divisible by groups, got 3 and 2"),
        (
            {"width": 8, "heads": 2, "project": ["key"]},
            'MultiHeadAttention: unknown "key" in project; choose from query, keys, values',
        ),
        (
            {"width": 8, "heads": 2, "key_width": 6, "project": ["query", "values"]},
            "MultiHeadAttention: keys without a projection must have width 8 (2 heads of 4), got 6",
        ),
        ({"width": 8, "heads": 2, "score": "addditive"}, 'unknown score "addditive"; did you mean "additive"?'),
        (
            {"width": 8, "heads": 2, "dropout": "a"},
            "MultiHeadAttention: dropout must be at least 0 and at most 1, got 'a'",
        ),
        (
            {"width": 8, "heads": 2, "dropout": 1.5},
            "MultiHeadAttention: dropout must be at least 0 and at most 1, got 1.5",
        ),
        (
            {"width": 8, "heads": 2, "normalizer": "softmin"},
            'unknown normalizer "softmin"; did you mean "softmax"?',
        ),
        (
            {"width": 8, "heads": 2, "score": "hard", "normalizer": "none"},
            'normalizer "none" cannot be combined with Hard, which gives the best key all the weight',
        ),
    ],
)
def test_what_does_not_fit_is_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        MultiHeadAttention(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"query": torch.zeros(2, 5, 7)},
            "MultiHeadAttention: query must be a tensor of shape (*batch, positions, 8), got (2, 5, 7)",
        ),
        (
            {"query": torch.zeros(2, 5, 8), "keys": torch.zeros(2, 5, 9)},
            "MultiHeadAttention: keys must be a tensor of shape (*batch, positions, 8), got (2, 5, 9)",
        ),
        (
            {"query": torch.zeros(2, 5, 8), "keys": torch.zeros(2, 5, 8).double()},
            "MultiHeadAttention: parameters are float32, but keys is float64; "
            "convert the module with .to(torch.float64)",
        ),
        (
            {"query": torch.zeros(2, 5, 8), "keys": torch.zeros(2, 5, 8).long()},
            "MultiHeadAttention: keys must have a float type, got int64",
        ),
        (
            {"query": torch.zeros(3, 5, 8), "bias": torch.zeros(4, 5, 5)},
            "bias must have shape (3, n, m), or with an axis for the heads (1 or 3, 4, n, m), got (4, 5, 5)",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        MultiHeadAttention(8, 4)(**settings)
    assert str(error.value) == message


def test_a_bias_may_differ_by_head():
    layer, x, bias = MultiHeadAttention(8, 4), torch.randn(3, 5, 8), torch.randn(1, 4, 5, 5)
    weights = layer(x, bias=bias, return_weights=True)[1].dense()
    plain = layer(x, return_weights=True)[1].dense()
    torch.testing.assert_close(weights, torch.softmax(plain.log() + bias, -1))


def test_a_layer_has_a_score_of_its_own():
    layer = MultiHeadAttention(8, 2, score="gaussian")
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)
    before = attend(query, keys, values, "gaussian")
    with torch.no_grad():
        layer.score.width.fill_(3.0)
    torch.testing.assert_close(attend(query, keys, values, "gaussian"), before, rtol=0, atol=0)
    assert MultiHeadAttention(8, 2, score="gaussian").score is not layer.score
