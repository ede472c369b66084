import json
import os

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard import RegardError
from regard.batch import BOS, EOS, UNKNOWN
from regard.files import serialize_tensors
from regard.interop.gpt2 import Gpt2Checkpoint, export_gpt2, import_gpt2, read_gpt2, write_gpt2
from regard.models.gpt import Gpt, GptConfig
from regard.run import Run
from regard.settings import parse_settings, to_toml
from regard.text import KINDS, TextSteps, TokenizerPair, learn_tokenizer
from regard.text.learn import learn_lm_tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"  # no network access
transformers = pytest.importorskip("transformers")

TEXTS = [
    "the little dog doesn't see the cat",
    "l'été, naïve Zoë, 12 + 345 = 357\n\nthe cat",
    "सीता ने देखा  两只 猫 ☃☃",
] * 4
END = "<|endoftext|>"
any_text = st.text(max_size=40) | st.lists(st.sampled_from([*TEXTS[0].split(), " ", "\n", "é", "☃"])).map("".join)


def new_tokenizer(first):
    """A real tokenizer of GPT-2's kind; the special token is its first or, as with GPT-2, its last."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=299 + first, special_tokens=[END] if first else [], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    model.train_from_iterator(TEXTS, trainer)
    model.add_special_tokens([END])
    return model


def new_folder(path, first=False, **settings):
    """A GPT-2 with random parameters, written by Transformers."""
    tokenizer = new_tokenizer(first)
    end = tokenizer.token_to_id(END)
    assert end == (0 if first else tokenizer.get_vocab_size() - 1)
    shape = {"n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": end, "eos_token_id": end}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**{"vocab_size": tokenizer.get_vocab_size(), **shape, **settings})
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    model.save_pretrained(path)
    fast = transformers.GPT2TokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END)
    fast.save_pretrained(path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "gpt2"
    new_folder(path)
    return path


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    return import_gpt2(folder, tmp_path_factory.mktemp("runs") / "gpt2")


def load_model(run):
    """The model of a run, built from its files alone."""
    table = run.read_recipe()["model"]
    assert table.pop("name") == "gpt2"
    size = TokenizerPair.load(run.tokenizer_file).target.size
    model = Gpt(parse_settings(GptConfig, {"vocab_size": size, **table}, "recipe"))
    model.load_state_dict(run.read_parameters())
    return model.eval()


def our_numbers(reference, end):
    """Return the id in regard of each of GPT-2's tokens."""
    return [EOS if number == end else number + 4 - (number > end) for number in range(reference)]


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        (False, {}),
        (True, {}),
        (False, {"tie_word_embeddings": False, "n_inner": 20, "activation_function": "relu"}),
        (True, {"scale_attn_weights": False, "activation_function": "gelu"}),
    ],
)
def test_a_run_gives_each_token_the_probability_that_gpt_2_gives_it(first, settings, tmp_path):
    reference = new_folder(tmp_path / "gpt2", first, **settings)
    model = load_model(import_gpt2(tmp_path / "gpt2", tmp_path / "run"))
    size, end = reference.config.vocab_size, reference.config.eos_token_id
    converted = torch.tensor(our_numbers(size, end))
    tokens = torch.randint(size, (3, 16))
    with torch.no_grad():
        actual, expected = model(converted[tokens])[0], reference(tokens).logits
        torch.testing.assert_close(actual[..., converted], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(actual.softmax(-1)[..., converted], expected.softmax(-1))
        prefix = converted[tokens]
        prefix[:, 0], tokens[:, 0] = BOS, end
        torch.testing.assert_close(model(prefix)[0][..., converted], reference(tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("first", "tied"), [(False, True), (True, True), (True, False)])
def test_there_and_back_is_the_same(first, tied, tmp_path):
    reference = new_folder(tmp_path / "gpt2", first, tie_word_embeddings=tied)
    import_gpt2(tmp_path / "gpt2", tmp_path / "run")
    export_gpt2(tmp_path / "run", tmp_path / "back")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    expected, actual = reference.state_dict(), back.state_dict()
    assert expected.keys() == actual.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    files = [load_file(tmp_path / name / "model.safetensors") for name in ("gpt2", "back")]
    assert files[0].keys() == files[1].keys()
    tokens = torch.randint(reference.config.vocab_size, (2, 9))
    assert torch.equal(back(tokens).logits, reference(tokens).logits)
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("gpt2", "back")]
    assert {name: configs[0][name] for name in configs[1]} == configs[1]
    before, after = (transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("gpt2", "back"))
    assert before.get_vocab() == after.get_vocab()
    for text in (*TEXTS, f"a{END} b"):
        assert after(text).input_ids == before(text).input_ids
        assert after.decode(after(text).input_ids) == text


def test_what_was_tuned_is_written_as_it_is(run, tmp_path):
    gpt2 = read_gpt2(run.read_card()["imported"]["folder"])
    parameters = dict(gpt2.parameters)
    parameters["embedding.weight"] = parameters["embedding.weight"].clone()
    parameters["embedding.weight"][BOS] += 1  # learned, as every text begins with it
    write_gpt2(tmp_path / "tuned", gpt2._replace(parameters=parameters))
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "tuned")
    model = Gpt(gpt2.config).eval()
    model.load_state_dict(parameters)
    converted = torch.tensor(our_numbers(reference.config.vocab_size, gpt2.end.number))
    tokens = torch.randint(gpt2.end.number, (2, 9))
    prefix = converted[tokens]
    prefix[:, 0], tokens[:, 0] = BOS, gpt2.end.number
    with torch.no_grad():
        torch.testing.assert_close(model(prefix)[0][..., converted], reference(tokens).logits, atol=1e-5, rtol=1e-5)


