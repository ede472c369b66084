"""Every recurrent model against its formulas, written out step by step for one sentence."""

from typing import Any

import pytest
import torch
from torch import nn

from regard import RegardError, watch
from regard.attention.scores import SCORES, find_scores_without_gradient
from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch, Pair, collate
from regard.models.recurrent_seq2seq import RecurrentConfig, RecurrentSeq2Seq

PRESETS: dict[str, dict[str, Any]] = {
    "seq2seq": {"attention": "none", "cell": "lstm"},
    "simple-attention": {"composition": "join", "input_feeding": False},
    "parameterized-attention": {
        "composition": "join",
        "input_feeding": False,
        "project": ("query", "keys", "values"),
    },
    "bahdanau": {"attention": "before", "score": "additive", "bidirectional": True, "composition": "maxout"},
    "luong-dot": {"cell": "lstm"},
    "luong-general": {"cell": "lstm", "score": "bilinear"},
    "luong-concat": {"cell": "lstm", "score": "concat"},
}
CASES: dict[str, dict[str, Any]] = {
    **PRESETS,
    "tied": {"composition": "join", "input_feeding": False, "cell": "rnn", "tied": True},
    "tied baseline": {"attention": "none", "cell": "rnn", "tied": True},
    "keys alone": {"composition": "join", "input_feeding": False, "project": ("keys",)},
    "gate": {"composition": "gate", "bidirectional": True},
    "sum": {"composition": "sum", "input_feeding": False, "cell": "rnn", "bidirectional": True},
    "bidirectional lstm": {"cell": "lstm", "bidirectional": True, "attention": "before"},
    "reversed": {"reverse_source": True, "cell": "lstm"},
    "tied embeddings": {"tied_embeddings": True},
    "copy before": {**PRESETS["bahdanau"], "copy": True},
    "copy after": {"copy": True, "cell": "lstm"},
    "copy all at once": {**PRESETS["parameterized-attention"], "copy": True, "tied_embeddings": True},
}
PAIRS = [Pair([5, 6, 7, 8], [4, 5]), Pair([9], [6, 7, 8, 9, 4]), Pair([4, 4, 9, 5, 6, 7], [])]
COPIED = ([4, 12, 11, 12], [7], [4, 4, 5, 11, 6, 10])  # from 11 on, tokens that only the source has
COPY_PAIRS = [Pair(pair.source, [*(pair.target or ()), 11], ids) for pair, ids in zip(PAIRS, COPIED, strict=True)]
COPY_PAIRS[1] = Pair([9], [7, 9], [7])


def make(**settings):
    """A small model in float64, in which no parameter is zero."""
    torch.manual_seed(5)
    sizes = {
        "source_vocab_size": 10,
        "target_vocab_size": 10 if settings.get("tied") else 11,
        "embedding": 3,
        "hidden": 4,
    }
    model = RecurrentSeq2Seq(RecurrentConfig(**{**sizes, "dropout": 0.0, **settings})).double()
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.7)
    return model


def recur(cell, weights, x, state):
    """One step of a cell by its formula; the state is (h,) or (h, c)."""
    w, u, b, d = weights
    h = state[0]
    if cell == "rnn":
        return (torch.tanh(w @ x + b + u @ h + d),)
    if cell == "gru":
        (wr, wz, wn), (ur, uz, un) = (w @ x + b).chunk(3), (u @ h + d).chunk(3)
        update = torch.sigmoid(wz + uz)
        return ((1 - update) * torch.tanh(wn + torch.sigmoid(wr + ur) * un) + update * h,)
    i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def stack_step(cell, all_weights, x, layers):
    actual = []
    for weights, state in zip(all_weights, layers, strict=True):
        actual.append(recur(cell, weights, x, state))
        x = actual[-1][0]
    return actual


