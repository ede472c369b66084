import subprocess
import sys
import threading

import pytest
import torch

from regard import RegardError, watch
from regard.attention.analysis import induction, rollout, span
from regard.attention.call import TILE_NUMBERS
from tests.interop.tiny_models import (
    DECODERS,
    ENCODERS,
    GPT2,
    LLAMA,
    LLAMA_GROUPED,
    MARIAN,
    MISTRAL,
    PAIRS,
    TOKENS,
    Tiny,
    batch,
    eager,
)
from tests.sizes import Sizes

transformers = pytest.importorskip("transformers")

CACHES = ["dynamic", "static"]


def real_rows(weights, mask):
    """Return the rows of queries that are not padding; eager gives padding equal weights."""
    return weights.transpose(1, 2)[mask.bool()]


def written(model, inputs, **how):
    settings = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False} | how
    torch.manual_seed(3)
    return model.generate(**inputs, **settings)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_weights_and_outputs_are_those_of_eager(name, side):
    tiny = (DECODERS | ENCODERS)[name]
    model, inputs = tiny.new(), batch(side=side)
    with torch.no_grad(), watch(model) as seen:
        actual = model(**inputs)
    expected, mask = eager(model, **inputs), inputs["attention_mask"]
    torch.testing.assert_close(actual[0][mask.bool()], expected[0][mask.bool()])
    assert len(seen) == len(expected.attentions) == 2
    for layer, weights in enumerate(expected.attentions):
        (call,) = seen[tiny.paths["attentions"].format(layer)]
        assert call.shape == weights.shape
        torch.testing.assert_close(real_rows(call.dense(), mask), real_rows(weights, mask))


@pytest.mark.parametrize("tiny", [GPT2, LLAMA_GROUPED])
def test_rollout_and_measures_are_those_of_eager(tiny):
    model, inputs = tiny.new(), batch(side="left")
    names = ("sink", "previous", span(2, 4), induction(inputs["input_ids"]))
    with torch.no_grad(), watch(model) as seen, watch(model, names) as kept:
        model(**inputs)
    matrices = eager(model, **inputs).attentions
    shares = torch.eye(matrices[0].shape[-1])[-1:].expand(len(matrices[0]), 1, -1)
    for matrix in reversed(matrices):
        shares = (shares @ matrix.mean(1) + shares) / 2
    torch.testing.assert_close(rollout(seen), shares[:, 0])
    for matrix, ((first, before, part, follow),) in zip(matrices, kept.values(), strict=True):
        torch.testing.assert_close(first[..., -1], matrix[..., -1, 0])
        torch.testing.assert_close(before[..., -1], matrix[..., -1, -2])
        torch.testing.assert_close(part[..., -1], matrix[..., -1, 2:4].sum(-1))
        assert follow.shape == first.shape


@pytest.mark.parametrize("name", PAIRS)
def test_weights_of_encoder_and_decoder_are_those_of_eager(name):
    model, inputs = PAIRS[name].new(), batch(side="right")
    inputs |= {"decoder_input_ids": batch(length=5)["input_ids"][:, :5], "decoder_attention_mask": torch.ones(2, 5)}
    with torch.no_grad(), watch(model) as seen:
        actual = model(**inputs)
    expected = eager(model, **inputs)
    torch.testing.assert_close(actual.logits, expected.logits)
    assert len(seen) == 6
    for kind, path in PAIRS[name].paths.items():
        for layer, weights in enumerate(expected[kind]):
            (call,) = seen[path.format(layer)]
            torch.testing.assert_close(call.dense(), weights)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", DECODERS)
