"""The text encoder of the classifier and the tagger."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from regard.batch import PAD, UNKNOWN
from regard.errors import RegardError
from regard.layers.lengths import SequenceLengths
from regard.models.text_encoder import TextEncoder, TextEncoderConfig
from regard.sentences import EncodedWord, Sentences, stack_texts

SMALL: dict[str, Any] = {"words": 40, "pieces": 9, "labels": ("O", "B-X"), "embedding": 6, "char_width": 4}
NEW: dict[str, dict[str, Any]] = {
    "reaches": {"char_kernel_sizes": (2, 3, 4, 5), "char_boundaries": True, "char_dropout": 0.2},
    "rnn": {"char_encoder": "rnn"},
    "runs": {"char_ngrams": 50},
    "runs alone": {"char_ngrams": 50, "char_encoder": "none"},
    "dropout": {"variational_dropout": True, "weight_dropout": 0.3, "layers": 2, "rare_word_dropout": 0.5},
}
TEXTS = [
    (EncodedWord(5, (3, 4, 5, 6, 7, 8)), EncodedWord(30, (4,)), EncodedWord(UNKNOWN, (3, 4))),
    (EncodedWord(9, (8, 7)),),
]


def reader(**settings: Any) -> TextEncoder:
    torch.manual_seed(5)
    return TextEncoder(TextEncoderConfig(**{**SMALL, "hidden": 4, **settings}))


@pytest.mark.parametrize("new", NEW)
def test_a_text_is_read_the_same_beside_a_longer_one(new):
    read = reader(**NEW[new]).double().eval()
    together = read(stack_texts(TEXTS))
    assert together.shape == (2, 3, 8)
    for row, text in enumerate(TEXTS):
        assert_close(together[row, : len(text)], read(stack_texts([text]))[0])


@pytest.mark.parametrize("new", NEW)
def test_everything_is_learned(new):
    read = reader(**{"dropout": 0.0, "word_dropout": 0.0, **NEW[new]})
    read(stack_texts(TEXTS)).pow(2).sum().backward()
    for name, parameter in read.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_self_attention_upon_an_rnn_starts_with_what_the_rnn_says(cell):
    """Projections, positions, a second dropout and a norm on top of the rnn once cost 13 points of F1 on WikiANN."""
    settings = {"cell": cell, "layers": 2, "dropout": 0.0, "word_dropout": 0.0}
    alone, both = reader(encoder="rnn", **settings), reader(encoder="both", attention_layers=2, **settings)
    both.load_state_dict({**both.state_dict(), **alone.state_dict()})
    sentences = stack_texts(TEXTS)
    before = both(sentences)
    assert torch.equal(before, alone(sentences))
    optimizer = torch.optim.SGD(both.stack.parameters(), lr=0.1)
    for _ in range(2):  # the first step trains the layers that add to the states, the second all before them
        optimizer.zero_grad()
        both(sentences).pow(2).sum().backward()
        optimizer.step()
    learned = {name: parameter.grad.abs().max() > 0 for name, parameter in both.stack.named_parameters()}
    assert all(learned.values()), learned
    assert not torch.allclose(both(sentences), before)


def test_a_step_of_training_moves_wide_states_no_further_than_narrow_ones():
    """Adam moves every weight by the learning rate; an output of 800 such weights once moved by more than its size."""
    for hidden in (4, 100):
        read = reader(encoder="both", hidden=hidden, attention_heads=2, dropout=0.0, word_dropout=0.0)
        sentences = stack_texts(TEXTS)
        before = read(sentences)
        optimizer = torch.optim.Adam(read.stack.parameters(), lr=2e-3)
        before.pow(2).sum().backward()
        optimizer.step()
        moved = (read(sentences) - before).abs().max()
        assert 0 < moved < 2e-3 * 10  # the learning rate times two sublayers, whose outputs are below 5


@pytest.mark.parametrize("encoder", ["attention", "both"])
def test_words_that_change_places_are_read_differently(encoder):
    read = reader(encoder=encoder).double().eval()
    first, second, third = TEXTS[0]
    actual, other = read(stack_texts([(first, second, third)])), read(stack_texts([(first, third, second)]))
    assert not torch.allclose(actual[0, 1], other[0, 2])


def test_runs_of_letters_stand_beside_the_rest():
    read, sentences = reader(char_ngrams=50).eval(), stack_texts(TEXTS)
    assert read.embedding.char_ngrams is not None
    assert read.embedding.char_encoder is not None
    actual = read.embedding(sentences)
    assert actual.shape == (2, 3, 6 + 4 + 6)
    assert_close(actual[..., :6], read.embedding.words(sentences.word_ids))
    assert_close(actual[..., 6:10], read.embedding.char_encoder(sentences.spellings)[sentences.spelling_rows])
    assert_close(actual[..., 10:], read.embedding.char_ngrams(sentences.spellings)[sentences.spelling_rows])


@pytest.mark.parametrize("variational", [True, False])
def test_the_same_numbers_are_dropped_of_all_words(variational):
    read = reader(encoder="embedding", variational_dropout=variational, word_dropout=0.0, embedding=30)
    with torch.no_grad():
        read.embedding.words.weight.fill_(1.0)
    first, second, _ = read(stack_texts(TEXTS[:1]))[0, :, :30]
    assert first.min() == 0
    assert torch.equal(first, second) == variational


def test_rare_words_are_made_unknown_more_often():
    read = reader(word_dropout=0.1, rare_word_dropout=0.6)
    words = torch.tensor([[5, 19, 20, 39, PAD]]).repeat(4000, 1)
    actual = read.embedding._drop_words(words)
    unknown = (actual == UNKNOWN).double().mean(0)
    assert_close(unknown, torch.tensor([0.1, 0.1, 0.6, 0.6, 0.0]).double(), atol=0.04, rtol=0)
    assert bool(((actual == words) | (actual == UNKNOWN)).all())
    assert torch.equal(read.eval().embedding._drop_words(words), words)


def test_words_that_only_unlabeled_text_has_make_no_others_frequent():
    read = reader(word_dropout=0.1, rare_word_dropout=0.6, unlabeled=20)  # so that 20 words have labels
    words = torch.tensor([[5, 9, 10, 19, 39]]).repeat(4000, 1)
    unknown = (read.embedding._drop_words(words) == UNKNOWN).double().mean(0)
    assert_close(unknown, torch.tensor([0.1, 0.1, 0.6, 0.6, 0.6]).double(), atol=0.04, rtol=0)
    with pytest.raises(RegardError, match=r"^unlabeled must be at most words \(40\), got 41$"):
        reader(unlabeled=41)


def test_rare_words_are_never_made_unknown_less_often():
    actual = reader(word_dropout=0.5).embedding._drop_words(torch.full((1, 4000), 39))
    assert abs((actual == UNKNOWN).double().mean().item() - 0.5) < 0.05


VECTORS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-4.0, 5.0, 0.5]])
WITH_VECTORS = [
    (EncodedWord(5, (3,), 2), EncodedWord(UNKNOWN, (4,), 1), EncodedWord(9, (3, 4))),
    (EncodedWord(7, (5,), 1),),
]
"""A known word with a vector, an unknown one with a vector, a known one without; and padding."""


def with_vectors(**settings: Any) -> TextEncoder:
    read = reader(vectors=2, vectors_width=3, **settings)
    read.embedding.set_vectors(VECTORS.clone())
    return read


@pytest.mark.parametrize("tune", [False, True])
def test_vectors_learned_elsewhere_stand_beside_those_of_words(tune):
    read, sentences = with_vectors(fine_tune_vectors=tune).eval(), stack_texts(WITH_VECTORS)
    actual = read.embedding(sentences)
    assert actual.shape == (2, 3, 6 + 3 + 4)
    assert actual[..., 6:9].tolist() == [[[-4, 5, 0.5], [1, 2, 3], [0, 0, 0]], [[1, 2, 3], [0, 0, 0], [0, 0, 0]]]
    assert torch.equal(actual[0, 0, :6], read.embedding.words.weight[5])
    assert torch.equal(actual[0, 1, :6], read.embedding.words.weight[UNKNOWN])
    read(sentences).pow(2).sum().backward()
    learned = {name for name, parameter in read.named_parameters() if parameter.grad is not None}
    assert ("embedding.vectors" in learned) == tune
    if tune:
        assert read.embedding.vectors.grad.abs().sum(-1).bool().tolist() == [False, True, True]  # row 0 stays zero


def test_a_word_that_is_made_unknown_keeps_its_vector():
    read, sentences = with_vectors(word_dropout=0.999999), stack_texts(WITH_VECTORS)
    actual = read.embedding(sentences)
    assert torch.equal(actual[0, 0, :6], read.embedding.words.weight[UNKNOWN])
    assert actual[0, :, 6:9].tolist() == [[-4, 5, 0.5], [1, 2, 3], [0, 0, 0]]


def test_vectors_are_parameters_only_where_they_are_tuned():
    names = {name for name, _ in reader().named_parameters()}
    assert {name for name, _ in with_vectors().named_parameters()} == names
    assert {name for name, _ in with_vectors(fine_tune_vectors=True).named_parameters()} == names | {
        "embedding.vectors"
    }
    for read in (with_vectors(), with_vectors(fine_tune_vectors=True)):  # either loads what the other has
        read.load_state_dict(with_vectors().state_dict())
        assert torch.equal(read.state_dict()["embedding.vectors"], VECTORS)


def test_the_defaults_keep_what_was_there_before():
    names = set(reader().state_dict())
    assert {name for name in names if not name.startswith("recurrent.")} == {
        "embedding.words.weight",
        "embedding.char_encoder.letters.weight",
        "embedding.char_encoder.neighbors.weight",
        "embedding.char_encoder.neighbors.bias",
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
        ({"char_ngrams": -1}, "char_ngrams must be at least 0, got -1"),
        ({"vectors": 3}, "vectors_width must be at least 1, got 0"),
        (
            {"fine_tune_vectors": True},
            "fine_tune_vectors requires pretrained vectors; pass --vectors FILE",
        ),
        (
            {"char_encoder": "rnn", "char_width": 5},
            'char_width must be even for char_encoder "rnn", got 5',
        ),
        ({"char_kernel_sizes": (3, 0)}, "char_kernel_sizes must be at least 1, got 0"),
        ({"char_dropout": 1.0}, "char_dropout must be at least 0 and below 1, got 1.0"),
        ({"weight_dropout": -0.1}, "weight_dropout must be at least 0 and below 1, got -0.1"),
        ({"rare_word_dropout": 2.0}, "rare_word_dropout must be at least 0 and below 1, got 2.0"),
        (
            {"cell": "rnn", "variational_dropout": True},
            'variational_dropout and weight_dropout require cell = "gru" or "lstm", got "rnn"',
        ),
    ],
)
def test_what_is_refused(settings, line):
    with pytest.raises(RegardError) as caught:
        TextEncoderConfig(**{**SMALL, **settings})
    assert str(caught.value) == line
