"""Predicting the next word from the words before, and the previous one from the words after."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.layers.recurrent import Recurrent
from regard.models.bidirectional_lm import BidirectionalLm
from regard.models.text_encoder import TextEncoder, TextEncoderConfig
from regard.sentences import EncodedWord, stack_texts

WORDS = 12
CLASSES = torch.tensor([0, 0, 0, 0, 2, 3, 4, 5, 6, 0, 0, 0])  # words 4 to 8 have a class each, 9 to 11 share one
READERS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"layers": 2},
    "gru": {"layers": 2, "cell": "gru", "weight_dropout": 0.2, "variational_dropout": True},
    "tanh": {"layers": 2, "cell": "rnn"},
    "attention upon it": {"encoder": "both", "attention_heads": 2},
}
SENTENCES = stack_texts(
    [tuple(EncodedWord(number, (number % 5 + 3, 4)) for number in row) for row in ([5, 9, 4, 7, 6], [8, 4], [1])]
)


def model(dropout: float = 0.0, unknown: Tensor | None = None, **settings: Any) -> BidirectionalLm:
    torch.manual_seed(4)
    sizes = {"embedding": 6, "char_width": 4, "hidden": 4, "words": WORDS, "pieces": 9, "labels": ("x", "y")}
    reader = TextEncoder(TextEncoderConfig(**{**sizes, **settings}))
    return BidirectionalLm(reader, CLASSES, torch.zeros(WORDS) if unknown is None else unknown, dropout=dropout)


def test_targets_of_both_directions_written_by_hand():
    real = torch.arange(5) < SENTENCES.lengths.on_host[:, None]
    after, before = model().targets(SENTENCES.word_ids, real)
    # classes of the words:   3 0 2 5 4,   6 2,   0; where there is no word, 1
    assert [row[keep].tolist() for row, keep in zip(after, real, strict=True)] == [[0, 2, 5, 4, 1], [2, 1], [1]]
    assert [row[keep].tolist() for row, keep in zip(before, real, strict=True)] == [[1, 3, 0, 2, 5], [1, 6], [1]]


def test_the_loss_is_that_of_each_text_read_by_torch_itself():
    lm = model().double()
    loss = lm(SENTENCES)
    assert isinstance(lm.reader.recurrent, Recurrent)
    forwards = backwards = 0.0
    embedded = lm.reader.embedding(SENTENCES)
    for row, (after, before) in enumerate([([0, 2, 5, 4, 1], [1, 3, 0, 2, 5]), ([2, 1], [1, 6]), ([1], [1])]):
        states = lm.reader.recurrent.stack(embedded[row : row + 1, : len(after)])[0][0]
        ahead, back = lm.next(states[:, :4]).softmax(-1), lm.before(states[:, 4:]).softmax(-1)
        forwards -= sum(ahead[position, target].log() for position, target in enumerate(after))
        backwards -= sum(back[position, target].log() for position, target in enumerate(before))
    assert_close(loss.forwards, forwards, check_dtype=False, rtol=1e-6, atol=0)
    assert_close(loss.backwards, backwards, check_dtype=False, rtol=1e-6, atol=0)
    assert loss.words == 8


@pytest.mark.parametrize("name", READERS)
def test_nothing_that_is_to_be_told_is_seen(name):
    lm = model(**READERS[name]).double().eval()
    before = lm.states(SENTENCES)
    for position in range(5):
        words = SENTENCES.word_ids.clone()
        words[0, position] = 10
        changed = lm.states(replace(SENTENCES, word_ids=words)) != before
        forwards, backwards = changed[0, :, :4].any(-1).tolist(), changed[0, :, 4:].any(-1).tolist()
        assert forwards == [n >= position for n in range(5)]  # seen from the word itself and later ones
        assert backwards == [n <= position for n in range(5)]
        assert not changed[1:].any()


@pytest.mark.parametrize("name", READERS)
def test_what_lies_upon_the_first_layer_is_not_touched(name):
    lm = model(**READERS[name])
    loss = lm(SENTENCES)
    (loss.forwards + loss.backwards).backward()
    untouched = {name for name, parameter in lm.named_parameters() if parameter.grad is None}
    lies_upon = ("reader.stack", "reader.project")
    upon = {name for name, _ in lm.named_parameters() if "_l1" in name or name.startswith(lies_upon)}
    assert untouched == upon
    assert bool(upon) == (name != "one layer")


def test_words_are_made_unknown_by_shares_of_their_own_and_in_training_alone():
    unknown = torch.zeros(WORDS)
    unknown[5] = 1.0
    lm = model(unknown=unknown, char_encoder="none", word_dropout=0.9)  # word_dropout is for training on labels
    other = replace(SENTENCES, word_ids=SENTENCES.word_ids.where(SENTENCES.word_ids != 5, 1))
    assert_close(lm(SENTENCES).forwards - lm.eval()(other).forwards, torch.tensor(0.0))  # the targets are the same
    assert not torch.equal(lm.states(SENTENCES), lm.train().states(SENTENCES))


def test_dropout_is_for_training_alone():
    lm = model(dropout=0.5)
    assert lm(SENTENCES).forwards != lm(SENTENCES).forwards
    lm.eval()
    assert lm(SENTENCES).forwards == lm(SENTENCES).forwards


def test_what_is_saved_is_the_reader_and_what_tells():
    names = set(model().state_dict())
    assert {name for name in names if not name.startswith("reader.")} == {
        "next.weight", "next.bias", "before.weight", "before.bias"
    }  # fmt: skip