def encode(model, tokens):
    """The states of one source, and the first states of the decoder."""
    config, weights = model.config, model.encoder.stack.all_weights
    words = [*reversed(tokens[:-1]), tokens[-1]] if config.reverse_source else tokens
    xs = [model.source_embedding.weight[token] for token in words]
    parts, ends = 2 if config.cell == "lstm" else 1, []
    directions = 2 if config.bidirectional else 1
    for layer in range(config.layers):
        sides = []
        for direction in range(directions):
            state, actual = (xs[0].new_zeros(config.hidden),) * parts, []
            for x in xs[::-1] if direction else xs:
                state = recur(config.cell, weights[layer * directions + direction], x, state)
                actual.append(state[0])
            sides.append(actual[::-1] if direction else actual)
        ends.append(state)
        xs = [torch.cat(side) for side in zip(*sides, strict=True)]
    if config.reverse_source:
        xs = [*reversed(xs[:-1]), xs[-1]]
    if config.bidirectional:
        bridge = model.bridge
        ends = [
            (torch.tanh(bridge.states[i](end[0])), *(bridge.cells[i](c) for c in end[1:])) for i, end in enumerate(ends)
        ]
    return xs, ends


def look(model, query, states):
    """Attention of one head by the formulas of the papers: the summary and the weights."""
    attention = model.attention
    keys, values, score = states, states, attention.score
    if isinstance(attention.query, nn.Linear):
        query = attention.query.weight @ query
    if isinstance(attention.keys, nn.Linear):
        keys = [attention.keys.weight @ key for key in states]
    if isinstance(attention.values, nn.Linear):
        values = [attention.values.weight @ value for value in states]
    formula = {
        "dot": lambda k: query @ k,
        "bilinear": lambda k: query @ score.weight @ k,
        "additive": lambda k: score.energy @ torch.tanh(score.query_weight @ query + score.key_weight @ k),
        "concat": lambda k: score.energy @ torch.tanh(score.weight @ torch.cat([query, k])),
    }[model.config.score]
    weights = torch.stack([formula(key) for key in keys]).softmax(0)
    return sum(w * v for w, v in zip(weights, values, strict=True)), weights


