import math

import jaxtyping
import pytest
import torch
from torch.nn.functional import cross_entropy

from regard import RegardError, watch
from regard.attention import SCORES
from regard.models.gpt import Gpt, GptConfig

SMALL = {"vocab_size": 13, "width": 16, "heads": 2, "layers": 2, "context_length": 8, "dropout": 0.0}
TEXT = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 12, 11, 4, 4, 9], [2, 9, 3, 10, 5, 6]])


def build(**settings):
    torch.manual_seed(0)
    return Gpt(GptConfig(**{**SMALL, **settings})).double().eval()


def shaken(model):
    """Return the model with every parameter changed from its initial value."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return model


def build_twin(model):
    """Return the Transformers model with the same parameters: GPT-2 or, with norms after the sublayers, GPT-1."""
    transformers = pytest.importorskip("transformers")
    config = model.config
    shape = {
        "vocab_size": config.vocab_size, "n_positions": config.context_length, "n_embd": config.width,
        "n_layer": config.layers, "n_head": config.heads, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "bos_token_id": 2, "eos_token_id": 3, "tie_word_embeddings": config.tied, "attn_implementation": "eager",
    }  # fmt: skip
    if config.norm == "pre":
        twin = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape))
        core, names = twin.transformer, ("wte", "wpe")
        core.ln_f.load_state_dict(model.stack.norm.state_dict())
    else:
        twin = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**shape))
        core, names = twin.transformer, ("tokens_embed", "positions_embed")
    with torch.no_grad():
        twin.double().eval()
        getattr(core, names[0]).weight.copy_(model.embedding.weight)
        getattr(core, names[1]).weight.copy_(model.positions.table)
        if not config.tied:
            twin.lm_head.weight.copy_(model.vocabulary.weight)
        for own, their in zip(model.stack.layers, core.h, strict=True):
            copy_layer(own, their)
    return twin, getattr(core, names[0]).weight, core.h


def copy_layer(own, their):
    parts = (own.attention.query, own.attention.keys, own.attention.values)
    their.attn.c_attn.weight.copy_(torch.cat([part.weight.T for part in parts], 1))
    their.attn.c_attn.bias.copy_(torch.cat([part.bias for part in parts]))
    for mine, hers in (
        (own.attention.output, their.attn.c_proj),
        (own.feed_forward.wider, their.mlp.c_fc),
        (own.feed_forward.back, their.mlp.c_proj),
    ):
        hers.weight.copy_(mine.weight.T)
        hers.bias.copy_(mine.bias)
    their.ln_1.load_state_dict(own.attention_residual.norm.state_dict())
    their.ln_2.load_state_dict(own.feed_forward_residual.norm.state_dict())


@pytest.mark.parametrize(("norm", "tied"), [("pre", True), ("pre", False), ("post", True)])
def test_it_equals_the_models_of_transformers(norm, tied):
    model = shaken(build(norm=norm, tied=tied))
    twin, their_embedding, their_layers = build_twin(model)
    ours, carried = model(TEXT)
    theirs = twin(TEXT).logits
    assert carried == ()
    torch.testing.assert_close(ours, theirs)
    layer, their = model.stack.layers[0], their_layers[0]
    own = [
        model.embedding.weight,
        layer.attention.keys.weight,
        layer.feed_forward.back.bias,
        layer.attention.output.weight,
    ]
    actual = torch.autograd.grad(cross_entropy(ours[:, :-1].flatten(0, 1), TEXT[:, 1:].flatten()), own)
    their_own = [their_embedding, their.attn.c_attn.weight, their.mlp.c_proj.bias, their.attn.c_proj.weight]
    expected = list(torch.autograd.grad(twin(TEXT, labels=TEXT).loss, their_own))
    expected[1], expected[3] = expected[1][:, 16:32].T, expected[3].T  # of query, keys and values, the keys
    for mine, hers in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, hers)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_its_weights_are_those_that_transformers_gives(norm):
    model = shaken(build(norm=norm))
    twin, *_ = build_twin(model)
    with watch(model) as seen:
        model(TEXT)
    assert model.default_attention == ("stack.layers.0.attention", "stack.layers.1.attention")
    assert set(seen) == set(model.default_attention)
    for name, weights in zip(model.default_attention, twin(TEXT, output_attentions=True).attentions, strict=True):
        torch.testing.assert_close(seen[name][0].dense(), weights)


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_logit_depends_on_a_later_token(positions, norm):
    model = shaken(build(positions=positions, norm=norm))
    for position in range(1, 6):
        changed = TEXT.clone()
        changed[:, position] = (changed[:, position] + 1) % 13
        before, after = model(TEXT)[0], model(changed)[0]
        assert torch.equal(before[:, :position], after[:, :position])
        assert not torch.isclose(before[:, position:], after[:, position:]).all(-1).any()


def windows(length, max_length, count):
    """Yield how many tokens each of the next steps sees."""
    seen = min(length, max_length) - 1
    for _ in range(count):
        seen = max_length // 2 + 1 if seen == max_length else seen + 1
        yield seen


def test_windows_by_hand():
    assert list(windows(6, 8, 9)) == [6, 7, 8, 5, 6, 7, 8, 5, 6]  # the sixth token is read by the first step
    assert list(windows(20, 8, 3)) == [8, 5, 6]
    assert list(windows(1, 1, 3)) == [1, 1, 1]


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
@pytest.mark.parametrize(
    ("max_length", "length", "copies"), [(8, 6, 1), (8, 1, 3), (7, 7, 2), (7, 8, 1), (5, 20, 3), (1, 2, 2)]
)
def test_steps_give_what_the_same_window_gives_read_at_once(positions, max_length, length, copies):
    model = shaken(build(positions=positions, context_length=max_length))
    prompt = torch.randint(4, 13, (3, length))
    rows = 3 * copies
    state = model.start(prompt, capacity=20, copies=copies)
    texts, tokens = prompt.repeat_interleave(copies, 0)[:, :-1], prompt.repeat_interleave(copies, 0)[:, -1]
    addresses, turns = set(), windows(length, max_length, 20)
    for seen in turns:
        texts = torch.cat([texts, tokens[:, None]], 1)
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, model(texts[:, -seen:])[0][:, -1])
        addresses.add((state.tokens.data_ptr(), *(layer.self_cache.keys.data_ptr() for layer in state.memory)))
        chosen = (torch.randint(copies, (3, copies)) + torch.arange(0, rows, copies)[:, None]).flatten()
        state.select(chosen)  # within each text, some of them twice
        texts, tokens = texts[chosen], torch.randint(4, 13, (rows,))
    assert len(addresses) == 1
    assert [layer.self_cache.capacity for layer in state.memory] == [max_length] * 2
    with pytest.raises(RegardError) as error:
        model.step(tokens, state)
    assert str(error.value) == "Gpt: capacity exceeded; call start with a larger capacity"


def test_no_more_memory_is_taken_than_can_be_used():
    model = build(context_length=100)
    state = model.start(TEXT, capacity=3)
    assert (state.tokens.shape, state.memory[0].self_cache.capacity, state.length) == ((3, 8), 8, 5)


def test_a_beginning_is_read_in_one_pass():
    model = build()
    with watch(model, keep="dense") as seen:
        state = model.start(TEXT, capacity=9, copies=2)
        for _ in range(4):
            _, state = model.step(torch.full((6,), 4), state)
    shapes = [tuple(weights.shape) for weights in seen["stack.layers.1.attention"]]
    assert shapes == [(3, 2, 5, 5), (6, 2, 1, 6), (6, 2, 1, 7), (6, 2, 1, 8), (6, 2, 5, 5)]  # the last slides


def test_mute_tokens_are_never_written_and_the_others_share_what_is_left():
    model = shaken(build())
    mute = Gpt(GptConfig(**SMALL, mute=(0, 2, 12))).double().eval()
    mute.load_state_dict(model.state_dict())
    expected, actual = model(TEXT)[0], mute(TEXT)[0]
    heard = [1, *range(3, 12)]
    assert torch.equal(actual[..., heard], expected[..., heard])
    assert (actual.softmax(-1)[..., [0, 2, 12]] == 0).all()
    logits, _ = mute.step(TEXT[:, 0], mute.start(TEXT[:, :1], capacity=1))
    assert (logits[:, [0, 2, 12]] == -math.inf).all()
    cross_entropy(actual.flatten(0, 1), torch.full((18,), 5)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in mute.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_it_starts_small_as_gpt_2_does(tied):
    torch.manual_seed(0)
    model = Gpt(GptConfig(vocab_size=1000, width=64, layers=8, tied=tied))
    parameters = dict(model.named_parameters())
    assert ("vocabulary.weight" in parameters) == (not tied)
    assert len(parameters) == 2 + (not tied) + 8 * 16 + 2
    for name, parameter in parameters.items():
        if name.endswith("norm.weight"):
            assert (parameter == 1).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            residual = name.endswith(("attention.output.weight", "feed_forward.back.weight"))
            assert parameter.std().item() == pytest.approx(0.02 / 4 if residual else 0.02, rel=0.05), name
    logits, _ = model.eval()(torch.randint(4, 1000, (2, 50)))
    assert logits.flatten(0, 1).logsumexp(-1).mean().item() == pytest.approx(math.log(1000), abs=0.05)


def test_waves_meet_embeddings_as_equals():
    encoding = build(positions="sinusoidal", width=64).positions(100, torch.zeros((), dtype=torch.float64)).added
    assert encoding.square().mean().sqrt().item() == pytest.approx(0.02)


@pytest.mark.parametrize("score", SCORES)
def test_any_score_is_finite_forwards_and_backwards(score):
    model = build(score=score, layers=1).float()
    logits, _ = model(TEXT)
    logits.logsumexp(-1).sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    state = model.start(TEXT, capacity=1)
    torch.testing.assert_close(model.step(TEXT[:, -1], state)[0], logits[:, -1])


def test_autocast_is_close():
    model = shaken(build()).float()
    whole, _ = model(TEXT)
    with torch.autocast("cpu", torch.bfloat16):
        state = model.start(TEXT, capacity=1)
        assert state.memory[0].self_cache.keys.dtype == torch.bfloat16
        logits, _ = model.step(TEXT[:, -1], state)
    torch.testing.assert_close(logits.float(), whole[:, -1], atol=0.2, rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"context_length": 0}, "context_length must be at least 1, got 0"),
        ({"positions": "sinus"}, 'unknown positions "sinus"; did you mean "sinusoidal"?'),
        ({"activation": "gelu_tanh"}, 'unknown activation "gelu_tanh"; did you mean "gelu-tanh"?'),
        ({"mute": (0, 13)}, "mute must contain token ids from 0 to 12, got 13"),
        ({"mute": tuple(range(13))}, "mute must not contain every token"),
    ],
)
def test_settings_that_do_not_fit_are_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError) as error:
        GptConfig(**{**SMALL, **settings})
    assert str(error.value) == message


def test_calls_that_do_not_fit_are_said():
    assert build().max_length == build(positions="rotary").max_length == 8
    assert not build().stateful
    longer = torch.full((1, 9), 4)
    with pytest.raises(RegardError) as error:
        build()(longer)
    assert str(error.value) == "positions: 9 positions exceed the maximum of 8"
    assert build(positions="rotary")(longer)[0].shape == (1, 9, 13)
    for call, message in (
        ((TEXT, 0), "Gpt: capacity must be at least 1, got 0"),
        ((TEXT, 1, 0), "Gpt: copies must be at least 1, got 0"),
        ((TEXT[:, :0], 1), "Gpt: prompt length must be at least 1, got 0"),
    ):
        with pytest.raises(RegardError) as error:
            build().start(*call)
        assert str(error.value) == message