def test_a_run_is_like_any_other(run, folder):
    card = run.read_card()
    assert {name: card[name] for name in ("task", "model", "vocabulary")} == {
        "task": "text", "model": "gpt2", "vocabulary": {"source": 303, "target": 303},
    }  # fmt: skip
    assert card["imported"] == {"folder": str(folder), "number": 299, "token": END}
    assert card["parameters"] == sum(parameter.numel() for parameter in load_model(run).parameters())
    assert set(card["sha256"]) == {"recipe.toml", "tokenizer.json", "model.safetensors"}
    recipe = run.read_recipe()
    assert recipe["text"]["tokenizer"] == "bpe"
    assert (recipe["model"]["mute"], recipe["model"]["context_length"], recipe["model"]["dropout"]) == (
        [0, 1, 2],
        16,
        0.1,
    )
    assert TokenizerPair.load(run.tokenizer_file).shared_vocab


@pytest.fixture(scope="module")
def both_tokenizers(run, folder):
    return TokenizerPair.load(run.tokenizer_file).target, transformers.AutoTokenizer.from_pretrained(folder)


@given(text=any_text)
def test_texts_are_cut_as_gpt_2_cuts_them(both_tokenizers, text):
    converted, reference = both_tokenizers
    ids = converted.encode(text)
    assert ids == [number + 4 for number in reference(text).input_ids]
    assert converted.decode(ids) == text
    assert "".join(converted.encode_with_words(text).tokens) == "".join(converted.ids_to_tokens(ids))


def test_no_space_is_put_before_a_text_and_no_text_is_taken_for_the_end(both_tokenizers):
    converted, reference = both_tokenizers
    assert not converted.starts_with_space
    assert converted.ids_to_tokens(converted.encode("the the")) == ["the", "▁the"]
    assert converted.decode(converted.encode(" the")) == " the"
    assert min(converted.encode(END)) > EOS
    assert converted.encode(END) == [number + 4 for number in reference(END, split_special_tokens=True).input_ids]
    assert sorted(converted.encode("the cat", dropout=1.0)) == sorted(converted.encode(c)[0] for c in "the cat")
    assert converted.decode(converted.encode("the cat", dropout=0.5)) == "the cat"


