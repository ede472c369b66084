import math

import pytest
import torch

from regard import RegardError
from regard.layers.vocabulary import VocabularyLayer


def test_untied_it_is_an_embedding_and_a_linear_layer():
    torch.manual_seed(1)
    vocabulary = VocabularyLayer(7, 3, 5)
    tokens, features = torch.tensor([[2, 6], [0, 2]]), torch.randn(2, 4, 5)
    embedded = vocabulary.embed(tokens)
    assert torch.equal(embedded[0, 1], vocabulary.embedding.weight[6])
    assert not embedded[1, 0].any()
    expected = features @ vocabulary.output.weight.mT + vocabulary.output.bias
    torch.testing.assert_close(vocabulary(features), expected)
    shapes = {name: tuple(p.shape) for name, p in vocabulary.named_parameters()}
    assert shapes == {"embedding.weight": (7, 3), "output.weight": (7, 5), "output.bias": (7,)}


@pytest.mark.parametrize("features", [3, 5])
def test_tied_the_logits_are_products_with_the_vectors(features):
    torch.manual_seed(2)
    vocabulary = VocabularyLayer(7, 3, features, tied=True)
    torch.nn.init.normal_(vocabulary.bias)
    x = torch.randn(2, features)
    narrow = x if features == 3 else x @ vocabulary.project.weight.mT
    torch.testing.assert_close(vocabulary(x), narrow @ vocabulary.embedding.weight.mT + vocabulary.bias)
    assert {name for name, _ in vocabulary.named_parameters()} - {"project.weight"} == {"embedding.weight", "bias"}
    assert ("project.weight" in dict(vocabulary.named_parameters())) == (features == 5)


def test_padding_stays_nothing_though_the_output_learns_its_vector():
    vocabulary = VocabularyLayer(5, 2, 2, tied=True)
    vocabulary(torch.ones(1, 2)).sum().backward()
    assert vocabulary.embedding.weight.grad[0].any()
    vocabulary.embedding.weight.data += 1
    embedded = vocabulary.embed(torch.tensor([0, 3]))
    assert not embedded[0].any()
    assert embedded[1].any()
    vocabulary.zero_grad()
    vocabulary.embed(torch.tensor([0, 3])).sum().backward()
    assert vocabulary.embedding.weight.grad.sum(1).tolist() == [0, 0, 0, pytest.approx(2 * math.sqrt(2)), 0]


def test_the_start_has_variance_one_or_length_one():
    torch.manual_seed(3)
    free, tied = VocabularyLayer(500, 64, 64), VocabularyLayer(500, 64, 64, tied=True)
    assert not free.embedding.weight[0].any()
    assert free.embedding.weight[1:].var().item() == pytest.approx(1, rel=0.05)
    assert tied.embedding.weight[1:].norm(dim=1).mean().item() == pytest.approx(1, rel=0.05)
    assert tied.embed(torch.arange(1, 500)).var().item() == pytest.approx(1, rel=0.05)
    assert not tied.bias.any()


@pytest.mark.parametrize("tied", [False, True])
def test_embedding_dropout_drops_whole_tokens_in_training_alone(tied):
    torch.manual_seed(4)
    vocabulary = VocabularyLayer(1000, 3, 3, tied=tied, embedding_dropout=0.25)
    tokens = torch.arange(1, 1000).repeat(2, 1)
    vector = vocabulary.embedding.weight[1:] * (math.sqrt(3) if tied else 1)
    vectors = vocabulary.embed(tokens)
    assert torch.equal(vectors[0], vectors[1])  # a token is dropped at all positions
    dropped = (vectors[0] == 0).all(1)
    torch.testing.assert_close(vectors[0], torch.where(dropped[:, None], 0, vector / 0.75))
    assert abs(dropped.float().mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 999)
    assert not torch.equal(vocabulary.embed(tokens), vectors)
    torch.testing.assert_close(vocabulary.eval().embed(tokens)[0], vector)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VocabularyLayer(0, 3, 5), "VocabularyLayer: size must be at least 1, got 0"),
        (lambda: VocabularyLayer(7, 3, -1), "VocabularyLayer: features must be at least 1, got -1"),
        (
            lambda: VocabularyLayer(7, 3, 5, embedding_dropout=1.0),
            "VocabularyLayer: embedding_dropout must be at least 0 and below 1, got 1.0",
        ),
    ],
)
def test_what_cannot_be_is_said(make, message):
    with pytest.raises(RegardError) as raised:
        make()
    assert str(raised.value) == message