def compose_by_hand(model, s, c, e):
    compose = model.compose
    project = compose.project.weight if isinstance(compose.project, nn.Linear) else torch.eye(len(c), dtype=c.dtype)
    if compose.kind == "join":
        return torch.cat([s, c])
    if compose.kind == "concat":
        return torch.tanh(compose.mix.weight @ torch.cat([c, s]))
    if compose.kind == "sum":
        return s + project @ c
    if compose.kind == "gate":
        gate = torch.sigmoid(compose.mix.weight @ torch.cat([c, s]) + compose.mix.bias)
        return gate * s + (1 - gate) * (project @ c)
    both = compose.mix.weight @ torch.cat([c, s, e]) + compose.mix.bias
    return torch.maximum(both[: len(both) // 2], both[len(both) // 2 :])


def mix_by_hand(model, logits, weights, ids, inputs, size):
    """log(g softmax(logits) + (1 - g) copied), where g = sigmoid(w [c; s; e] + b) (See et al. 2017, 8 and 9)."""
    gate = torch.sigmoid(model.pointer.gate.weight[0] @ torch.cat(inputs) + model.pointer.gate.bias[0])
    places = list(zip(weights, ids, strict=True))
    copied = [sum((w for w, i in places if i == token), start=0 * gate) for token in range(size)]
    generated = torch.cat([logits.softmax(0), logits.new_zeros(size - len(logits))])
    mixed = gate * generated + (1 - gate) * torch.stack(copied)
    return mixed.clamp_min(1e-300).log().masked_fill(mixed == 0, -torch.inf)  # log 0 has no gradient


def by_formulas(model, pair, size=0):
    """Logits and weights of one pair, token by token; with copying, log-probabilities of `size` tokens."""
    config, logits, weights = model.config, [], []
    states, layers = encode(model, [*pair.source, EOS])
    embedding = (model.source_embedding if config.tied else model.target_embedding).weight
    stack = (model.encoder if config.tied else model.decoder).stack.all_weights
    feed = None if config.attention != "after" or not config.input_feeding else states[0].new_zeros(model.compose.width)
    for token in [BOS, *pair.target]:
        e = embedding[token if token < len(embedding) else UNKNOWN]
        if config.attention == "before":
            c, looked = look(model, layers[-1][0], states)
            layers = stack_step(config.cell, stack, torch.cat([e, c]), layers)
        else:
            layers = stack_step(config.cell, stack, e if feed is None else torch.cat([e, feed]), layers)
            if config.attention == "after":
                c, looked = look(model, layers[-1][0], states)
        out = layers[-1][0]
        if config.attention != "none":
            weights.append(looked)
            out = compose_by_hand(model, out, c, e)
        feed = None if feed is None else out
        if config.tied_embeddings:
            out = out if model.reduce is None else model.reduce.weight @ out
            logits.append(embedding @ out + model.bias)
        else:
            logits.append(model.vocabulary.weight @ out + model.vocabulary.bias)
        if config.copy is True:
            ids = [*pair.copy_ids, EOS]
            logits[-1] = mix_by_hand(model, logits[-1], looked, ids, [c, layers[-1][0], e], size)
    return torch.stack(logits), torch.stack(weights) if weights else None


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_model_follows_its_formulas(case, layers):
    model = make(layers=layers, **CASES[case])
    pairs = COPY_PAIRS if model.copies else PAIRS
    with watch(model, "dense") as seen:
        logits = model(collate(pairs))
    for row, pair in enumerate(pairs):
        expected, weights = by_formulas(model, pair, logits.shape[-1])
        torch.testing.assert_close(logits[row, : len(expected)], expected)
        if weights is not None:
            (path,) = model.default_attention
            actual = torch.cat(seen[path], 2)[row, 0]
            torch.testing.assert_close(actual[: len(expected), : weights.shape[1]], weights)
            assert not actual[:, weights.shape[1] :].any()
    if CASES[case].get("attention") == "none":
        assert model.default_attention == ()
        assert not seen


@pytest.mark.parametrize("case", ["copy before", "copy after", "copy all at once"])
def test_gradients_of_copying_are_those_of_the_formulas(case):
    model, batch = make(**CASES[case]), collate(COPY_PAIRS)
    picked = batch.target_out[..., None]
    real = torch.arange(picked.shape[1]) < batch.target_lengths[:, None]
    loss = model(batch).gather(-1, picked)[..., 0][real].sum()
    expected = 0.0
    for row, pair in enumerate(COPY_PAIRS):
        log_probabilities, _ = by_formulas(model, pair, batch.copy_size)
        ends = [*pair.target, EOS]
        expected += sum(log_probabilities[i, token] for i, token in enumerate(ends) if real[row, i])
    torch.testing.assert_close(loss, expected)
    parameters = list(model.parameters())
    actual = torch.autograd.grad(loss, parameters)
    torch.testing.assert_close(actual, torch.autograd.grad(expected, parameters))


@pytest.mark.parametrize("case", ["bahdanau", "luong-general", "tied", "parameterized-attention"])
def test_gradients_are_those_of_the_formulas(case):
    model = make(**CASES[case])
    batch = collate(PAIRS)
    logits = model(batch)
    real = (torch.arange(logits.shape[1]) < batch.target_lengths[:, None])[..., None]
    actual = torch.autograd.grad((logits.square() * real).sum(), list(model.parameters()))
    expected = sum(by_formulas(model, pair)[0].square().sum() for pair in PAIRS)
    torch.testing.assert_close(actual, torch.autograd.grad(expected, list(model.parameters())))


@pytest.mark.parametrize(
    ("case", "heads"),
    [(case, heads) for case in CASES for heads in (1, 2) if heads == 1 or CASES[case].get("attention") != "none"],
)
def test_steps_equal_the_whole(case, heads):
    model = make(layers=2, heads=heads, **CASES[case]).eval()
    pairs = COPY_PAIRS if model.copies else PAIRS
    batch = collate(pairs)
    tokens = torch.randint(4, 13 if model.copies else 10, (3, 3, 4))  # (batch, copies, time)
    tokens[..., 0] = BOS

    def whole(copy):
        copied = {"copy_ids": batch.copy_ids, "copy_size": batch.copy_size}
        return model(Batch(batch.source, batch.source_lengths, tokens[:, copy], **copied))

    with torch.no_grad():
        state = model.start(collate([pair._replace(target=None) for pair in pairs]), 4, copies=3)
        for time in range(2):
            logits, state = model.step(tokens[..., time].flatten(), state)
            for copy in range(3):
                torch.testing.assert_close(logits.unflatten(0, (3, 3))[:, copy], whole(copy)[:, time])
        parents = torch.tensor([[2, 0, 2], [1, 1, 1], [0, 2, 1]])  # which copy goes on, for each source
        state.select((parents + 3 * torch.arange(3)[:, None]).flatten())
        tokens[..., :2] = tokens[..., :2].gather(1, parents[..., None].expand(3, 3, 2))
        for time in range(2, 4):
            logits, state = model.step(tokens[..., time].flatten(), state)
            for copy in range(3):
                torch.testing.assert_close(logits.unflatten(0, (3, 3))[:, copy], whole(copy)[:, time])


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", SCORES)
def test_any_score_trains_in_any_model(score, heads):
    batch = collate(PAIRS)
    for case in ("simple-attention", "bahdanau", "luong-dot"):
        model = make(**{**CASES[case], "score": score, "heads": heads})
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        assert loss.isfinite()
        learned = any(p.grad is not None and p.grad.any() for p in model.attention.parameters())
        if find_scores_without_gradient(model):
            assert not learned
        assert (score in ("boxcar", "exact", "hard", "uniform")) == bool(find_scores_without_gradient(model))


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("simple-attention", 1),
        ("parameterized-attention", 1),
        ("tied", 1),
        ("sum", 1),
        ("luong-dot", 6),
        ("bahdanau", 6),
    ],
)
def test_nothing_fed_back_is_attended_to_at_once(case, calls):
    model = make(**CASES[case])
    with watch(model, "entropy") as seen:
        model(collate(PAIRS))
    assert {path: len(actual) for path, actual in seen.items()} == {"attention": calls}