def test_steps_joined_are_one_pass_over_what_was_written(name, cache, sampled):
    model, inputs = DECODERS[name].new(), batch()
    plain = written(model, inputs, cache_implementation=cache, do_sample=sampled)
    with watch(model) as seen:
        tokens = written(model, inputs, cache_implementation=cache, do_sample=sampled)
    assert torch.equal(tokens, plain)
    mask = torch.cat([inputs["attention_mask"], torch.ones(2, 5, dtype=torch.long)], 1)
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    expected = eager(model, input_ids=tokens[:, :-1], attention_mask=mask, position_ids=positions)
    for layer, weights in enumerate(expected.attentions):
        path = DECODERS[name].paths["attentions"].format(layer)
        assert [call.shape[-2] for call in seen[path]] == [9, 1, 1, 1, 1, 1]
        whole = seen.join_steps(path)
        assert whole.shape == weights.shape == (2, 4, 14, 14)
        torch.testing.assert_close(real_rows(whole.dense(), mask), real_rows(weights, mask))
        torch.testing.assert_close(whole[1, 2, 3:12:4], weights[1, 2, 3:12:4])
        values, indices = whole.top(3)
        torch.testing.assert_close(real_rows(values, mask), real_rows(weights.topk(3).values, mask))
        torch.testing.assert_close(
            real_rows(weights.gather(-1, indices.clamp_min(0)).where(indices >= 0, 0.0), mask), real_rows(values, mask)
        )


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_translation_joined_is_one_forced_pass(name, cache):
    model, inputs = PAIRS[name].new(), batch(side="right")
    plain = written(model, inputs, cache_implementation=cache)
    with watch(model, "dense") as seen:
        tokens = written(model, inputs, cache_implementation=cache)
    assert torch.equal(tokens, plain)
    expected = eager(model, **inputs, decoder_input_ids=tokens[:, :-1])
    for kind, path in PAIRS[name].paths.items():
        for layer, weights in enumerate(expected[kind]):
            torch.testing.assert_close(seen.join_steps(path.format(layer)), weights)


BLOOM = Tiny("BloomForCausalLM", "BloomConfig", TOKENS | {"hidden_size": 32, "n_layer": 2, "n_head": 4})
GEMMA_2 = Tiny("Gemma2ForCausalLM", "Gemma2Config", LLAMA | {"head_dim": 8})
GPT_OSS = Tiny("GptOssForCausalLM", "GptOssConfig", LLAMA | {"head_dim": 8, "num_local_experts": 4})
FALCON = Tiny("FalconForCausalLM", "FalconConfig", LLAMA | {"alibi": True})
ALL = DECODERS | ENCODERS | PAIRS | {"bloom": BLOOM, "gemma2": GEMMA_2, "gpt-oss": GPT_OSS, "falcon": FALCON}


@pytest.mark.parametrize("name", ALL)
def test_looking_changes_no_bit_of_a_training_step(name):
    model, inputs = ALL[name].new(), batch(side="right")
    inputs |= {"decoder_input_ids": inputs["input_ids"][:, :5]} if name in PAIRS else {}
    model.train()

    def step():
        model.zero_grad()
        torch.manual_seed(0)
        output = model(**inputs)[0]
        output.square().sum().backward()
        gradients = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
        return {"output": output.detach(), "state": torch.get_rng_state()} | gradients

    plain = step()
    with watch(model, "top:2") as seen:
        watched = step()
    assert plain.keys() == watched.keys()
    assert all(torch.equal(plain[key], watched[key]) for key in plain)
    assert len(seen) == len(seen.report().seen) >= 2
    assert seen.report().unseen == ()


@pytest.mark.parametrize("how", [{}, {"do_sample": True, "cache_implementation": "static"}, {"num_beams": 2}])
@pytest.mark.parametrize("tiny", [BLOOM, GEMMA_2, GPT_OSS], ids=["bloom", "gemma2", "gpt-oss"])
def test_looking_changes_no_word_of_a_model_with_attention_of_its_own(tiny, how):
    model, inputs = tiny.new(), batch()
    plain = written(model, inputs, **how)
    with watch(model) as seen:
        assert torch.equal(written(model, inputs, **how), plain)
    assert [len(calls) for calls in seen.values()] == [6, 6]


KEPT = {
    "dense": lambda dense: dense,
    "received": lambda dense: dense.sum(-2),
    "entropy": lambda dense: torch.special.entr(dense).sum(-1),
    "argmax": lambda dense: dense.argmax(-1),
}


@pytest.mark.parametrize("keep", [*KEPT, "top:3"])
@pytest.mark.parametrize("cache", CACHES)
def test_what_is_kept_of_steps_is_joined_by_position(cache, keep):  # also where a cache has dropped the first keys
    model, inputs = MISTRAL.new(), batch(pads=0)
    with watch(model) as seen, watch(model, keep) as kept:
        tokens = written(model, inputs, cache_implementation=cache)
    expected = eager(model, input_ids=tokens[:, :-1]).attentions
    for path, dense in zip(seen, expected, strict=True):
        if keep == "top:3":
            values, indices = kept.join_steps(path)
            torch.testing.assert_close(values, dense.topk(3).values)
            torch.testing.assert_close(dense.gather(-1, indices.clamp_min(0)).where(indices >= 0, 0.0), values)
        else:
            torch.testing.assert_close(kept.join_steps(path), KEPT[keep](dense))


