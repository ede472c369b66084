"""What every preset declares as a `Model`."""

from typing import Any

import pytest
import torch
from torch import nn

from regard.attention.watch import watch
from regard.batch import Pair, collate
from regard.models import MODELS, Model, build
from regard.sentences import EncodedWord, LabelBatch, TagBatch, stack_texts

SIZES: dict[str, dict[str, Any]] = {
    "pairs": {"source_vocab_size": 11, "target_vocab_size": 9},
    "text": {"vocab_size": 11},
    "label": {"words": 11, "pieces": 7, "labels": ("A", "B"), "encoder": "both"},
    "tag": {"words": 11, "pieces": 7, "labels": ("A", "B")},
}
KINDS = {
    "pairs": {"seq2seq": [], "transformer": ["cross", "encoder", "decoder"]},
    "text": {"attentive-lm": ["self"], "gpt": ["self"], "gpt2": ["self"]},
    "label": {"attentive-classifier": ["pooling", "self"]},
    "tag": {"attentive-tagger": ["self"]},
}
USUAL = {"pairs": ["cross"], "text": []}
SENTENCES = stack_texts([(EncodedWord(5, (4, 5)), EncodedWord(6, (6,)))])
INPUTS: dict[str, Any] = {
    "pairs": collate([Pair([4, 5, 6], [7, 8])]),
    "text": torch.tensor([[2, 5, 6, 7]]),
    "label": LabelBatch((SENTENCES,), torch.tensor([0]), None, None),
    "tag": TagBatch(SENTENCES),
}


def new(name: str) -> Model:
    torch.manual_seed(0)
    return build(name, **SIZES[MODELS[name].task]).eval()


@pytest.mark.parametrize("name", MODELS)
def test_its_attentions_are_those_that_run(name):
    model, task = new(name), MODELS[name].task
    assert list(model.attentions) == KINDS[task].get(name, USUAL.get(task))
    with torch.no_grad(), watch(model) as seen:
        model(INPUTS[task])
    paths = [path for paths in model.attentions.values() for path in paths]
    assert set(seen) == set(paths)
    assert len(paths) == len(set(paths))
    assert model.default_attention == tuple(next(iter(model.attentions.values()), ()))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bahdanau", set()),
        ("attentive-lm", set()),
        ("transformer", {"encoder", "decoder"}),
        ("gpt", {"self"}),
        ("attentive-classifier", {"self"}),
        ("attentive-tagger", {"self"}),
    ],
)
def test_which_layers_are_a_residual_stack(name, kinds):
    assert new(name).residual_attentions == kinds


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_comes_from_the_input_embedding(name):
    model, task = new(name), MODELS[name].task
    assert any(module is model.input_embedding for module in model.modules())
    targets: list[Any] = []
    with model.input_embedding.register_forward_pre_hook(lambda _, given: targets.append(given[0])), torch.no_grad():
        model(INPUTS[task])
    own = {"pairs": INPUTS["pairs"].source, "text": INPUTS["text"]}.get(task, SENTENCES)
    assert (
        any(torch.equal(target[..., -own.shape[-1] :], own) for target in targets)
        if task in USUAL
        else targets == [own]
    )


@pytest.mark.parametrize(
    ("name", "settings", "input_side"),
    [("transformer", {"tied": "all"}, "target"), ("transformer", {}, "source"), ("seq2seq", {"tied": True}, "source")],
)
def test_a_shared_embedding_is_the_input_embedding(name, settings, input_side):
    model = build(name, source_vocab_size=9, target_vocab_size=9, **settings)
    assert model.input_embedding is model.get_submodule(f"{input_side}_embedding")
    assert isinstance(model.input_embedding, nn.Embedding)


@pytest.mark.parametrize(
    ("name", "settings", "most"),
    [
        ("bahdanau", {}, None),
        ("transformer", {}, None),
        ("transformer", {"positions": "learned", "max_length": 13}, 13),
        ("lstm-lm", {}, None),
        ("gpt", {"context_length": 13}, 13),
        ("attentive-classifier", {}, None),
        ("attentive-tagger", {}, None),
    ],
)
def test_how_much_it_can_read(name, settings, most):
    assert build(name, **SIZES[MODELS[name].task], **settings).max_length == most