def test_tied_shares_all_but_the_output():
    model = make(**CASES["tied"])
    sizes = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert sizes == {"source_embedding", "encoder", "vocabulary"}
    assert len(model.state_dict()) == len(list(model.parameters()))


def test_dropout_is_for_training():
    model, batch = make(dropout=0.5, **PRESETS["bahdanau"]), collate(PAIRS)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_padding_has_no_embedding():
    model = RecurrentSeq2Seq(RecurrentConfig(source_vocab_size=10, target_vocab_size=10))
    assert not model.source_embedding.weight[PAD].any()
    assert not model.target_embedding.weight[PAD].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"score": "addtive"}, 'unknown score "addtive"; did you mean "additive"?'),
        ({"normalizer": "softmx"}, 'unknown normalizer "softmx"; did you mean "softmax"?'),
        ({"project": ("key",)}, 'unknown project "key"; did you mean "keys"?'),
        ({"heads": 3}, "SourceAttention: the width of query must be divisible by heads, got 4 and 3"),
        (
            {"tied": True, "target_vocab_size": 11},
            "tied requires source_vocab_size and target_vocab_size to be equal, got 10 and 11",
        ),
        (
            {"tied": True},
            "tied cannot be combined with input_feeding; "
            'set bidirectional = false, input_feeding = false and attention = "after" or "none"',
        ),
    ],
)
def test_what_cannot_be_is_said(settings, message):
    with pytest.raises(RegardError) as raised:
        make(**settings)
    assert str(raised.value) == message


def test_targets_are_needed_to_read_them():
    with pytest.raises(RegardError) as raised:
        make()(collate([Pair([4, 5])]))
    assert str(raised.value) == "RecurrentSeq2Seq: batch has no targets; use start and step to decode without them"
