"""How words are read, by the classifier and the tagger alike."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from regard.batch import PAD, UNKNOWN
from regard.errors import RegardError
from regard.layers.lengths import SequenceLengths
from regard.models.reader import Reader, ReaderConfig
from regard.sentences import Sentences, Word, side_by_side

SMALL: dict[str, Any] = {"words": 40, "pieces": 9, "labels": ("O", "B-X"), "embedding": 6, "spelling_width": 4}
NEW: dict[str, dict[str, Any]] = {
    "reaches": {"spelling_reaches": (2, 3, 4, 5), "spelling_edges": True, "spelling_dropout": 0.2},
    "rnn": {"spelling": "rnn"},
    "runs": {"letter_runs": 50},
    "runs alone": {"letter_runs": 50, "spelling": "none"},
    "dropout": {"variational": True, "weight_dropout": 0.3, "layers": 2, "rare_word_dropout": 0.5},
}
TEXTS = [
    (Word(5, (3, 4, 5, 6, 7, 8)), Word(30, (4,)), Word(UNKNOWN, (3, 4))),
    (Word(9, (8, 7)),),
]


def reader(**settings: Any) -> Reader:
    torch.manual_seed(5)
    return Reader(ReaderConfig(**{**SMALL, "hidden": 4, **settings}))


@pytest.mark.parametrize("new", NEW)
def test_a_text_is_read_the_same_beside_a_longer_one(new):
    read = reader(**NEW[new]).double().eval()
    together = read(side_by_side(TEXTS))
    assert together.shape == (2, 3, 8)
    for row, text in enumerate(TEXTS):
        assert_close(together[row, : len(text)], read(side_by_side([text]))[0])


@pytest.mark.parametrize("new", NEW)
def test_everything_is_learnt(new):
    read = reader(**{"dropout": 0.0, "word_dropout": 0.0, **NEW[new]})
    read(side_by_side(TEXTS)).pow(2).sum().backward()
    for name, parameter in read.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_self_attention_upon_an_rnn_starts_with_what_the_rnn_says(cell):
    """Its states were mixed, drowned in positions, dropped twice and normed; on WikiANN that took 13 points of F1."""
    settings = {"cell": cell, "layers": 2, "dropout": 0.0, "word_dropout": 0.0}
    alone, both = reader(encoder="rnn", **settings), reader(encoder="both", attention_layers=2, **settings)
    both.load_state_dict({**both.state_dict(), **alone.state_dict()})
    sentences = side_by_side(TEXTS)
    before = both(sentences)
    assert torch.equal(before, alone(sentences))
    optimizer = torch.optim.SGD(both.stack.parameters(), lr=0.1)
    for _ in range(2):  # the first moves what adds to the states, the second all that leads there
        optimizer.zero_grad()
        both(sentences).pow(2).sum().backward()
        optimizer.step()
    learnt = {name: parameter.grad.abs().max() > 0 for name, parameter in both.stack.named_parameters()}
    assert all(learnt.values()), learnt
    assert not torch.allclose(both(sentences), before)


@pytest.mark.parametrize("encoder", ["attention", "both"])
def test_words_that_change_places_are_read_differently(encoder):
    read = reader(encoder=encoder).double().eval()
    first, second, third = TEXTS[0]
    found, other = read(side_by_side([(first, second, third)])), read(side_by_side([(first, third, second)]))
    assert not torch.allclose(found[0, 1], other[0, 2])


def test_runs_of_letters_stand_beside_the_rest():
    read, sentences = reader(letter_runs=50).eval(), side_by_side(TEXTS)
    assert read.embedding.runs is not None
    assert read.embedding.spelling is not None
    found = read.embedding(sentences)
    assert found.shape == (2, 3, 6 + 4 + 6)
    assert_close(found[..., :6], read.embedding.words(sentences.words))
    assert_close(found[..., 6:10], read.embedding.spelling(sentences.spellings)[sentences.spelt])
    assert_close(found[..., 10:], read.embedding.runs(sentences.spellings)[sentences.spelt])


@pytest.mark.parametrize("variational", [True, False])
def test_the_same_numbers_are_dropped_of_all_words(variational):
    read = reader(encoder="embedding", variational=variational, word_dropout=0.0, embedding=30)
    with torch.no_grad():
        read.embedding.words.weight.fill_(1.0)
    first, second, _ = read(side_by_side(TEXTS[:1]))[0, :, :30]
    assert first.min() == 0
    assert torch.equal(first, second) == variational


def test_rare_words_are_made_unknown_more_often():
    read = reader(word_dropout=0.1, rare_word_dropout=0.6)
    words = torch.tensor([[5, 19, 20, 39, PAD]]).repeat(4000, 1)
    found = read.embedding._some_unknown(words)
    unknown = (found == UNKNOWN).double().mean(0)
    assert_close(unknown, torch.tensor([0.1, 0.1, 0.6, 0.6, 0.0]).double(), atol=0.04, rtol=0)
    assert bool(((found == words) | (found == UNKNOWN)).all())
    assert torch.equal(read.eval().embedding._some_unknown(words), words)


def test_words_that_only_unlabelled_text_has_make_no_others_frequent():
    read = reader(word_dropout=0.1, rare_word_dropout=0.6, unlabelled=20)  # so that 20 words have labels
    words = torch.tensor([[5, 9, 10, 19, 39]]).repeat(4000, 1)
    unknown = (read.embedding._some_unknown(words) == UNKNOWN).double().mean(0)
    assert_close(unknown, torch.tensor([0.1, 0.1, 0.6, 0.6, 0.6]).double(), atol=0.04, rtol=0)
    with pytest.raises(RegardError, match=r"^unlabelled is 41; a number from 0 to 40, of words, is needed$"):
        reader(unlabelled=41)


def test_rare_words_are_never_made_unknown_less_often():
    found = reader(word_dropout=0.5).embedding._some_unknown(torch.full((1, 4000), 39))
    assert abs((found == UNKNOWN).double().mean().item() - 0.5) < 0.05


VECTORS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-4.0, 5.0, 0.5]])
WITH_VECTORS = [(Word(5, (3,), 2), Word(UNKNOWN, (4,), 1), Word(9, (3, 4))), (Word(7, (5,), 1),)]
"""A learnt word with a vector, one that has nothing else, one that has none; and padding."""


def with_vectors(**settings: Any) -> Reader:
    read = reader(vectors=2, vectors_width=3, **settings)
    read.embedding.take_vectors(VECTORS.clone())
    return read


@pytest.mark.parametrize("tune", [False, True])
def test_vectors_learnt_elsewhere_stand_beside_those_of_words(tune):
    read, sentences = with_vectors(tune_vectors=tune).eval(), side_by_side(WITH_VECTORS)
    found = read.embedding(sentences)
    assert found.shape == (2, 3, 6 + 3 + 4)
    assert found[..., 6:9].tolist() == [[[-4, 5, 0.5], [1, 2, 3], [0, 0, 0]], [[1, 2, 3], [0, 0, 0], [0, 0, 0]]]
    assert torch.equal(found[0, 0, :6], read.embedding.words.weight[5])
    assert torch.equal(found[0, 1, :6], read.embedding.words.weight[UNKNOWN])
    read(sentences).pow(2).sum().backward()
    learnt = {name for name, parameter in read.named_parameters() if parameter.grad is not None}
    assert ("embedding.vectors" in learnt) == tune
    if tune:
        assert read.embedding.vectors.grad.abs().sum(-1).bool().tolist() == [False, True, True]  # nothing stays nothing


def test_a_word_that_is_made_unknown_keeps_its_vector():
    read, sentences = with_vectors(word_dropout=0.999999), side_by_side(WITH_VECTORS)
    found = read.embedding(sentences)
    assert torch.equal(found[0, 0, :6], read.embedding.words.weight[UNKNOWN])
    assert found[0, :, 6:9].tolist() == [[-4, 5, 0.5], [1, 2, 3], [0, 0, 0]]


def test_vectors_are_parameters_only_where_they_are_tuned():
    names = {name for name, _ in reader().named_parameters()}
    assert {name for name, _ in with_vectors().named_parameters()} == names
    assert {name for name, _ in with_vectors(tune_vectors=True).named_parameters()} == names | {"embedding.vectors"}
    for read in (with_vectors(), with_vectors(tune_vectors=True)):  # either loads what the other has
        read.load_state_dict(with_vectors().state_dict())
        assert torch.equal(read.state_dict()["embedding.vectors"], VECTORS)


def test_the_defaults_keep_what_was_there_before():
    names = set(reader().state_dict())
    assert {name for name in names if not name.startswith("recurrent.")} == {
        "embedding.words.weight",
        "embedding.spelling.letters.weight",
        "embedding.spelling.neighbours.weight",
        "embedding.spelling.neighbours.bias",
    }


def test_an_empty_batch_of_letters_is_read():
    nothing, one = torch.zeros(1, 1, dtype=torch.long), SequenceLengths.of(torch.tensor([1]))
    for settings in NEW.values():
        read = reader(**settings).eval()
        assert (
            read(Sentences(nothing + 5, nothing, nothing, one, SequenceLengths.of(torch.tensor([0])))).isfinite().all()
        )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"letter_runs": -1}, "letter_runs is -1; 0 is the least"),
        ({"vectors": 3}, "vectors_width is 0; 1 is the least"),
        (
            {"tune_vectors": True},
            "tune_vectors is true, but there are no vectors; give --vectors FILE, or leave it out",
        ),
        (
            {"spelling": "rnn", "spelling_width": 5},
            "spelling_width is 5; rnn, which reads both ways, needs an even one",
        ),
        ({"spelling_reaches": (3, 0)}, "spelling_reaches are [3, 0]; one to 4 numbers, each at least 1, are needed"),
        ({"spelling_dropout": 1.0}, "spelling_dropout is 1.0; a share from 0 to below 1 is needed"),
        ({"weight_dropout": -0.1}, "weight_dropout is -0.1; a share from 0 to below 1 is needed"),
        ({"rare_word_dropout": 2.0}, "rare_word_dropout is 2.0; a share from 0 to below 1 is needed"),
        (
            {"cell": "rnn", "variational": True},
            "cell is rnn, which variational and weight_dropout are not made for; take gru or lstm",
        ),
    ],
)
def test_what_is_refused(settings, line):
    with pytest.raises(RegardError) as caught:
        ReaderConfig(**{**SMALL, **settings})
    assert str(caught.value) == line
