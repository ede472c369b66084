import contextlib
import subprocess
import sys
import threading

import jaxtyping
import pytest
import torch
from torch import nn

from regard import RegardError, Weights, attend, causal, watch
from regard.attention import Additive, DenseWeights
from regard.attention.analysis import induction, previous, sink, span
from regard.attention.watch import is_watching
from regard.batch import Batch
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy
from regard.layers import MultiHeadAttention
from regard.layers.lengths import SequenceLengths
from regard.models.transformer import Transformer, TransformerConfig


class Mine(nn.Module):
    """A user's own module that calls attend."""

    def forward(self, x):
        return attend(x, x, x, visible=causal())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([MultiHeadAttention(8, 2), MultiHeadAttention(8, 2, score="additive")])
        self.last = Mine()

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.last(x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))


def test_every_call_is_seen_by_module_path(model):
    with watch(model) as seen:
        model(X)
        model(X[:1])
    assert {path: len(calls) for path, calls in seen.items()} == {"layers.0": 2, "layers.1": 2, "last": 2}
    assert [call.shape for call in seen["layers.0"]] == [(3, 2, 5, 5), (1, 2, 5, 5)]
    direct = model.layers[0](X, return_weights=True)[1]
    torch.testing.assert_close(seen["layers.0"][0].dense(), direct.dense().detach())
    assert repr(seen) == "AttentionRecording({'layers.0': 2, 'layers.1': 2, 'last': 2})"


@pytest.mark.parametrize("keep", ["top:2", "received", "entropy", "argmax", "dense"])
def test_what_is_kept_is_what_was_asked_for(model, keep):
    with watch(model, keep) as seen, watch(model) as everything:
        model(X)
    for path, (kept,) in seen.items():
        (weights,) = everything[path]
        expected = weights.dense() if keep == "dense" else weights.reduce(keep)[0]
        torch.testing.assert_close(kept, expected)


TOKENS = torch.tensor([[1, 2, 1, 2, 1], [0, 0, 0, 0, 0], [3, 4, 5, 3, 4]])


@pytest.mark.parametrize(
    "keep", ["sink", "sink:2", span(1, 3), span(-2), "previous", previous(), induction(TOKENS)], ids=str
)
def test_measures_of_queries_are_kept(model, keep):
    with watch(model, keep) as seen, watch(model) as everything:
        model(X)
    measure = {"sink": sink(), "sink:2": sink(2), "previous": previous()}.get(keep, keep)
    assert len(seen) == 3
    for path, (kept,) in seen.items():
        (weights,) = everything[path]
        torch.testing.assert_close(kept, measure(weights), equal_nan=True)
        assert not kept.requires_grad


def test_several_results_are_kept_at_once(model):
    names = ["top:2", "sink", "received", "entropy", "all", lambda weights: weights.shape, "received"]
    with watch(model, names) as seen, watch(model) as everything:
        model(X)
    for path, (kept,) in seen.items():
        (weights,) = everything[path]
        expected = weights.reduce("top:2", "received", "entropy")
        torch.testing.assert_close((kept[0], kept[2], kept[3]), expected)
        torch.testing.assert_close(kept[1], sink()(weights))
        assert torch.equal(kept[4].dense(), weights.dense())
        assert kept[5] == weights.shape
        assert torch.equal(kept[6], kept[2])


def test_a_loss_on_the_attention_to_a_span_trains(model):
    with watch(model, span(0, 2), grad=True) as seen:
        model(X)
    seen["layers.0"][0].square().sum().backward()
    assert model.layers[0].query.weight.grad.any()


def test_a_function_keeps_what_it_returns(model):
    with watch(model, lambda weights: weights.shape) as seen:
        model(X)
    assert seen["last"] == [(3, 5, 5)]


def test_gradients_are_kept_on_request(model):
    with watch(model, grad=True) as seen:
        model(X)
    assert seen["layers.1"][0].dense().requires_grad
    with watch(model, "dense", grad=True) as seen:
        model(X)
    seen["layers.0"][0][..., 0].sum().backward()
    assert model.layers[0].query.weight.grad is not None
    with watch(model, "dense") as seen:
        model(X)
    assert not seen["layers.0"][0].requires_grad


def test_a_training_step_is_seen_and_kept(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model) as seen:
        for _ in range(2):
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    first, second = seen["layers.1"]
    assert not torch.equal(first.dense(), second.dense())  # each is of its own step