def test_weights_of_a_static_cache_stay_what_they_were():
    model, inputs = LLAMA_GROUPED.new(), batch(pads=0)
    with torch.inference_mode():  # in-place changes go unnoticed here
        with watch(model) as seen, watch(model, "dense") as at_once:
            written(model, inputs, cache_implementation="static")
        for path in seen:
            torch.testing.assert_close([call.dense() for call in seen[path]], at_once[path])


def test_beams_are_refused():
    model, inputs = GPT2.new(), batch()
    plain = written(model, inputs, num_beams=3)
    with watch(model) as seen:
        assert torch.equal(written(model, inputs, num_beams=3), plain)
    assert len(seen["transformer.h.0.attn"]) == 6
    with pytest.raises(RegardError) as error:
        seen.join_steps("transformer.h.0.attn")
    assert str(error.value) == (
        "join_steps: 'transformer.h.0.attn': beam search reordered the batch between calls, so rows belong to "
        "different hypotheses; watch one forced pass over the result instead"
    )
    with watch(model) as seen:
        written(model, inputs)
    assert seen.join_steps("transformer.h.0.attn").shape == (2, 4, 14, 14)


def test_the_encoder_of_a_beam_is_seen_whole():
    model = MARIAN.new()
    with watch(model, "dense") as seen:
        written(model, batch(side="right"), num_beams=2)
    assert seen.join_steps("model.encoder.layers.0.self_attn").shape == (2, 4, 9, 9)
    with pytest.raises(RegardError, match="beam search reordered the batch"):
        seen.join_steps("model.decoder.layers.0.encoder_attn")


@pytest.mark.parametrize("tiny", [GPT2, MARIAN], ids=["gpt2", "marian"])
def test_steps_without_a_cache_are_refused(tiny):
    model = tiny.new()
    with watch(model, "entropy") as seen:
        written(model, batch(), use_cache=False)
    for name, path in tiny.paths.items():
        if name != "encoder_attentions":
            with pytest.raises(RegardError, match=r"only greedy or sampled steps with a cache can be joined$"):
                seen.join_steps(path.format(0))


