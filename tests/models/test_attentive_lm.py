"""The attentive language model against its formulas, written out for each position of each text."""

import math

import pytest
import torch
from torch import nn

from regard import RegardError, watch
from regard.attention.scores import SCORES, find_scores_without_gradient
from regard.models.attentive_lm import AttentiveLm, AttentiveLmConfig

TOKENS = torch.tensor([[2, 5, 4, 9, 6, 6, 4, 5], [2, 7, 8, 4, 5, 1, 9, 9]])
CASES = {
    "as it comes": {},
    "nothing projected": {"project": (), "score": "dot", "composition": "concat", "cell": "rnn"},
    "without the current one": {"include_current": False, "score": "dot"},
    "window": {"window": 3, "layers": 2},
    "window without the current one": {"window": 3, "include_current": False, "composition": "sum", "tied": False},
    "only the current one": {"window": 1, "cell": "gru"},
    "heads": {"heads": 2, "window": 4, "composition": "gate", "project": ("keys",)},
    "additive": {"score": "additive", "heads": 2, "composition": "maxout", "cell": "gru", "learn_initial_state": True},
    "additive in a window": {"score": "additive", "window": 3, "include_current": False},
    "bilinear": {"score": "bilinear", "project": (), "window": 5},
    "words": {"memory": "words", "window": 4, "layers": 2},
    "words of a learned start": {
        "memory": "words",
        "learn_initial_state": True,
        "score": "additive",
        "composition": "sum",
    },
    "words without the current one": {
        "memory": "words",
        "include_current": False,
        "cell": "gru",
        "project": ("query",),
    },
    "words and heads": {"memory": "words", "heads": 2, "window": 3, "project": ("keys", "values"), "cell": "gru"},
    "epanechnikov": {"score": "epanechnikov", "window": 4},
    "a power of two": {"score": "epanechnikov", "score_power": 2.0},
    "another activation": {"score": "additive", "score_hidden": 3, "score_activation": "relu"},
    "rank": {"score": "reduced_rank", "score_rank": 2},
    "sigmoid cell": {"cell": "rnn-sigmoid", "layers": 2},
    "epanechnikov without the current one": {"score": "epanechnikov", "include_current": False, "project": ()},
}


def make(**settings):
    """A small model in float64, in which no parameter is zero and some keys are in reach of a kernel."""
    torch.manual_seed(6)
    sizes = {"vocab_size": 10, "embedding": 3, "hidden": 4, "dropout": 0.0}
    model = AttentiveLm(AttentiveLmConfig(**{**sizes, **settings})).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    if hasattr(model.attention.score, "width"):
        nn.init.constant_(model.attention.score.width, 1.5)
    return model


def embed(model, tokens):
    return model.vocabulary.embedding.weight[tokens] * (math.sqrt(model.config.embedding) if model.config.tied else 1)


def run_layers(model, row):
    """The states of the last layer, by torch's own stack of layers."""
    config = model.config
    if config.cell == "rnn-sigmoid":
        return run_sigmoid(model, row)
    kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[config.cell]
    twin = kind(config.embedding, config.hidden, config.layers).double()
    names = [name for name, _ in twin.named_parameters()]
    weights = dict(zip(names, model.stack.layers.parameters(), strict=True))
    first = model.stack.start if config.learn_initial_state else torch.zeros(config.layers, config.hidden).double()
    begin = (first, torch.zeros_like(first)) if config.cell == "lstm" else first
    return torch.func.functional_call(twin, weights, (embed(model, row), begin))[0]


def run_sigmoid(model, row):
    """The states of the last layer of sigmoid cells, step by step."""
    inputs = embed(model, row)
    for w, u, b, c in model.stack.layers.stack.all_weights:
        states = [torch.zeros(model.config.hidden).double()]
        for x in inputs:
            states.append(torch.sigmoid(w @ x + u @ states[-1] + b + c))
        inputs = torch.stack(states[1:])
    return inputs


def linear(module, x):
    return x @ module.weight.mT if isinstance(module, nn.Linear) else x


def weigh(model, head, query, keys):
    """The weights of some keys, by the formula of the score."""
    parameters = dict(model.attention.score.named_parameters())
    p = {name: tensor[head] if model.config.heads > 1 else tensor for name, tensor in parameters.items()}
    if model.config.score == "epanechnikov":
        power = model.config.score_power
        kernel = torch.stack([(1 - ((query - k).norm() / p["width"].squeeze()) ** power).clamp_min(0) for k in keys])
        return kernel / kernel.sum() if kernel.any() else kernel
    activation = torch.relu if model.config.score_activation == "relu" else torch.tanh
    formula = {
        "dot": lambda k: query @ k,
        "scaled_dot": lambda k: query @ k / len(k) ** 0.5,
        "bilinear": lambda k: query @ p["weight"] @ k,
        "additive": lambda k: p["energy"] @ activation(p["query_weight"] @ query + p["key_weight"] @ k),
        "reduced_rank": lambda k: (k @ p["key_weight"]) @ (p["query_weight"] @ query),
    }[model.config.score]
    return torch.stack([formula(k) for k in keys]).softmax(0)