def test_nothing_is_left_behind(model):
    assert not is_watching()
    with contextlib.suppress(ZeroDivisionError), watch(model):
        assert is_watching()
        model(X)
        raise ZeroDivisionError
    assert not is_watching()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_exception_inside_the_model_leaves_the_paths_right(model):
    with watch(model) as seen:
        with pytest.raises(RegardError):
            model(torch.randn(3, 5, 7))
        model(X)
    assert list(seen) == ["layers.0", "layers.1", "last"]


def test_two_that_keep_tensors_watch_one_model(model):
    with watch(model, "dense") as one, watch(model, "dense") as other:
        model(X)
    torch.testing.assert_close(one["last"], other["last"])


def test_watching_inside_watching(model):
    with watch(model) as outer:
        model(X)
        with watch(model.layers[0], "entropy") as inner:
            model(X)
        model(X)
    assert len(outer["layers.0"]) == 3
    assert list(inner) == [""]
    assert inner[""][0].shape == (3, 2, 5)


def test_each_thread_sees_its_own_calls(model):
    sizes = {}
    barrier = threading.Barrier(2)

    def run(size):
        with watch(model) as seen:
            barrier.wait()
            for _ in range(5):
                model(X[:size])
            barrier.wait()
        sizes[size] = [call.shape[0] for path in seen for call in seen[path]]

    threads = [threading.Thread(target=run, args=(size,)) for size in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == {1: [1] * 15, 2: [2] * 15}


def test_a_call_outside_the_model_is_not_seen(model):
    with watch(model.layers[0]) as seen:
        attend(X, X, X)
        model.last(X)
    assert len(seen) == 0
    with pytest.raises(KeyError, match="no attention recorded at 'last'; recorded paths: none"):
        seen["last"]


def test_weights_from_a_cache_stay_what_they_were(model):
    layer = model.layers[0]
    with torch.no_grad(), watch(layer) as seen:
        cache = layer.new_cache(3, capacity=5)
        for step in range(5):
            layer(X[:, step : step + 1], cache=cache, visible=causal())
        whole = layer(X, visible=causal(), return_weights=True)[1].dense()
    for step, weights in enumerate(seen[""][:5]):
        assert isinstance(weights, Weights)
        torch.testing.assert_close(weights.dense()[..., 0, :], whole[..., step, : step + 1])


def test_a_reduction_has_no_gradient_to_keep(model):
    with pytest.raises(RegardError) as error, watch(model, "entropy", grad=True):
        pass
    assert str(error.value) == 'watch: grad=True cannot be combined with keep="entropy"; pass keep="all" or "dense"'


def test_a_wrong_name_is_said_before_the_run(model):
    with (
        pytest.raises(RegardError, match='unknown reduction "entropies"; did you mean "entropy"'),
        watch(model, "entropies"),
    ):
        pass


def test_all_that_can_be_kept_is_named(model):
    with pytest.raises(RegardError) as error, watch(model, "mean"):
        pass
    assert str(error.value) == (
        'unknown reduction "mean"; choose from all, argmax, dense, entropy, previous, received, sink, top:8'
    )


def test_what_cannot_be_kept_is_said(model, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    for keep, message in (
        (3, "watch: keep must be a name, a function or a tuple of them, got int"),
        ((), "watch: keep must name at least one result, got none"),
        (("received", "sinks"), 'unknown reduction "sinks"; did you mean "sink"?'),
        ("sink:0", "sink: expected a positive number of tokens, got 0"),
    ):
        with pytest.raises(RegardError) as error, watch(model, keep):
            pass
        assert str(error.value) == message


def test_nothing_recorded_is_said():
    class LinearAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = nn.Linear(8, 8)

        def forward(self, x):
            return x @ (self.keys(x).mT @ x)

    model = nn.Sequential(LinearAttention())
    with (
        pytest.warns(UserWarning, match="no attention was recorded") as caught,
        watch(model) as seen,
    ):
        model(X)
    assert [str(warning.message) for warning in caught] == [
        "regard.watch: no attention was recorded; 0 (LinearAttention): linear attention: it has no softmax over keys"
    ]
    assert len(seen) == 0


def stepwise(layer, steps):
    """Causal attention, computed some rows at a time."""
    cache = layer.new_cache(3, capacity=5)
    for rows in steps:
        layer(X[:, rows], cache=cache, visible=causal())


@pytest.mark.parametrize("steps", [[slice(0, 1)], [slice(0, 3), slice(3, 4), slice(4, 5)], [slice(0, 2), slice(2, 5)]])
def test_steps_are_joined_to_what_one_call_sees(model, steps):
    layer, end = model.layers[0], steps[-1].stop
    whole = layer(X[:, :end], visible=causal(), return_weights=True)[1].dense().detach()
    with torch.no_grad(), watch(layer) as seen, watch(layer, "dense") as dense:
        stepwise(layer, steps)
    torch.testing.assert_close(seen.join_steps("").dense(), whole)
    torch.testing.assert_close(dense.join_steps(""), whole)


@pytest.mark.parametrize("keep", ["top:3", "received", "entropy", "argmax"])
def test_what_is_kept_of_steps_is_joined(model, keep):
    layer = model.layers[0]
    whole = layer(X, visible=causal(), return_weights=True)[1]
    with torch.no_grad(), watch(layer, keep) as seen:
        stepwise(layer, [slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 5)])
    torch.testing.assert_close(seen.join_steps(""), whole.reduce(keep)[0])


@pytest.mark.parametrize("keep", ["sink", span(1, 3), "previous"], ids=str)
def test_measures_of_steps_are_joined(model, keep):
    layer = model.layers[0]
    whole = layer(X, visible=causal(), return_weights=True)[1].dense().detach()
    with torch.no_grad(), watch(layer, (keep, "received")) as seen:
        stepwise(layer, [slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 5)])
    measured, received = seen.join_steps("")
    torch.testing.assert_close(received, whole.sum(-2))
    measure = {"sink": sink(), "previous": previous()}.get(keep, keep)
    torch.testing.assert_close(measured, measure(DenseWeights(whole)), equal_nan=True)


