"""Every shipped preset, built by its name with its defaults, against the formulas of its source, step by step."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.batch import Pair, collate
from regard.models import MODELS, build

SOURCE, TARGET, TEXT = [5, 6, 4, 7], [4, 8], [2, 5, 6, 4, 5]
SIZES = {"pairs": {"source_vocab_size": 9, "target_vocab_size": 10}, "text": {"vocab_size": 9}}


class Parameters(dict[str, Tensor]):
    """The parameters of a model, in float64, and which of them a formula has used."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(3)
        self.model = build(name, **SIZES[MODELS[name].task]).double().eval()
        for parameter in self.model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        super().__init__((name, tensor.detach()) for name, tensor in self.model.named_parameters())
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.used.add(name)
        return super().__getitem__(name)

    def layer(self, path: str, suffix: str = "l0") -> list[Tensor]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return [self[f"{path}.stack.{name}_{suffix}"] for name in names]

    def linear(self, path: str, x: Tensor) -> Tensor:
        return self[f"{path}.weight"] @ x + self[f"{path}.bias"]


def rnn(weights: list[Tensor], x: Tensor, h: Tensor) -> Tensor:
    w, u, b, d = weights
    return torch.tanh(w @ x + u @ h + b + d)


def gru(weights: list[Tensor], x: Tensor, h: Tensor) -> Tensor:
    w, u, b, d = weights
    (r, z, n), (s, y, m) = (w @ x + b).chunk(3), (u @ h + d).chunk(3)
    update = torch.sigmoid(z + y)
    return (1 - update) * torch.tanh(n + torch.sigmoid(r + s) * m) + update * h


