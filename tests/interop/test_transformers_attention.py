import pytest
import torch
from torch import nn

pytest.importorskip("transformers")
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from regard import RegardError, watch
from regard.interop.transformers_attention import regard_attention_forward


class Module(nn.Module):
    def __init__(self, is_causal=True, groups=1):
        super().__init__()
        self.is_causal, self.num_key_value_groups = is_causal, groups


def tensors(queries=5, keys=5, groups=1, width=6, heads=4):
    made = torch.Generator().manual_seed(0)
    shapes = (heads, queries, width), (heads // groups, keys, width), (heads // groups, keys, width)
    return [torch.randn(2, *shape, generator=made) for shape in shapes]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("given", [{}, {"is_causal": False}, {"is_causal": True}, {"scaling": 0.3}])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (1, 7)])
@pytest.mark.parametrize("masked", [None, "one for all heads", "each head", "added"])
def test_outputs_are_those_of_sdpa(masked, queries, keys, given, biased, groups):
    made = torch.Generator().manual_seed(1)
    mask = None
    if masked is not None:
        mask = torch.rand(2, 1 if masked == "one for all heads" else 4, queries, keys, generator=made) < 0.7
        mask[..., 0] = True
    if masked == "added":
        mask = torch.where(mask, 0.5, torch.finfo(torch.float32).min)
    bias = torch.randn(1, 4, queries, keys, generator=made) if biased else None
    module, inputs = Module(groups=groups), tensors(queries, keys, groups)
    actual, none = regard_attention_forward(module, *inputs, mask, position_bias=bias, **given)
    expected, _ = sdpa_attention_forward(module, *inputs, mask, position_bias=bias, **given)
    assert none is None
    torch.testing.assert_close(actual, expected)


def test_a_module_that_does_not_say_so_is_causal():  # as in SDPA
    module, inputs = Module(), tensors()
    del module.is_causal
    torch.testing.assert_close(
        regard_attention_forward(module, *inputs, None)[0], sdpa_attention_forward(module, *inputs, None)[0]
    )


def test_what_says_nothing_is_taken():
    regard_attention_forward(
        Module(), *tensors(), None, softcap=None, output_attentions=True, sliding_window=3, s_aux=None, new=False
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [("softcap", '"softcap" (capped scores)'), ("s_aux", '"s_aux" (sinks)'), ("indices", '"indices"')],
)
def test_what_is_not_known_is_refused_by_name(name, shown):
    with pytest.raises(RegardError) as error:
        regard_attention_forward(Module(), *tensors(), None, **{name: torch.ones(4)})
    assert str(error.value) == (
        f"watch: Module passes {shown} to its attention, which is not supported; load the model with "
        'attn_implementation="eager"'
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_dropout_leaves_the_weights_as_they_are(groups):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Module(groups=groups)

        def forward(self, dropout):
            return regard_attention_forward(self.part, *tensors(groups=groups), None, dropout=dropout)[0]

    model = Model()
    with watch(model, "dense") as seen:
        torch.manual_seed(0)
        assert not torch.allclose(model(0.5), model(0.0))
    first, second = seen["part"]
    torch.testing.assert_close(first, second)
    query, keys, _ = tensors(groups=groups)
    scores = query @ keys.repeat_interleave(groups, 1).mT / 6**0.5
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(second, scores.masked_fill(future, -torch.inf).softmax(-1))