def test_of_a_cache_with_unused_slots_the_last_query_is_the_last_key_in_use():
    query, keys = torch.randn(2, 3, 2, 8), torch.randn(2, 3, 9, 8)
    visible = torch.arange(9) < torch.tensor([[5], [6]])  # slots 6 to 8 are unused

    class Decoder(nn.Module):
        def forward(self, query, visible):
            return nn.functional.scaled_dot_product_attention(query, keys, keys, attn_mask=visible)

    model = Decoder()
    with torch.no_grad(), watch(model, "previous") as seen:
        model(query[..., 1:, :], visible[1:])
        model(query, visible)
    first, second = ((query[..., row, None, :] @ keys[..., : 5 + row, :].mT / 8**0.5).softmax(-1) for row in (0, 1))
    torch.testing.assert_close(seen[""][0], second[..., 4])
    torch.testing.assert_close(seen[""][1], torch.cat([first[..., 3], second[..., 4]], -1))


def test_steps_that_look_at_one_source_are_joined(model):
    layer = model.layers[0]
    whole = layer(X[:, :3], X, return_weights=True)[1].dense().detach()
    with torch.no_grad(), watch(layer, "dense") as seen:
        for step in range(3):
            layer(X[:, step : step + 1], X)
    torch.testing.assert_close(seen.join_steps(""), whole)


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        (
            [X, X],
            "join_steps: 'layers.0': call 2 does not continue the previous one: 5 queries and keys up to 5 after keys "
            "up to 5; only greedy or sampled steps with a cache can be joined",
        ),
        (
            [X[:, :1], X[:2, :1]],
            "join_steps: 'layers.0': all calls must have the same batch shape, got (3, 2) and (2, 2) for call 2",
        ),
    ],
)
def test_calls_that_do_not_continue_each_other_are_not_joined(model, calls, error):
    with watch(model, "entropy") as seen:
        for call in calls:
            model(call)
    with pytest.raises(RegardError) as caught:
        seen.join_steps("layers.0")
    assert str(caught.value) == error


def test_what_a_function_kept_is_not_joined(model):
    with watch(model, lambda weights: weights.shape) as seen:
        model(X)
    with pytest.raises(RegardError) as error:
        seen.join_steps("last")
    assert str(error.value) == (
        'join_steps: \'last\': cannot join the results of a function; watch with keep="all" or "top:8"'
    )
    with pytest.raises(KeyError, match="no attention recorded at 'lost'"):
        seen.join_steps("lost")


