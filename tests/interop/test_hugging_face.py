"""`regard look hf:FOLDER` and `regard heads hf:FOLDER` on small models saved to folders."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard import RegardError
from regard.cli import main
from tests.interop.tiny_models import BERT, GPT2, T5, eager

pytest.importorskip("transformers")

from tests.maps.tiny_tokenizers import of_bytes, of_sentence_pieces, of_word_pieces

TEXT = "the animal sees it the animal"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model, tokenizer in (
        ("gpt2", GPT2.new(vocab_size=300), of_bytes()),
        ("bert", BERT.new(), of_word_pieces()),
        ("t5", T5.new(), of_sentence_pieces()),
    ):
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


def run(capsys, *words):
    assert main([*map(str, words), "--device", "cpu"]) == 0
    return capsys.readouterr()


def refuse(capsys, *words):
    assert main(list(map(str, words))) == 2
    return capsys.readouterr().err


def test_look_shows_what_python_shows(folders, tmp_path, capsys):
    run(capsys, "look", f"hf:{folders}/gpt2", TEXT, "--tokens", "--json", tmp_path / "map.json")
    picture = regard.look(GPT2.new(vocab_size=300), of_bytes(), TEXT, words=False)
    saved = regard.AttentionMap.load(tmp_path / "map.json")
    assert saved.rows == picture.rows
    np.testing.assert_allclose(saved.weights, picture.weights, atol=1e-6)


def test_look_at_an_encoder_and_at_both_sides(folders, capsys):
    assert run(capsys, "look", f"hf:{folders}/bert", TEXT).out.startswith("BertModel: the animal sees it the animal")
    out = run(capsys, "look", f"hf:{folders}/t5", TEXT, "--target", "das tier", "--kind", "cross").out
    assert out.startswith("T5ForConditionalGeneration: the animal sees it the animal → das tier")
    assert refuse(capsys, "look", f"hf:{folders}/bert", TEXT, "--target", "das") == (
        "regard: look: target is not an option of BertModel, which has no decoder\n"
    )


@pytest.mark.parametrize(("tiny", "name", "tokenizer"), [(GPT2, "gpt2", of_bytes), (BERT, "bert", of_word_pieces)])
def test_heads_follow_from_eager_attention(tiny, name, tokenizer, folders, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    run(capsys, "heads", f"hf:{folders}/{name}", "--text", tmp_path / "text.txt", "--json", tmp_path / "heads.json")
    record = json.loads((tmp_path / "heads.json").read_text())
    ids = tokenizer()(TEXT, return_tensors="pt")["input_ids"]
    model = tiny.new(vocab_size=300) if tiny is GPT2 else tiny.new()
    weights = torch.stack(eager(model, input_ids=ids).attentions)[:, 0].double()
    assert record["tokens"] == record["queries"] == ids.shape[1]
    got = {measure: [layer[measure] for layer in record["layers"]] for measure in ("previous", "entropy", "first")}
    np.testing.assert_allclose(got["entropy"], torch.special.entr(weights).sum(-1).mean(-1), rtol=1e-4)
    np.testing.assert_allclose(got["first"], weights[..., 1:, 0].mean(-1), rtol=1e-4)
    np.testing.assert_allclose(got["previous"], weights.diagonal(-1, -2, -1).mean(-1), rtol=1e-4)


@pytest.mark.parametrize("queries", [0, -1])
def test_queries_of_heads_must_be_counted(queries):
    with pytest.raises(RegardError) as error:
        regard.heads(nn.Embedding(5, 4).eval(), torch.arange(4)[None], queries=queries)
    assert str(error.value) == f"heads: queries must be a positive integer, got {queries}"


def test_heads_of_an_encoder_with_decoder_in_python(folders):
    ids = torch.tensor([[3, 4, 5, 6, 7, 3, 4, 2]])
    scores = regard.heads(T5.new(), ids)
    assert scores.caption == "T5ForConditionalGeneration, encoder: 8 tokens"
    assert scores.layers == ("block.0.layer.0.SelfAttention", "block.1.layer.0.SelfAttention")
    both = regard.heads(T5.new(), torch.cat([ids, ids.flip(1)]), queries=5)
    assert both.select("distance").shape == (2, 4)
    assert both.queries == 5


def test_a_long_text_is_cut_with_a_note(folders, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT + "\n" + TEXT * 9)
    out, err = run(capsys, "heads", f"hf:{folders}/gpt2", "--text", tmp_path / "text.txt", "--sort", "induction")
    total = len(of_bytes()(TEXT + "\n" + TEXT * 9)["input_ids"])
    assert err == f"note: {tmp_path}/text.txt has {total} tokens; the first 64 are read\n"
    values = [float(line.split()[5]) for line in out.splitlines()[3:]]
    assert len(values) == 8
    assert values == sorted(values, reverse=True)


def test_what_does_not_fit_is_said(folders, tmp_path, capsys, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    gpt2 = f"hf:{folders}/gpt2"
    for words, line in (
        (["look", "hf:nowhere", "a"], "nowhere: not found; expected a local folder with a Hugging Face model"),
        (["look", f"hf:{folders}", "a"], f"{folders} is not a Hugging Face model: config.json is missing"),
        (["predict", gpt2], f"predict is for runs of regard; {gpt2} can be given to look and heads"),
        (["heads", gpt2], "heads: --text is required: a text file, or - for stdin"),
        (["heads", gpt2, "--text", "a.txt", "--png", "a.svg"], "--png: expected a file that ends in .png, got a.svg"),
    ):
        assert refuse(capsys, *words) == f"regard: {line}\n"
    assert refuse(capsys, "look", f"hf:{tmp_path}", "a").startswith(
        f"regard: {tmp_path}: Transformers cannot load it: "
    )
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert refuse(capsys, "look", gpt2, "a") == (
        "regard: models of Hugging Face require transformers: pip install transformers\n"
    )


def test_parameters_that_are_missing_are_said(tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    GPT2.new(vocab_size=300).save_pretrained(tmp_path)
    of_bytes().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.h.1.attn.c_attn.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert refuse(capsys, "look", f"hf:{tmp_path}", "a") == (
        f"regard: {tmp_path}: parameters are missing, such as transformer.h.1.attn.c_attn.weight\n"
    )


def test_what_is_not_for_heads_is_said(monkeypatch):
    model = GPT2.new(vocab_size=300)
    for arguments, message in (
        (("runs/x", "a"), "heads: expected a language model from regard.load or a module, got str"),
        ((model, torch.zeros(3)), "heads: expected token ids of shape (texts, tokens) after the model"),
        ((model, torch.zeros(1, 1).long()), "heads: the text must have at least 2 tokens, got 1"),
        ((model, torch.zeros(1, 65).long()), "heads: the text must have at most 64 tokens for GPT2LMHeadModel, got 65"),
        (
            (torch.nn.Embedding(9, 3).eval(), torch.zeros(1, 4).long()),
            "heads: Embedding has no self-attention over the tokens of a text",
        ),
    ):
        with pytest.raises(RegardError) as error:
            regard.heads(*arguments)
        assert str(error.value) == message
    with pytest.raises(RegardError) as error:
        regard.heads(model.train(), torch.zeros(1, 4).long())
    assert str(error.value) == "heads: the model is in training mode; call model.eval() first"
