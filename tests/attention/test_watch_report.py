import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard import watch

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x):
        return functional.scaled_dot_product_attention(self.query.expand(len(x), -1, -1), x, x)


class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(8, 8)

    def forward(self, x):
        return x @ (self.keys(x).softmax(-1).mT @ x)


class Mixer(nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x)


class Mapped(nn.Module):
    def forward(self, x):
        return torch.vmap(lambda one: functional.scaled_dot_product_attention(one, one, one))(x)


class Gated(nn.Module):
    def forward(self, x):
        return (x[:, 0].softmax(-1)[..., None] * torch.ones(2, 8, 3)).sum(1)


def run_in_thread(run, *inputs):
    thread = threading.Thread(target=run, args=inputs)
    thread.start()
    thread.join()


class Threaded(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mixer = Mixer()

    def forward(self, x):
        run_in_thread(self.attention, x, x, x)
        return self.mixer(x)


class SampledAttention(nn.Module):
    def forward(self, x, weights):
        sampled = functional.grid_sample(x[:, None], torch.zeros(len(x), 5, 5, 2), align_corners=False)[:, 0]
        return weights @ sampled


class DeformableAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.weigh, self.sample = nn.Linear(8, 5), SampledAttention()

    def forward(self, x):
        return self.sample(x, self.weigh(x).softmax(-1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 4, batch_first=True)
        self.pool, self.linear, self.deformable = Pooling(), LinearAttention(), DeformableAttention()
        self.idle = nn.MultiheadAttention(8, 2)

    def forward(self, x, y):
        x = self.attention(x, x, x)[0]
        x = self.cross(x, y, y)[0]
        return self.pool(x), self.linear(x), self.deformable(x)


EXPECTED = """\
3 attentions recorded
path       module              kind     heads  how                                 calls  scores
attention  MultiheadAttention  self     2      lazy: multi_head_attention_forward  1
cross      MultiheadAttention  cross    4      lazy: multi_head_attention_forward  1
pool       Pooling             pooling  1      lazy: scaled_dot_product_attention  1

3 modules look like attention and were not recorded
linear      LinearAttention      the result of its softmax is not contracted with values over its axis
deformable  DeformableAttention  it samples values at learned positions (deformable attention): no softmax over keys
idle        MultiheadAttention   it did not run in this thread"""


def test_all_attention_is_reported_and_what_was_not_seen():
    with watch(Model()) as seen:
        seen._model(X, X[:, :3])
    report = seen.report()
    assert str(report) == EXPECTED
    record = report.record()
    assert [one["kind"] for one in record["seen"]] == ["self", "cross", "pooling"]
    assert [one["ran"] for one in record["unseen"]] == [True, True, False]


@pytest.mark.parametrize("kind", [LinearAttention, Mixer])  # found by its name, or by what it computes
def test_a_script_is_said_to_record_nothing(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.trace(kind(), X)
    reason = "TorchScript runs its own graph, which nothing can be recorded from"
    for part, path in ((model, "the model"), (nn.Sequential(model), "0")):
        with pytest.warns(UserWarning, match=f"no attention was recorded; {path} .*: {reason}"), watch(part) as seen:
            part(X)
        assert [one.reason for one in seen.report().unseen] == [reason]


def test_a_module_that_ran_in_another_thread_is_said():
    model = Threaded()
    with watch(model) as seen:
        model(X)
    report = seen.report()
    assert [(one.path, one.reason) for one in report.unseen] == [("attention", "it ran in another thread")]
    assert report.notes == (
        "modules ran in another thread, where nothing is recorded: watch in the thread that runs the model",
    )
    message = "no attention was recorded; attention .*: it ran in another thread"
    with pytest.warns(UserWarning, match=message), watch(model):
        run_in_thread(model, X)


NOTES = {
    Mapped: "0: attention or a softmax inside torch.vmap, which cannot be recorded",
    Gated: "0: its softmax weighs tensors elementwise, as a gate does or as pooling does; not recorded",
}


@pytest.mark.parametrize("kind", NOTES)
def test_what_may_be_attention_is_noted(kind):
    model = nn.Sequential(kind())
    plain = model(X)
    with watch(model) as seen:
        assert torch.equal(model(X), plain)
    assert len(seen) == 0
    assert seen.report().notes == (NOTES[kind],)


class Projected(nn.Module):
    """Multi-head attention whose parts are modules of their own."""

    def __init__(self):
        super().__init__()
        self.query, self.keys, self.attend = nn.Linear(8, 8), nn.Linear(8, 8), Written()

    def forward(self, query, key, value):
        return self.attend(self.query(query), self.keys(key), value)


class Written(nn.Module):
    def forward(self, q, k, v):
        return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("images", [(), (3,)])  # several sequences for each image have four axes
def test_the_kind_is_that_of_what_the_module_with_the_projections_was_given(images):
    model = nn.ModuleDict({"self": Projected(), "positions": Projected(), "cross": Projected()})
    model.forward = lambda x, y: (model["self"](x, x, x), model["positions"](x, x, x + 1), model["cross"](x, y, y))
    x = torch.randn(2, *images, 5, 8)
    for y in (torch.randn(2, *images, 5, 8), torch.randn(2, *images, 7, 8)):
        with watch(model) as seen:
            model(x, y)
        kinds = {one.path.partition(".")[0]: one.kind for one in seen.report().seen}
        assert kinds == {"self": "self", "positions": "self", "cross": "cross"}


def test_attention_outside_of_the_model_is_counted():
    model = Pooling()
    with watch(model) as seen:
        functional.scaled_dot_product_attention(X, X, X)
        model(X)
    assert seen.report().notes == (
        "1 calls of attention functions outside of the model's forward were not recorded; wrap them in a module",
    )


def test_what_is_special_to_scores_is_reported():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 40, "pad_token_id": 0}
    gemma = transformers.Gemma2Model(transformers.Gemma2Config(**sizes, sliding_window=4)).eval()
    oss = transformers.GptOssModel(transformers.GptOssConfig(**sizes, num_local_experts=4)).eval()
    for model, features in ((gemma, {"window": 4, "softcap": 50.0}), (oss, {"window": 128, "sinks": True})):
        with torch.no_grad(), watch(model) as seen:
            model(torch.arange(3, 12)[None])
        first, second = seen.report().seen
        assert (first.heads, first.groups, first.how, first.features) == (4, 2, "matrix", features)
        assert "window" not in second.features


def test_a_model_that_is_an_attention_has_a_name_for_its_path():
    with watch(Pooling()) as recording:
        recording._model(X)
    (row,) = recording.report().seen
    assert row.path == ""
    assert "(model)" in str(recording.report())
    assert recording["(model)"] == recording[""]
    with pytest.raises(KeyError, match=r"no attention recorded at 'foo'; recorded paths: \(model\)"):
        recording["foo"]