def test_a_beam_of_our_own_is_not_joined():
    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = Transformer(TransformerConfig(source_vocab_size=9, target_vocab_size=9, **sizes)).eval()
    batch = Batch(torch.tensor([[5, 6, 7]]), SequenceLengths.of(torch.tensor([3]), "cpu"))
    with watch(model, "dense") as seen:
        greedy(model, batch, max_length=4)
    for path in seen:
        assert seen.join_steps(path).shape[:2] == (1, 2)
    with watch(model, "dense") as seen:
        beam_search(model, batch, width=2, max_length=4)
    decoder_paths = [path for path in seen if len(seen[path]) > 1]
    assert len(decoder_paths) == 2  # of the decoder
    with pytest.raises(RegardError) as error:
        seen.join_steps(decoder_paths[0])
    assert str(error.value) == (
        f"join_steps: {decoder_paths[0]!r}: beam search reordered the batch between calls, so rows belong to different "
        "hypotheses; watch one forced pass over the result instead"
    )


COMPILED = """
import warnings, torch
from regard import causal, watch
from regard.layers import MultiHeadAttention
torch.manual_seed(0)
model = torch.nn.Sequential(MultiHeadAttention(8, 2), MultiHeadAttention(8, 2, score="additive"))
x = torch.randn(3, 5, 8)
plain = model(x)
(expected,) = torch.autograd.grad(plain.sum(), model[0].keys.weight)
compiled = torch.compile(model, backend="eager")
torch.testing.assert_close(compiled(x), plain)
(gradient,) = torch.autograd.grad(compiled(x).sum(), model[0].keys.weight)
torch.testing.assert_close(gradient, expected)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with watch(compiled) as seen:
        torch.testing.assert_close(compiled(x), plain)
print(list(seen), [str(warning.message) for warning in caught])
"""


@pytest.mark.slow
def test_a_compiled_model_is_watched_uncompiled():  # in a new process: shape checks do not compile
    run = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "['0', '1'] ['regard.watch: the compiled model runs uncompiled while it is watched']\n"


FLEX = """
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from regard import RegardError, watch

offset = torch.zeros((), dtype=torch.long)

class Model(nn.Module):
    def forward(self, x):
        return flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: torch.where(j <= i + offset, s, -torch.inf))

x = torch.randn(1, 2, 16, 16)
with watch(Model()) as seen:
    seen._model(x)  # compiles for the first time in this process
expected = (x @ x.mT / 4).masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf).softmax(-1)
torch.testing.assert_close(seen[""][0].dense(), expected)
offset.add_(3)
try:
    seen[""][0].dense()
except RegardError as error:
    print(error)
"""


@pytest.mark.slow
def test_flex_attention_may_compile_first_while_watched():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FLEX], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("weights: query, keys or mask were modified in place after the recorded call;")


COMPILED_FLEX = """
import warnings, torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from regard import watch

compiled_flex = torch.compile(flex_attention, backend="eager")

class Model(nn.Module):
    def forward(self, x):
        return (compiled_flex if self.compiled else flex_attention)(x, x, x)

model, x = Model(), torch.randn(1, 2, 16, 16)
for model.compiled in (False, True):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with watch(model) as seen:
            model(x)
    texts = [str(warning.message) for warning in caught]
    print(len(seen), len(seen.report().notes), [text for text in texts if text.startswith("regard")])
"""


@pytest.mark.slow
def test_a_compiled_function_is_said_to_run_uncompiled():
    run = subprocess.run([sys.executable, "-c", COMPILED_FLEX], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    message = "compiled code ran uncompiled; its output differs from that of the compiled code by rounding"
    assert run.stdout == f"1 0 []\n1 1 ['regard.watch: {message}']\n"


def test_weights_of_a_watched_score_with_parameters_can_be_copied():
    torch.manual_seed(0)
    score = Additive(3, 3, 4)
    model = torch.nn.ModuleDict({"score": score})
    model.forward = lambda query, keys: attend(query, keys, keys, score=score)
    query, keys = torch.randn(2, 5, 3), torch.randn(2, 6, 3)
    with watch(model) as seen:
        model(query, keys)
        (weights,) = next(iter(seen.values()))
        copied = weights.clone()
    torch.testing.assert_close(copied.dense(), attend(query, keys, keys, score=score, return_weights=True)[1].dense())
