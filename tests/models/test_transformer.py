import math

import jaxtyping
import pytest
import torch
from torch import nn

from regard import RegardError, watch
from regard.attention import SCORES
from regard.batch import BOS, PAD, Batch, Pair, collate
from regard.layers.positions import PositionalEncoding
from regard.models.transformer import Transformer, TransformerConfig

PAIRS = [Pair([4, 5, 6, 7, 8], [9, 4]), Pair([6, 5], [5, 6, 7, 8]), Pair([10], [])]  # all lengths differ


def build(**settings):
    torch.manual_seed(0)
    given = {
        "source_vocab_size": 11,
        "target_vocab_size": 13,
        "width": 16,
        "heads": 2,
        "encoder_layers": 2,
        "dropout": 0.0,
    }
    return Transformer(TransformerConfig(**{**given, **settings})).double()


def torch_twin(model):
    """Return torch's module with the same parameters, and for each of its parameters the corresponding one."""
    config = model.config
    shape = (config.width, config.heads, 4 * config.width)
    options = {
        "dropout": 0.0, "activation": config.activation, "batch_first": True,
        "norm_first": config.norm == "pre", "bias": config.bias,
    }  # fmt: skip
    final = [nn.LayerNorm(config.width, bias=config.bias) if config.norm == "pre" else None for _ in range(2)]
    encoder_layer = nn.TransformerEncoderLayer(*shape, **options)
    encoder = nn.TransformerEncoder(encoder_layer, config.encoder_layers, final[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*shape, **options), config.decoder_layers, final[1])
    twin = nn.Transformer(*shape[:2], custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()
    for ours, theirs in ((model.encoder, twin.encoder), (model.decoder, twin.decoder)):
        for own, their in zip(ours.layers, theirs.layers, strict=True):
            copy_layer(own, their)
        if theirs.norm is not None:
            theirs.norm.load_state_dict(ours.norm.state_dict())
    return twin


def copy_layer(own, their):
    copy_attention(own.attention, their.self_attn)
    residuals = [own.attention_residual, own.feed_forward_residual]
    if own.cross is not None:
        copy_attention(own.cross, their.multihead_attn)
        residuals.insert(1, own.cross_residual)
    their.linear1.load_state_dict(own.feed_forward.wider.state_dict())
    their.linear2.load_state_dict(own.feed_forward.back.state_dict())
    for number, residual in enumerate(residuals, 1):
        getattr(their, f"norm{number}").load_state_dict(residual.norm.state_dict())


def copy_attention(own, their):
    parts = (own.query, own.keys, own.values)
    with torch.no_grad():
        their.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        if their.in_proj_bias is not None:
            their.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    their.out_proj.load_state_dict(own.output.state_dict())


def waves(length, width):
    """The positions of the paper, one number at a time."""
    rows = [
        [(math.cos if i % 2 else math.sin)(position / 10000 ** (2 * (i // 2) / width)) for i in range(width)]
        for position in range(length)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def torch_logits(model, twin, batch):
    """The logits by torch's module, and the inputs it was given."""
    source = model.source_embedding.weight[batch.source] * 4 + waves(batch.source.shape[1], 16)
    target = model.target_embedding.weight[batch.target_in] * 4 + waves(batch.target_in.shape[1], 16)
    unseen, beyond = batch.source == PAD, batch.target_in == PAD
    later = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
    features = twin(
        source, target, tgt_mask=later, tgt_key_padding_mask=beyond,
        src_key_padding_mask=unseen, memory_key_padding_mask=unseen,
    )  # fmt: skip
    return features @ model.target_embedding.weight.mT


def shaken(model):
    """Return the model with every parameter of its layers changed from its initial value."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    return model


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("activation", "bias"), [("relu", True), ("gelu", False)])
def test_it_equals_torchs_module(norm, activation, bias):
    model = shaken(build(norm=norm, activation=activation, bias=bias))
    twin, batch = torch_twin(model), collate(PAIRS)
    real = batch.target_out != PAD
    ours, theirs = model(batch)[real], torch_logits(model, twin, batch)[real]
    torch.testing.assert_close(ours, theirs)
    pull = torch.randn_like(ours)
    names = ["source_embedding.weight", "target_embedding.weight"]
    embeddings = [model.get_parameter(name) for name in names]
    layers = [stack.layers[i] for stack in (model.encoder, model.decoder) for i in range(2)]
    own = [p for layer in layers for p in (layer.attention.values.weight, layer.feed_forward.wider.weight)]
    actual = torch.autograd.grad((ours * pull).sum(), [*embeddings, *own, model.decoder.layers[1].cross.keys.weight])
    layers = [stack.layers[i] for stack in (twin.encoder, twin.decoder) for i in range(2)]
    theirs_own = [p for layer in layers for p in (layer.self_attn.in_proj_weight, layer.linear1.weight)]
    last = twin.decoder.layers[1].multihead_attn.in_proj_weight
    expected = torch.autograd.grad((theirs * pull).sum(), [*embeddings, *theirs_own, last])
    for number, (mine, their) in enumerate(zip(actual, expected, strict=True)):
        if number == len(actual) - 1:
            their = their[16:32]  # of query, keys and values, the keys
        elif number >= 2 and number % 2 == 0:
            their = their[32:]
        torch.testing.assert_close(mine, their)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_changes_nothing(positions, norm):
    model = build(positions=positions, norm=norm)
    together = model(collate(PAIRS))
    for row, pair in enumerate(PAIRS):
        alone = model(collate([pair]))[0]
        torch.testing.assert_close(together[row, : len(alone)], alone)


def test_no_logit_depends_on_a_later_token():
    model, batch = build(), collate(PAIRS[:1])
    changed = batch.target_in.clone()
    changed[0, 2] = 12
    before, after = (model(Batch(batch.source, batch.source_lengths, t)) for t in (batch.target_in, changed))
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.equal(before[:, 2:], after[:, 2:])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_steps_give_what_the_whole_gives(positions, norm, score):
    model, batch = build(positions=positions, norm=norm, score=score), collate(PAIRS)
    whole = model(batch)
    state = model.start(batch, capacity=batch.target_in.shape[1])
    for position, tokens in enumerate(batch.target_in.T):
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, whole[:, position])
    with pytest.raises(RegardError) as error:
        model.step(tokens, state)
    assert str(error.value) == "Transformer: capacity of 5 tokens exceeded; call start with a larger capacity"


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_steps_follow_hypotheses_that_are_reordered(positions):
    model, sources, copies, length = build(positions=positions), collate(PAIRS), 3, 5
    state = model.start(sources, capacity=length, copies=copies)
    addresses = set()
    tokens, prefixes = torch.full((9,), BOS), [[] for _ in range(9)]
    lengths = sources.source_lengths.map(lambda tensor: tensor.repeat_interleave(copies))
    repeated = sources.source.repeat_interleave(copies, 0), lengths
    for _ in range(length):
        prefixes = [[*prefix, token] for prefix, token in zip(prefixes, tokens.tolist(), strict=True)]
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, model(Batch(*repeated, torch.tensor(prefixes)))[:, -1])
        addresses.add(tuple(layer.self_cache.keys.data_ptr() for layer in state.memory))
        rows = torch.randint(copies, (3, copies)) + torch.arange(0, 9, copies)[:, None]  # within each source
        state.select(rows.flatten())
        prefixes = [prefixes[row] for row in rows.flatten().tolist()]
        tokens = torch.randint(4, 13, (9,))
    assert len(addresses) == 1
    assert [tuple(layer.cross_cache.keys.shape) for layer in state.memory] == [(3, 2, 6, 8)] * 3  # once for all copies


@pytest.mark.parametrize("copies", [1, 2])
def test_rotary_positions_turn_the_attention_to_the_source(copies):
    layer = build(positions="rotary", decoder_layers=1).decoder.layers[0]
    x, source = torch.randn(3 * copies, 5, 16, dtype=torch.float64), torch.randn(3, 6, 16, dtype=torch.float64)
    turn, source_turn = (PositionalEncoding("rotary", 16, head_width=8)(length, x).turn for length in (5, 6))
    with watch(layer) as seen:
        layer(x, source, turn=turn, source_turn=source_turn)
    attended = layer.attention_residual(x, lambda y: layer.attention(y, turn=turn))
    query, keys = (
        turn(projected.unflatten(-1, (2, 8)).transpose(1, 2))
        for turn, projected in ((turn, layer.cross.query(attended)), (source_turn, layer.cross.keys(source)))
    )
    expected = (query @ keys.repeat_interleave(copies, 0).mT / 8**0.5).softmax(-1)  # (3 * copies, heads, 5, 6)
    actual = seen["cross"][0].dense().unflatten(-2, (copies, 5)).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("heads", [1, 4])
def test_any_score_is_finite_forwards_and_backwards(score, heads):
    model, batch = build(score=score, heads=heads, decoder_layers=1).float(), collate(PAIRS)
    logits = model(batch)
    logits.logsumexp(-1).sum().backward()
    assert logits.isfinite().all()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) > 10
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_attention_is_seen_where_the_model_says():
    model, batch = build(decoder_layers=2), collate(PAIRS)
    with watch(model) as seen:
        model(batch)
    assert model.default_attention == ("decoder.layers.0.cross", "decoder.layers.1.cross")
    assert set(seen) == {
        *model.default_attention,
        *(f"{side}.layers.{i}.attention" for side in ("encoder", "decoder") for i in range(2)),
    }  # fmt: skip
    weights = seen["decoder.layers.1.cross"][0].dense()
    assert weights.shape == (3, 2, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not weights[1, ..., 3:].any()
    with watch(model, keep="dense") as steps:
        state = model.start(batch, capacity=2)
        for tokens in batch.target_in.T[:2]:
            _, state = model.step(tokens, state)
    actual = torch.cat(steps["decoder.layers.1.cross"], -2)
    torch.testing.assert_close(actual, weights[..., :2, :])


@pytest.mark.parametrize(("tied", "matrices"), [("none", 3), ("target", 2), ("all", 1)])
def test_embeddings_and_output_are_one_where_they_are_tied(tied, matrices):
    model = build(tied=tied, source_vocab_size=13)
    assert sum(p.shape == (13, 16) for p in model.state_dict().values()) == matrices
    model(collate(PAIRS)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert model.output(torch.zeros(2, 3, 16, dtype=torch.float64)).shape == (2, 3, 13)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_it_starts_out_undecided(norm):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(source_vocab_size=500, target_vocab_size=500, width=64, norm=norm)).eval()
    batch = collate([Pair(torch.randint(4, 500, (20,)).tolist(), torch.randint(4, 500, (20,)).tolist())] * 2)
    loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.target_out.flatten())
    assert loss.item() == pytest.approx(math.log(500) + 0.5, abs=0.5)  # logits of variance one cost half a nat


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_autocast_keeps_the_sum_of_residuals_exact(norm):
    model, batch = build(norm=norm).float(), collate(PAIRS)
    whole = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        features = model.features(batch)
        state = model.start(batch, capacity=5)
        assert state.memory[0].self_cache.keys.dtype == torch.bfloat16
        logits, _ = model.step(batch.target_in[:, 0], state)
    assert features.dtype == torch.float32
    torch.testing.assert_close(model.output(features), whole, atol=0.1, rtol=0.1)
    torch.testing.assert_close(logits.float(), whole[:, 0], atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_vocab_size": 0}, "source_vocab_size must be at least 1, got 0"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1, got 0"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"dropout": 2}, "dropout must be at least 0 and below 1, got 2"),
        ({"positions": "sinus"}, 'unknown positions "sinus"; did you mean "sinusoidal"?'),
        (
            {"positions": "rotary", "width": 9, "heads": 3},
            "positions: rotary requires an even head width, got 3",
        ),
        ({"tied": "both"}, 'unknown tied "both"; choose from all, none, target'),
        ({"tied": "all"}, 'tied = "all" requires source_vocab_size and target_vocab_size to be equal, got 5 and 6'),
    ],
)
def test_settings_that_do_not_fit_are_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError) as error:
        TransformerConfig(**{"source_vocab_size": 5, "target_vocab_size": 6, **settings})
    assert str(error.value) == message


def test_calls_that_do_not_fit_are_said():
    model, batch = build(positions="learned", max_length=6), collate(PAIRS)
    with pytest.raises(RegardError) as error:
        model(Batch(batch.source, batch.source_lengths))
    assert str(error.value) == "Transformer: batch has no targets; use start and step to decode without them"
    with pytest.raises(RegardError) as error:
        model.start(batch, capacity=7)
    assert str(error.value) == "positions: 7 positions exceed the maximum of 6"
    with pytest.raises(RegardError) as error:
        model.start(batch, capacity=3, copies=0)
    assert str(error.value) == "Transformer: copies must be at least 1, got 0"