def build_memory(model, row, states):
    """Return what each step stores."""
    if model.config.memory == "states":
        return states
    words = torch.cat([states[:-1], embed(model, row)[1:]], -1)  # each token after the state before it
    return torch.cat([torch.zeros_like(words[:1]), words])  # first comes nothing


def look(model, states, kept, position):
    """Return the context of one position, and its weights over all steps by head."""
    config, attention = model.config, model.attention
    seen = list(range(max(0, position - config.window + 1), position + config.include_current))
    if config.memory == "words":
        seen = sorted({0, *seen})
    projections = (attention.query, attention.keys, attention.values)
    inputs = (states, kept, kept)
    heads = [linear(p, x).chunk(config.heads, -1) for p, x in zip(projections, inputs, strict=True)]
    actual, weights = [], torch.zeros(config.heads, len(states)).double()
    for head, (queries, keys, values) in enumerate(zip(*heads, strict=True)):
        part = weigh(model, head, queries[position], keys[seen]) if seen else torch.zeros(0).double()
        actual.append(part @ values[seen])
        weights[head, seen] = part.detach()
    return torch.cat(actual), weights


def compose(model, s, c, e):
    how, mix = model.config.composition, getattr(model.compose, "mix", None)
    if how == "join":
        return torch.cat([s, c])
    if how == "concat":
        return torch.tanh(mix.weight @ torch.cat([c, s]))
    if how == "sum":
        return s + linear(model.compose.project, c)
    if how == "gate":
        gate = torch.sigmoid(mix.weight @ torch.cat([c, s]) + mix.bias)
        return gate * s + (1 - gate) * linear(model.compose.project, c)
    both = mix.weight @ torch.cat([c, s, e]) + mix.bias
    return torch.maximum(both[: len(both) // 2], both[len(both) // 2 :])


def by_formulas(model, row):
    """Return logits and weights of one text, position by position."""
    states, vocabulary, logits, weights = run_layers(model, row), model.vocabulary, [], []
    kept = build_memory(model, row, states)
    for position, token in enumerate(row):
        c, looked = look(model, states, kept, position)
        weights.append(looked)
        features = compose(model, states[position], c, embed(model, token))
        if model.config.tied:
            logits.append(vocabulary.embedding.weight @ linear(vocabulary.project, features) + vocabulary.bias)
        else:
            logits.append(vocabulary.output.weight @ features + vocabulary.output.bias)
    return torch.stack(logits), torch.stack(weights, 1)


@pytest.mark.parametrize("case", CASES)
def test_the_model_follows_its_formulas(case):
    model = make(**CASES[case])
    with watch(model, "dense") as seen:
        logits, _ = model(TOKENS)
    expected, weights = (
        torch.stack(tensor) for tensor in zip(*(by_formulas(model, row) for row in TOKENS), strict=True)
    )
    torch.testing.assert_close(logits, expected)
    (path,) = model.default_attention
    (actual,) = seen[path]  # one call for all positions
    torch.testing.assert_close(actual, weights)
    learned = list(model.parameters())
    unused = model.config.window == 1  # one weight, which is 1 whatever the query and the key
    actual = torch.autograd.grad(logits.square().sum(), learned, materialize_grads=unused)
    expected = torch.autograd.grad(expected.square().sum(), learned, materialize_grads=unused)
    torch.testing.assert_close(actual, expected)
    assert unused or all(tensor.any() for tensor in actual)


@pytest.mark.parametrize("cut", [[1, 3, 4], [5, 1, 1, 1]])
@pytest.mark.parametrize("case", CASES)
def test_segments_are_as_the_whole_with_their_gradient(case, cut):
    model = make(**CASES[case])
    expected, last = model(TOKENS)
    actual, carried, before = [], None, 0
    for part in TOKENS.split(cut, 1):
        logits, carried = model(part, carried)
        actual.append(logits)
        before += part.shape[1]
        width = 7 if model.config.memory == "words" else 4
        empty = model.config.memory == "words"
        assert carried[-1].shape == (2, min(before, model.config.window - 1 + empty), width)
    torch.testing.assert_close(torch.cat(actual, 1), expected)
    torch.testing.assert_close(carried, last)
    learned = [tensor for tensor in model.parameters() if tensor.requires_grad]
    gradients = [torch.autograd.grad(x.square().sum(), learned) for x in (torch.cat(actual, 1), expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("prefix", [1, 5])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_as_the_whole(case, prefix):
    model = make(**CASES[case])
    texts = TOKENS.repeat(1, 3)  # long enough to move the window on more than once
    with watch(model, "dense") as seen:
        expected, _ = model(texts)
    (weights,) = seen["attention"]
    state = model.start(texts[:, :prefix], capacity=texts.shape[1], copies=2)
    with watch(model) as seen:
        for position in range(prefix - 1, texts.shape[1]):
            logits, state = model.step(texts[:, position].repeat_interleave(2), state)
            torch.testing.assert_close(logits, expected[:, position].repeat_interleave(2, 0))
    for position, step in enumerate(seen["attention"], prefix - 1):  # read after the memory was overwritten
        seen = list(range(max(0, position + 1 - model.config.window), position + 1))
        if model.config.memory == "words":
            seen = sorted({0, *seen})
        torch.testing.assert_close(step.dense()[::2], weights[..., position : position + 1, seen])
    assert state.past.capacity <= 2 * model.config.window + 1


@pytest.mark.parametrize("current", [True, False])
def test_rows_are_selected(current):
    model = make(include_current=current, window=4)
    state = model.start(TOKENS[:, :4], 9, copies=2)
    _, state = model.step(torch.tensor([4, 5, 6, 7]), state)
    state.select(torch.tensor([1, 1, 3, 2]))
    logits, _ = model.step(torch.tensor([8, 9, 8, 9]), state)
    for row, (text, *more) in enumerate([(0, 5, 8), (0, 5, 9), (1, 7, 8), (1, 6, 9)]):
        expected, _ = by_formulas(model, torch.tensor([*TOKENS[text, :3].tolist(), *more]))
        torch.testing.assert_close(logits[row], expected[-1].detach())


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", SCORES)
def test_no_logit_depends_on_a_later_token(score, heads, current):
    model = make(score=score, heads=heads, include_current=current, window=5)
    changed = TOKENS.clone()
    changed[:, 4:] = 1
    before, after = model(TOKENS)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-12)
    assert not torch.isclose(before[:, 4], after[:, 4]).any()
    assert bool(find_scores_without_gradient(model)) == (score in ("boxcar", "exact", "hard", "uniform"))


@pytest.mark.parametrize("score", SCORES)
def test_every_score_steps_and_goes_on_as_the_whole(score):
    model = make(score=score, heads=2, window=3)
    expected, _ = model(TOKENS)
    first, carried = model(TOKENS[:, :5])
    rest, _ = model(TOKENS[:, 5:], carried)
    torch.testing.assert_close(torch.cat([first, rest], 1), expected)
    state = model.start(TOKENS[:, :1], 7)
    for position, column in enumerate(TOKENS.unbind(1)):
        logits, state = model.step(column, state)
        torch.testing.assert_close(logits, expected[:, position])


def test_what_passed_the_window_is_forgotten():
    model = make(window=3, cell="rnn", project=(), score="dot")
    for weights in model.stack.layers.stack.all_weights:
        weights[1].data.zero_()  # a state depends only on its own token
    changed = TOKENS.clone()
    changed[:, 0] = 1
    before, after = model(TOKENS)[0], model(changed)[0]
    assert not torch.isclose(before[:, 2], after[:, 2]).any()
    torch.testing.assert_close(before[:, 3:], after[:, 3:], rtol=0, atol=1e-12)


def test_more_steps_than_there_is_room_for_are_refused():
    model = make()
    state = model.start(TOKENS[:, :3], capacity=1)
    _, state = model.step(TOKENS[:, 2], state)
    with pytest.raises(RegardError) as raised:
        model.step(TOKENS[:, 3], state)
    assert str(raised.value) == "cache: 4 positions exceed the capacity of 3"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"window": 1, "include_current": False}, "window must be at least 2 with include_current = false, got 1"),
        ({"heads": 3}, "heads must divide hidden (256), got 3"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"score": "dots"}, 'unknown score "dots"; did you mean "dot"?'),
        ({"normalizer": "softmaxx"}, 'unknown normalizer "softmaxx"; did you mean "softmax"?'),
        ({"project": ("key",)}, 'unknown project "key"; did you mean "keys"?'),
        ({"memory_dropout": 1.0}, "memory_dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_what_cannot_be_is_said(settings, message):
    with pytest.raises(RegardError) as raised:
        AttentiveLmConfig(vocab_size=10, **settings)
    assert str(raised.value) == message