def test_one_that_watches_may_go_before_another():
    model, inputs, entered, gone = GPT2.new(), batch(), threading.Event(), threading.Event()
    sizes = []

    def run():
        entered.wait()
        with watch(model, "argmax") as seen:
            gone.set()
            first.join()
            model(**inputs)
        sizes.extend(map(len, seen.values()))

    def run_first():
        with watch(model):
            entered.set()
            gone.wait()

    first, second = threading.Thread(target=run_first), threading.Thread(target=run)
    first.start()
    second.start()
    second.join()
    assert sizes == [1, 1]
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_each_thread_sees_its_own_calls():
    model, actual, barrier = LLAMA_GROUPED.new(), {}, threading.Barrier(2)

    def run(size):
        with torch.no_grad(), watch(model, "argmax") as seen:
            barrier.wait()
            for _ in range(4):
                model(**batch(size))
            barrier.wait()
        actual[size] = [len(call) for path in seen for call in seen[path]]

    threads = [threading.Thread(target=run, args=(size,)) for size in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == {1: [1] * 8, 2: [2] * 8}


def test_a_part_and_a_model_inside_a_model_are_seen():
    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.reader = GPT2.new()

        def forward(self, **inputs):
            return self.reader(**inputs).logits

    mine, inputs = Mine(), batch()
    with torch.no_grad(), watch(mine, "dense") as seen, watch(mine.reader.transformer.h[1], "dense") as part:
        mine(**inputs)
    assert list(seen) == ["reader.transformer.h.0.attn", "reader.transformer.h.1.attn"]
    assert list(part) == ["attn"]
    torch.testing.assert_close(part["attn"], seen["reader.transformer.h.1.attn"])


def test_nothing_is_compiled_meanwhile():
    model, inputs, graphs = LLAMA_GROUPED.new(), batch(), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    def write():
        how = transformers.CompileConfig(backend=backend, mode=None, fullgraph=False)
        how._compile_all_devices = True
        return written(model, inputs, cache_implementation="static", compile_config=how)

    with watch(model, "argmax") as seen:
        tokens = write()
    assert graphs == []
    assert [len(calls) for calls in seen.values()] == [6, 6]
    assert torch.equal(write(), tokens)
    assert graphs  # as without watch


def test_a_training_step_with_checkpoints_is_seen():
    model, inputs = GPT2.new(), batch()
    model.gradient_checkpointing_enable()
    model.train()
    with watch(model, "dense") as seen:
        model(**inputs, labels=inputs["input_ids"], output_attentions=True).loss.backward()
    calls = seen["transformer.h.0.attn"]
    assert len(calls) == 2  # forward, and again for backward
    torch.testing.assert_close(*calls)
    assert model.transformer.h[0].attn.c_attn.weight.grad.abs().sum() > 0


def test_gradients_are_those_of_eager():
    model, inputs = LLAMA_GROUPED.new(), batch(pads=0)
    weight = model.model.layers[0].self_attn.k_proj.weight
    with watch(model, "dense", grad=True) as seen:
        logits = model(**inputs).logits
    (actual,) = torch.autograd.grad(logits.square().sum() + seen["model.layers.1.self_attn"][0].square().sum(), weight)
    model.set_attn_implementation("eager")
    plain = model(**inputs, output_attentions=True)
    (expected,) = torch.autograd.grad(plain.logits.square().sum() + plain.attentions[1].square().sum(), weight)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_packed_texts_do_not_see_each_other():
    model = GPT2.new()
    inputs = {"input_ids": batch(1, pads=0)["input_ids"], "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]])}
    with torch.no_grad(), watch(model, "dense") as seen:
        model(**inputs, use_cache=False)
    expected = eager(model, **inputs, use_cache=False).attentions
    assert expected[0][0, 0, 8, 0] == 0
    torch.testing.assert_close([calls[0] for calls in seen.values()], list(expected))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_of_the_users_own_is_heeded(kind):
    model, tokens = LLAMA_GROUPED.new(), batch(pads=0)["input_ids"]
    visible = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(2)) < 0.6
    visible |= torch.eye(9, dtype=torch.bool)
    added = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    with torch.no_grad(), watch(model, "dense") as seen:
        model(tokens, attention_mask=visible if kind == "bool" else added)
    expected = eager(model, input_ids=tokens, attention_mask=added).attentions
    torch.testing.assert_close([calls[0] for calls in seen.values()], list(expected))


def test_a_model_of_the_users_own_is_seen():
    class Mine(transformers.PreTrainedModel):
        config_class = transformers.LlamaConfig

        def __init__(self, config):
            super().__init__(config)
            self.reader = transformers.LlamaModel(config)

        def forward(self, **inputs):
            return self.reader(**inputs)

    Mine.__module__ = "notebook"  # its source is not available
    model = Mine(transformers.LlamaConfig(**LLAMA_GROUPED.settings)).eval()
    assert not Mine._can_set_attn_implementation()
    with torch.no_grad(), watch(model, "argmax") as seen:
        model(**batch())
    assert list(seen) == ["reader.layers.0.self_attn", "reader.layers.1.self_attn"]


def test_half_precision_is_watched():
    model, inputs = LLAMA_GROUPED.new().to(torch.bfloat16), batch()
    with torch.no_grad(), watch(model, "dense") as seen:
        actual = model(**inputs).logits
    expected, mask = eager(model, **inputs), inputs["attention_mask"]
    torch.testing.assert_close(actual[mask.bool()], expected.logits[mask.bool()], rtol=0.05, atol=0.3)
    (first, *_), *_ = seen.values()
    torch.testing.assert_close(
        real_rows(first, mask), real_rows(expected.attentions[0].float(), mask), rtol=0.02, atol=0.02
    )


def test_watching_other_models_does_not_import_transformers():
    program = (
        "import sys, torch, regard\n"
        "with regard.watch(torch.nn.Linear(1, 1)): assert not {'transformers', 'torch._dynamo'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("window", [None, 64])
def test_nothing_of_queries_times_keys_is_made_but_the_models_own_mask(window, monkeypatch):
    monkeypatch.setattr("regard.attention.kernels.sdpa.MASK_NUMBERS", 2**16)  # size of a block of rows
    monkeypatch.setitem(TILE_NUMBERS, "cpu", 2**16)
    length = 1200
    tiny = MISTRAL if window else LLAMA_GROUPED
    model = tiny.new(max_position_embeddings=length, sliding_window=window)
    inputs = batch(2, length, pads=100)
    with torch.no_grad(), Sizes() as plain:
        model.model(**inputs, use_cache=False)
    with torch.no_grad(), Sizes() as sizes, watch(model, "top:4") as seen:
        model.model(**inputs, use_cache=False)
    assert [call[0].shape for (call,) in seen.values()] == [(2, 4, length, 4)] * 2
    assert plain.most == 2 * length**2  # the mask that the model makes for itself
    assert sizes.most == plain.most
