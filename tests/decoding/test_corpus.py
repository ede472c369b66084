import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.batch import Pair
from regard.decoding import beam_search, decode_all, greedy
from regard.decoding.corpus import get_device, iter_batches_by_length
from tests.decoding.tiny import random_model, sources, two_layers

ROWS = [(4,) * length for length in (3, 0, 7, 1, 3, 12)] + [(5, 4), (4, 5), (5,)]


@pytest.mark.parametrize("tokens", [1, 40, 10**6])
def test_everything_comes_back_in_its_order(tokens):
    model = random_model(3, ordinary=4)
    actual = decode_all(model, [Pair(row) for row in ROWS], width=3, nbest=2, length_penalty=0.5, batch_tokens=tokens)
    assert actual == [beam_search(model, sources(row), 3, 2, 0.5)[0] for row in ROWS]
    assert len({best[0].tokens for best in actual}) > 3  # so that a wrong order would show


def test_width_one_is_greedy():
    model = random_model(3, ordinary=4)
    assert decode_all(model, [Pair(row) for row in ROWS], width=1, batch_tokens=8, max_length=7) == [
        greedy(model, sources(row), max_length=7) for row in ROWS
    ]


def test_progress_is_told():
    done = []
    decode_all(
        random_model(), [Pair((4,) * length) for length in (1, 3, 3)], width=2, batch_tokens=16, progress=done.append
    )
    assert done == [2, 3]  # two of four tokens, twice each; then the rest
    assert decode_all(random_model(), [], progress=done.append) == []
    assert done == [2, 3]


def test_targets_are_not_looked_at():
    model = random_model(3)
    assert decode_all(model, [Pair((4,), (5, 5)), Pair((5,))]) == decode_all(model, [Pair((4,)), Pair((5,))])


@given(st.lists(st.integers(1, 30)), st.integers(0, 60))
def test_batches_keep_to_their_budget(lengths, budget):
    batches = list(iter_batches_by_length(lengths, budget))
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[position] for position in batch) <= budget
    max_length = [lengths[position] for batch in batches for position in batch]
    assert max_length == sorted(max_length, reverse=True)


def test_the_batch_goes_where_the_model_is():
    assert get_device(random_model()) == torch.device("cpu")  # without parameters
    assert get_device(two_layers().to("meta")) == torch.device("meta")


def test_wrong_settings():
    with pytest.raises(RegardError, match=r"^decode_all: batch_tokens must be at least 1, got 0$"):
        decode_all(random_model(), [Pair((4,))], batch_tokens=0)
    with pytest.raises(RegardError, match=r"^beam_search: nbest must be at least 1 and at most width \(1\), got 2$"):
        decode_all(random_model(), [Pair((4,))], width=1, nbest=2)
