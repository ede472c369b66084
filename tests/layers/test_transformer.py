import math

import jaxtyping
import pytest
import torch
from torch import nn

from regard import RegardError, causal, lengths
from regard.layers.feed_forward import ACTIVATIONS, FeedForward
from regard.layers.transformer import LayerConfig, TransformerLayer, TransformerStack


def test_feed_forward_follows_the_formula():
    layer = FeedForward(1, 2, activation="relu")
    with torch.no_grad():
        layer.wider.weight.copy_(torch.tensor([[1.0], [-2.0]]))
        layer.wider.bias.copy_(torch.tensor([1.0, 0.0]))
        layer.back.weight.copy_(torch.tensor([[3.0, 5.0]]))
        layer.back.bias.fill_(7.0)
    x = torch.tensor([[2.0], [-2.0]])  # relu: (3, 0) and (0, 4)
    torch.testing.assert_close(layer(x), torch.tensor([[16.0], [27.0]]))
    with pytest.raises(RegardError) as error:
        FeedForward(1, 2, activation="gleu")
    assert str(error.value) == 'unknown activation "gleu"; did you mean "gelu"?'


def test_gelu_has_the_two_forms_it_was_published_in():
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    exact = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.tolist()]
    near = [v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2 for v in x.tolist()]
    torch.testing.assert_close(ACTIVATIONS["gelu"](x), torch.tensor(exact, dtype=torch.float64))
    torch.testing.assert_close(ACTIVATIONS["gelu-tanh"](x), torch.tensor(near, dtype=torch.float64))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_stack_without_a_source_reads_on_from_its_memory(norm):
    torch.manual_seed(0)
    stack = TransformerStack(LayerConfig(width=16, heads=2, norm=norm, activation="gelu"), 2).double().eval()
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    with torch.no_grad():
        whole = stack(x, visible=causal())
        memory = stack.new_memory(3, 5)
        steps = [stack.step(x[:, position : position + 1], memory) for position in range(5)]
        memory = stack.new_memory(3, 5)
        some = [stack.step(part, memory) for part in x.split([2, 2, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    torch.testing.assert_close(torch.cat(some, 1), whole)
    assert isinstance(stack.norm, nn.LayerNorm if norm == "pre" else nn.Identity)


def test_rows_that_share_a_source_see_what_each_would_see_alone():
    torch.manual_seed(0)
    layer = TransformerLayer(LayerConfig(width=16, heads=2, dropout=0.0), cross=True)
    x, source, visible = torch.randn(6, 4, 16), torch.randn(2, 5, 16), torch.tensor([5, 3])
    output = layer(x, source, source_visible=lengths(visible))
    expected = layer(x, source.repeat_interleave(3, 0), source_visible=lengths(visible.repeat_interleave(3)))
    torch.testing.assert_close(output, expected)


def test_without_bias_nothing_has_one():
    stack = TransformerStack(LayerConfig(width=16, heads=2, norm="pre", bias=False), 1, cross=True)
    assert not [name for name, _ in stack.named_parameters() if name.endswith("bias")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"heads": -1}, "heads must be at least 1, got -1"),
        ({"feed_forward": 0}, "feed_forward must be at least 1, got 0"),
        ({"width": 10, "heads": 4}, "width must be divisible by heads, got 10 and 4"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout must be at least 0 and below 1, got -0.1"),
        ({"score": "scaled"}, 'unknown score "scaled"; did you mean "scaled_dot"?'),
        ({"activation": "gleu"}, 'unknown activation "gleu"; did you mean "gelu"?'),
        ({"norm": "before"}, 'unknown norm "before"; choose from post, pre'),
    ],
)
def test_settings_that_do_not_fit_are_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        LayerConfig(**settings)
    assert str(error.value) == message


def test_heads_may_have_another_width_and_scores_their_settings():
    config = LayerConfig(width=6, heads=4, head_width=5, score="reduced_rank", score_rank=2)
    attention = TransformerLayer(config).attention
    assert (attention.query.weight.shape, attention.output.weight.shape) == ((20, 6), (6, 20))
    assert attention.score.query_weight.shape == (4, 2, 5)
    with pytest.raises(RegardError) as raised:
        LayerConfig(width=6, heads=4, head_width=0)
    assert str(raised.value) == "head_width must be at least 1, got 0"