def test_a_folder_may_be_of_another_form(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(folder / "model.safetensors")
    plain = {
        name.removeprefix("transformer."): tensor for name, tensor in tensors.items()
    }  # as in OpenAI's checkpoints
    plain["h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    names = sorted(plain)
    parts = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in parts.items():
        save_file({name: plain[name] for name in part}, other / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (other / "model.safetensors.index.json").write_text(json.dumps(index))
    (other / "config.json").write_text((folder / "config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    content = json.loads(tokenizer.to_str())["model"]
    (other / "vocab.json").write_text(json.dumps(tokenizer.get_vocab()))
    (other / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in content["merges"]))
    expected, actual = read_gpt2(folder), read_gpt2(other)
    assert (actual.config, actual.end) == (expected.config, expected.end)
    assert actual.parameters.keys() == expected.parameters.keys()
    assert all(torch.equal(actual.parameters[name], tensor) for name, tensor in expected.parameters.items())
    assert json.loads(actual.tokenizer.model.to_str()) == json.loads(expected.tokenizer.model.to_str())


@pytest.mark.parametrize("learned", [learn_tokenizer, learn_lm_tokenizer])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_trained_here_loads_there(kind, learned, tmp_path):
    tokenizer = learned(kind, TEXTS, vocab_size=None if kind == "bytes" else 300)
    bias = kind != "words"
    shape = {
        "width": 12,
        "heads": 2,
        "layers": 2,
        "context_length": 16,
        "norm": "pre",
        "bias": bias,
        "tied": kind != "bpe",
    }
    run = our_run(tmp_path / "run", tokenizer, **shape)
    export_gpt2(run.path, tmp_path / "hub")
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hub")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    tokens = torch.randint(tokenizer.size, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(reference(tokens).logits, load_model(run)(tokens)[0], atol=1e-5, rtol=1e-5)
    assert (reference.config.bos_token_id, reference.config.eos_token_id, reference.config.pad_token_id) == (2, 3, 0)
    assert (reader.bos_token_id, reader.eos_token_id, reader.pad_token_id, reader.unk_token_id) == (2, 3, 0, 1)
    for text in (*TEXTS[:2], "the <eos> the", "", "the cat"):
        ids = reader(text).input_ids
        assert ids == [BOS, *tokenizer.encode(text)]
        known = [number for number in ids if number != UNKNOWN]  # in Transformers, <unk> is special too
        assert reader.decode([*ids, EOS], skip_special_tokens=True) == tokenizer.decode(known)


def our_run(path, tokenizer, **settings):
    """A run with random parameters."""
    torch.manual_seed(0)
    model = Gpt(GptConfig(vocab_size=tokenizer.size, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    run = Run(path)
    files = {
        "recipe.toml": to_toml({"model": {"name": "gpt2", **settings}}).encode(),
        "tokenizer.json": TokenizerPair(tokenizer, tokenizer).to_json().encode(),
        "model.safetensors": serialize_tensors(model.state_dict()),
    }
    run.write_files({"task": "text", "model": "gpt2"}, files)
    return run


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "post"}, 'cannot export norm = "post"; GPT-2 supports only "pre"'),
        ({"positions": "rotary"}, 'cannot export positions = "rotary"; GPT-2 supports only "learned"'),
        ({"score": "additive"}, 'cannot export score = "additive"; GPT-2 supports only "scaled_dot" or "dot"'),
        ({"head_width": 3}, "cannot export head_width = 3; GPT-2 supports only none"),
        ({"mute": (0,)}, "cannot export mute = [0]; GPT-2 cannot mute tokens"),
        ({"mute": (0, 1, 2)}, "cannot export mute = [0, 1, 2]; GPT-2 cannot mute tokens"),
    ],
)
def test_what_gpt_2_has_not_is_not_written(settings, message, tmp_path):
    run = our_run(
        tmp_path / "run", learn_tokenizer("bytes", []), width=8, heads=2, layers=1, context_length=4, **settings
    )
    with pytest.raises(RegardError) as error:
        export_gpt2(run.path, tmp_path / "hub")
    assert str(error.value) == message
    assert not (tmp_path / "hub").exists()


def test_an_export_that_cannot_be_is_said(run, tmp_path):
    with pytest.raises(RegardError) as error:
        export_gpt2(run.path, run.path)
    assert str(error.value) == f"{run.path} is not empty; choose another folder"
    tokenizer = learn_tokenizer("bytes", [], steps=TextSteps(lowercase=True))
    lower = our_run(tmp_path / "lower", tokenizer, width=8, heads=2, layers=1, context_length=4)
    with pytest.raises(RegardError) as error:
        export_gpt2(lower.path, tmp_path / "hub")
    assert str(error.value) == "cannot export a tokenizer with preprocessing steps; GPT-2 does not support them"
    lower.write_files(lower.read_card(), {"recipe.toml": b'[model]\nname = "lstm-lm"\n'})
    with pytest.raises(RegardError) as error:
        export_gpt2(lower.path, tmp_path / "hub")
    assert str(error.value) == f'{lower.path}: cannot export model "lstm-lm"; only "gpt2" is supported'


def copy_folder(folder, path):
    path.mkdir()
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "llama"}, 'cannot import model_type "llama"; only "gpt2" is supported'),
        (
            {"scale_attn_by_inverse_layer_idx": True},
            "cannot import scale_attn_by_inverse_layer_idx = true; only false is supported",
        ),
        ({"add_cross_attention": True}, "cannot import add_cross_attention = true; only false is supported"),
        ({"layer_norm_epsilon": 1e-6}, "cannot import layer_norm_epsilon = 1e-06; only 1e-05 is supported"),
        (
            {"activation_function": "silu"},
            'unknown activation_function "silu"; choose from gelu, gelu_new, gelu_pytorch_tanh, relu',
        ),
        (
            {"embd_pdrop": 0.2},
            "embd_pdrop and resid_pdrop must be equal, got 0.2 and 0.1; edit one of them, which affects only training",
        ),
        ({"vocab_size": 301}, "vocab_size must be the number of tokens in the tokenizer (300), got 301"),
        ({"eos_token_id": 50256}, "eos_token_id must be at least 0 and below 300, got 50256"),
        ({"bos_token_id": 1}, "bos_token_id and eos_token_id must be equal, got 1 and 299"),
        ({"n_head": 5}, "width must be divisible by heads, got 12 and 5"),
    ],
)
def test_settings_that_we_have_not_are_refused_by_name(settings, message, folder, tmp_path):
    path = copy_folder(folder, tmp_path / "gpt2")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **settings}))
    with pytest.raises(RegardError) as error:
        import_gpt2(path, tmp_path / "run")
    assert str(error.value) == f"{path / 'config.json'}: {message}"
    assert not (tmp_path / "run").exists()