def lstm(weights: list[Tensor], x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    w, u, b, d = weights
    i, f, g, o = (w @ x + u @ state[0] + b + d).chunk(4)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def zeros(width: int = 256) -> Tensor:
    return torch.zeros(width, dtype=torch.float64)


def mean(scores: list[Tensor], values: list[Tensor]) -> Tensor:
    """The values, weighted by the softmax of the scores."""
    return torch.stack(scores).softmax(0) @ torch.stack(values)


def seq2seq(p: Parameters) -> list[Tensor]:
    """Sutskever et al. 2014: only the last state passes from an LSTM to an LSTM."""
    state = (zeros(), zeros())
    for token in [*SOURCE, 3]:
        state = lstm(p.layer("encoder"), p["source_embedding.weight"][token], state)
    logits = []
    for token in [2, *TARGET]:
        state = lstm(p.layer("decoder"), p["target_embedding.weight"][token], state)
        logits.append(p.linear("vocabulary", state[0]))
    return logits


def simple_attention(p: Parameters, *, projected: bool = False) -> list[Tensor]:
    """softmax(W_o [s; c]) with weights softmax(h·s), or (W^K h)·(W^Q s) and values W^V h."""
    states, s = [], zeros()
    for token in [*SOURCE, 3]:
        s = gru(p.layer("encoder"), p["source_embedding.weight"][token], s)
        states.append(s)

    def project(name: str, x: Tensor) -> Tensor:
        return p[f"attention.{name}.weight"] @ x if projected else x

    logits = []
    for token in [2, *TARGET]:
        s = gru(p.layer("decoder"), p["target_embedding.weight"][token], s)
        scores = [project("keys", h) @ project("query", s) for h in states]
        c = mean(scores, [project("values", h) for h in states])
        logits.append(p.linear("vocabulary", torch.cat([s, c])))
    return logits


def parameterized_attention(p: Parameters) -> list[Tensor]:
    return simple_attention(p, projected=True)


def bahdanau(p: Parameters) -> list[Tensor]:
    """Bahdanau et al. 2015, A.1 and A.2."""
    xs = [p["source_embedding.weight"][token] for token in [*SOURCE, 3]]
    sides = []
    for suffix, inputs in (("l0", xs), ("l0_reverse", xs[::-1])):
        h, states = zeros(), []
        for x in inputs:
            h = gru(p.layer("encoder", suffix), x, h)
            states.append(h)
        sides.append(states)
    states = [torch.cat(pair) for pair in zip(sides[0], sides[1][::-1], strict=True)]
    s = torch.tanh(p.linear("bridge.states.0", sides[1][-1]))
    logits = []
    for token in [2, *TARGET]:
        e, score = p["target_embedding.weight"][token], "attention.score"
        query = p[f"{score}.query_weight"] @ s
        scores = [p[f"{score}.energy"] @ torch.tanh(query + p[f"{score}.key_weight"] @ h) for h in states]
        c = mean(scores, states)
        s = gru(p.layer("decoder"), torch.cat([e, c]), s)
        both = p.linear("compose.mix", torch.cat([c, s, e]))
        logits.append(p.linear("vocabulary", torch.maximum(both[:128], both[128:])))
    return logits


def luong(p: Parameters, score: Any) -> list[Tensor]:
    """Luong et al. 2015: one-way LSTMs, the state after the step attends, tanh(W [c; s]) is fed into the next step."""
    state, states = (zeros(), zeros()), []
    for token in [*SOURCE, 3]:
        state = lstm(p.layer("encoder"), p["source_embedding.weight"][token], state)
        states.append(state[0])
    fed, logits = zeros(), []
    for token in [2, *TARGET]:
        state = lstm(p.layer("decoder"), torch.cat([p["target_embedding.weight"][token], fed]), state)
        c = mean([score(state[0], h) for h in states], states)
        fed = torch.tanh(p["compose.mix.weight"] @ torch.cat([c, state[0]]))
        logits.append(p.linear("vocabulary", fed))
    return logits


def luong_dot(p: Parameters) -> list[Tensor]:
    return luong(p, lambda s, h: s @ h)


def luong_general(p: Parameters) -> list[Tensor]:
    return luong(p, lambda s, h: s @ p["attention.score.weight"] @ h)


def luong_concat(p: Parameters) -> list[Tensor]:
    weight, energy = p["attention.score.weight"], p["attention.score.energy"]
    return luong(p, lambda s, h: energy @ torch.tanh(weight @ torch.cat([s, h])))


def hard_attention(p: Parameters, *, monotonic: bool = False) -> list[Tensor]:
    """Wu et al. 2018 and, monotonic with moves of their own, Wu and Cotterell 2019: a sum over source positions."""
    xs = [p["source_embedding.weight"][token] for token in [*SOURCE, 3]]
    sides = []
    for suffix, inputs in (("l0", xs), ("l0_reverse", xs[::-1])):
        state, states = (zeros(), zeros()), []
        for x in inputs:
            state = lstm(p.layer("encoder", suffix), x, state)
            states.append(state[0])
        sides.append(states)
    keys = [p["keys.weight"] @ torch.cat(pair) for pair in zip(sides[0], sides[1][::-1], strict=True)]
    state = torch.tanh(p.linear("bridge.states.0", state[0])), p.linear("bridge.cells.0", state[1])
    before, logits = torch.eye(5, dtype=torch.float64)[0], []  # p(a_{i-1} = k | y_1 ... y_{i-1}), first at the start
    for token, written in zip([2, *TARGET], [*TARGET, 3], strict=True):
        state = lstm(p.layer("decoder"), p["target_embedding.weight"][token], state)
        s = state[0]
        scores = torch.stack([s @ p["alignment.score.weight"] @ h for h in keys])
        moves = p.linear("alignment.jumps", s) if monotonic else None
        now = torch.zeros(5, dtype=torch.float64)
        for k in range(5):
            start = k if monotonic else 0
            way = [scores[j] + (0 if moves is None else moves[min(j - k, 4)]) for j in range(start, 5)]
            now[start:] += before[k] * torch.stack(way).softmax(0)
        tokens = torch.stack([p.linear("vocabulary", torch.tanh(p.linear("state", s) + h)).softmax(0) for h in keys])
        logits.append((now @ tokens).log())
        before = now * tokens[:, written] / (now @ tokens[:, written])
    return logits


def hard_monotonic(p: Parameters) -> list[Tensor]:
    return hard_attention(p, monotonic=True)


def attend_heads(p: Parameters, path: str, queries: Tensor, keys: Tensor, causal: bool) -> Tensor:
    """Four heads of 64 (Vaswani et al. 2017, 3.2)."""
    names = ("query", "keys", "values")
    q, k, v = (
        functional.linear(x, p[f"{path}.{name}.weight"], p[f"{path}.{name}.bias"])
        for name, x in zip(names, (queries, keys, keys), strict=True)
    )
    heads = []
    for head in range(4):
        part = slice(64 * head, 64 * head + 64)
        scores = q[:, part] @ k[:, part].T / 8
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        heads.append(scores.softmax(-1) @ v[:, part])
    return functional.linear(torch.cat(heads, -1), p[f"{path}.output.weight"], p[f"{path}.output.bias"])


def feed_forward(p: Parameters, path: str, x: Tensor, activation: Any) -> Tensor:
    inner = activation(functional.linear(x, p[f"{path}.wider.weight"], p[f"{path}.wider.bias"]))
    return functional.linear(inner, p[f"{path}.back.weight"], p[f"{path}.back.bias"])


def norm(p: Parameters, path: str, x: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p[f"{path}.weight"] + p[f"{path}.bias"]


def transformer(p: Parameters) -> list[Tensor]:
    """Vaswani et al. 2017: norm(x + sublayer(x)), embeddings times sqrt(width), sines and cosines."""

    def embed(name: str, tokens: list[int]) -> Tensor:
        angles = torch.arange(len(tokens)).double()[:, None] / 10000 ** (torch.arange(0, 256, 2).double() / 256)
        positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        return 16 * p[f"{name}_embedding.weight"][tokens] + positions

    def sublayer(path: str, x: Tensor, out: Tensor) -> Tensor:
        return norm(p, f"{path}_residual.norm", x + out)

    source, x = embed("source", [*SOURCE, 3]), embed("target", [2, *TARGET])
    for layer in range(3):
        path = f"encoder.layers.{layer}"
        source = sublayer(f"{path}.attention", source, attend_heads(p, f"{path}.attention", source, source, False))
        source = sublayer(f"{path}.feed_forward", source, feed_forward(p, f"{path}.feed_forward", source, torch.relu))
    for layer in range(3):
        path = f"decoder.layers.{layer}"
        x = sublayer(f"{path}.attention", x, attend_heads(p, f"{path}.attention", x, x, True))
        x = sublayer(f"{path}.cross", x, attend_heads(p, f"{path}.cross", x, source, False))
        x = sublayer(f"{path}.feed_forward", x, feed_forward(p, f"{path}.feed_forward", x, torch.relu))
    return list(x @ p["target_embedding.weight"].T)


def gelu(x: Tensor) -> Tensor:
    """The approximation by tanh of GPT's code."""
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt(p: Parameters) -> list[Tensor]:
    """Radford et al. 2018: a norm after each residual."""
    x = p["embedding.weight"][TEXT] + p["positions.table"][: len(TEXT)]
    for layer in range(4):
        path = f"stack.layers.{layer}"
        x = norm(p, f"{path}.attention_residual.norm", x + attend_heads(p, f"{path}.attention", x, x, True))
        x = norm(p, f"{path}.feed_forward_residual.norm", x + feed_forward(p, f"{path}.feed_forward", x, gelu))
    return list(x @ p["embedding.weight"].T)


def gpt2(p: Parameters) -> list[Tensor]:
    """Radford et al. 2019: a norm before each sublayer and one at the end."""
    x = p["embedding.weight"][TEXT] + p["positions.table"][: len(TEXT)]
    for layer in range(4):
        path = f"stack.layers.{layer}"
        y = norm(p, f"{path}.attention_residual.norm", x)
        x = x + attend_heads(p, f"{path}.attention", y, y, True)
        x = x + feed_forward(p, f"{path}.feed_forward", norm(p, f"{path}.feed_forward_residual.norm", x), gelu)
    return list(norm(p, "stack.norm", x) @ p["embedding.weight"].T)


def neural_lm(p: Parameters) -> list[Tensor]:
    """Bengio et al. 2003: a tanh layer on the vectors of the last five tokens, padding before the text."""
    vectors = [p["vocabulary.embedding.weight"][token] for token in [*[0] * 4, *TEXT]]
    windows = [torch.cat(vectors[i : i + 5]) for i in range(len(TEXT))]
    return [p.linear("vocabulary.output", torch.tanh(p.linear("hidden", window))) for window in windows]


def rnn_lm(p: Parameters) -> list[Tensor]:
    """Mikolov et al. 2010: h = tanh(W e + U h + b), softmax(W_2 h + b_2)."""
    h, logits = zeros(), []
    for token in TEXT:
        h = rnn(p.layer("stack.layers"), p["vocabulary.embedding.weight"][token], h)
        logits.append(p.linear("vocabulary.output", h))
    return logits


def tied_logits(p: Parameters, features: Tensor) -> Tensor:
    if "vocabulary.project.weight" in p:
        features = p["vocabulary.project.weight"] @ features
    return p["vocabulary.embedding.weight"] @ features + p["vocabulary.bias"]


def gru_lm(p: Parameters) -> list[Tensor]:
    h, logits = zeros(), []
    for token in TEXT:
        h = gru(p.layer("stack.layers"), 16 * p["vocabulary.embedding.weight"][token], h)
        logits.append(tied_logits(p, h))
    return logits


def lstm_states(p: Parameters) -> list[Tensor]:
    state, states = (zeros(), zeros()), []
    for token in TEXT:
        state = lstm(p.layer("stack.layers"), 16 * p["vocabulary.embedding.weight"][token], state)
        states.append(state[0])
    return states


def lstm_lm(p: Parameters) -> list[Tensor]:
    return [tied_logits(p, state) for state in lstm_states(p)]


def attentive_lm(p: Parameters) -> list[Tensor]:
    """The state attends to itself and to the states before it, and is joined with the summary."""
    states, logits = lstm_states(p), []
    keys, values = ([p[f"attention.{name}.weight"] @ h for h in states] for name in ("keys", "values"))
    for t, state in enumerate(states):
        query = p["attention.query.weight"] @ state
        c = mean([query @ key / 16 for key in keys[: t + 1]], values[: t + 1])
        logits.append(tied_logits(p, torch.cat([state, c])))
    return logits


FORMULAS = {
    "seq2seq": seq2seq,
    "simple-attention": simple_attention,
    "parameterized-attention": parameterized_attention,
    "bahdanau": bahdanau,
    "luong-dot": luong_dot,
    "luong-general": luong_general,
    "luong-concat": luong_concat,
    "hard-attention": hard_attention,
    "hard-monotonic": hard_monotonic,
    "transformer": transformer,
    "neural-lm": neural_lm,
    "rnn-lm": rnn_lm,
    "gru-lm": gru_lm,
    "lstm-lm": lstm_lm,
    "attentive-lm": attentive_lm,
    "gpt": gpt,
    "gpt2": gpt2,
}


def test_every_model_of_text_has_its_formulas():
    assert list(FORMULAS) == [name for name, preset in MODELS.items() if preset.task in SIZES]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_preset_is_what_its_source_says(name):
    p = Parameters(name)
    with torch.no_grad():
        if MODELS[name].task == "pairs":
            actual = p.model(collate([Pair(SOURCE, TARGET)]))[0]
        else:
            actual = p.model(torch.tensor([TEXT]))[0][0]
        expected = torch.stack(FORMULAS[name](p))
    torch.testing.assert_close(actual, expected)
    assert p.used == set(p)  # the model has no parameter that its source has not


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_names_its_source(name):
    source = MODELS[name].source
    assert source == source.strip().rstrip(".")
    assert len(source) > 40