def change_value(*path, to):
    """Return a function that changes one nested value of a tokenizer.json."""

    def change(content):
        inside = content
        for name in path[:-1]:
            inside = inside[name]
        inside[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            change_value("pre_tokenizer", "add_prefix_space", to=True),
            "pre_tokenizer add_prefix_space must be false for GPT-2, got true",
        ),
        (change_value("pre_tokenizer", to=None), 'pre_tokenizer type must be "ByteLevel" for GPT-2, got null'),
        (
            change_value("normalizer", to={"type": "Lowercase"}),
            'normalizer must be null for GPT-2, got {"type": "Lowercase"}',
        ),
        (change_value("model", "ignore_merges", to=True), "ignore_merges must be false for GPT-2, got true"),
        (
            change_value("added_tokens", 0, "special", to=False),
            'added tokens that are not special are not supported, got "<|endoftext|>"',
        ),
    ],
)
def test_tokenizers_of_another_kind_are_refused(change, message, folder, tmp_path):
    path = copy_folder(folder, tmp_path / "gpt2")
    content = json.loads((path / "tokenizer.json").read_text())
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == f"{path / 'tokenizer.json'}: {message}"


def test_tensors_that_do_not_fit_are_said(folder, tmp_path):
    path = copy_folder(folder, tmp_path / "gpt2")
    whole = load_file(path / "model.safetensors")

    def get_error(tensors):
        save_file(tensors, path / "model.safetensors")
        with pytest.raises(RegardError) as error:
            read_gpt2(path)
        return str(error.value)

    without = {name: tensor for name, tensor in whole.items() if name != "transformer.h.1.ln_2.bias"}
    assert get_error(without) == f"{path}: missing parameter h.1.ln_2.bias"
    assert get_error({**whole, "h.2.x": torch.ones(1)}) == f"{path}: unexpected parameter h.2.x, not part of GPT-2"
    assert get_error({**whole, "transformer.wpe.weight": torch.ones(5, 12)}) == (
        f"{path}: positions.table: expected shape (16, 12) by config.json, got (5, 12)"
    )
    assert get_error({**whole, "transformer.h.1.attn.c_attn.weight": torch.ones(12)}) == (
        f"{path}: h.1.attn.c_attn.weight: expected 2 axes, got shape (12,)"
    )
    assert get_error({**whole, "transformer.wpe.weight": torch.ones(16, 12, dtype=torch.int64)}) == (
        f"{path}: transformer.wpe.weight must have a float type, got int64"
    )
    (path / "model.safetensors").unlink()
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == f"cannot read {path / 'model.safetensors'}: not found"
    (path / "pytorch_model.bin").touch()
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == (
        f"{path}: cannot read pytorch_model.bin, which can run arbitrary code; convert it to model.safetensors "
        "with GPT2LMHeadModel.from_pretrained(folder).save_pretrained(other) of Transformers"
    )
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"wte.weight": "../x.safetensors"}}')
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == (
        f'{path / "model.safetensors.index.json"}: expected files in the same folder, got "../x.safetensors"'
    )
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"wte.weight": 3}}')
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == f"{path / 'model.safetensors.index.json'}: expected files in the same folder, got 3"
    (path / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == (
        f"{path / 'model.safetensors.index.json'}: weight_map must be an object of parameter names and files"
    )


def test_files_that_are_missing_or_broken_are_said(folder, run, tmp_path):
    with pytest.raises(RegardError) as error:
        import_gpt2(tmp_path / "none", tmp_path / "run")
    assert str(error.value) == f"cannot read {tmp_path / 'none' / 'config.json'}: not found"
    with pytest.raises(RegardError) as error:
        import_gpt2(folder, run.path)
    assert str(error.value) == f"{run.path} already contains a run; choose another folder"
    path = copy_folder(folder, tmp_path / "gpt2")
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(RegardError, match=rf"^{path / 'tokenizer.json'} is not valid JSON: "):
        read_gpt2(path)
    (path / "tokenizer.json").unlink()
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == f"{path}: expected tokenizer.json, or vocab.json and merges.txt; not found"
    (path / "config.json").write_text("[1]")
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == f"{path / 'config.json'}: expected a JSON object, got list"
    assert isinstance(read_gpt2(folder), Gpt2Checkpoint)


def test_sizes_beyond_any_memory_are_said(folder, tmp_path):
    path = copy_folder(folder, tmp_path / "gpt2")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "n_positions": 10**18}))
    with pytest.raises(RegardError) as error:
        read_gpt2(path)
    assert str(error.value) == (
        f"{path}/config.json: context_length must be at most 1,000,000, got 1,000,000,000,000,000,000"
    )
