"""Plans of batches against counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batches import POOL, Plan, plan
from regard.errors import RegardError

sizes = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60)


def places_of(found: Plan) -> list[int]:
    return sorted(place for batch in found.batches for place in batch)


def sentences(count: int) -> list[tuple[int, int]]:
    """Lengths as in running text: most near 20, some long, the target much like the source."""
    random = np.random.default_rng(0)
    source = np.clip(random.lognormal(3, 0.5, count), 2, 256).astype(int)
    target = np.clip(source * random.normal(1, 0.2, count), 2, 256).astype(int)
    return list(zip(source.tolist(), target.tolist(), strict=True))


@given(sizes, st.integers(1, 90), st.integers(0, 5), st.integers(0, 5))
def test_every_example_once_and_within_the_budget(lengths, tokens, seed, epoch):
    found = plan(lengths, tokens=tokens, seed=seed, epoch=epoch)
    assert places_of(found) == list(range(len(lengths)))
    assert len(found) == len(found.batches)
    for batch in found.batches:
        longest = max(max(lengths[place]) for place in batch)
        assert len(batch) * longest <= tokens or len(batch) == 1


@given(sizes, st.integers(1, 90))
def test_padding_is_what_counting_finds(lengths, tokens):
    found = plan(lengths, tokens=tokens)
    padding = places = 0
    for batch in found.batches:
        for side in (0, 1):
            width = max(lengths[place][side] for place in batch)
            for place in batch:
                places += width
                padding += width - lengths[place][side]
    assert found.padding == pytest.approx(padding / places if places else 0)


def test_by_hand():
    lengths = [(2, 2), (5, 1), (2, 1), (9, 9)]
    found = plan(lengths, tokens=5)  # the two short ones fit, the longest is alone though it is too long
    assert sorted(map(sorted, found.batches)) == [[0, 2], [1], [3]]
    assert found.padding == pytest.approx(1 / 32)  # places: 2 x (2 + 2), 5 + 1, 9 + 9


def test_seed_and_epoch_decide_and_nothing_else():
    lengths = sentences(500)
    first = plan(lengths, tokens=512, seed=3, epoch=1)
    assert plan(lengths, tokens=512, seed=3, epoch=1) == first
    others = [plan(lengths, tokens=512, seed=seed, epoch=epoch) for seed, epoch in ((3, 0), (3, 2), (2, 1), (1, 3))]
    assert len({other.batches for other in (first, *others)}) == 5


def test_the_lengths_of_batches_come_in_no_order():
    lengths = sentences(2000)
    widths = [max(max(lengths[place]) for place in batch) for batch in plan(lengths, tokens=512).batches]
    assert abs(np.corrcoef(widths, range(len(widths)))[0, 1]) < 0.3


def test_running_text_has_little_padding():
    assert plan(sentences(20_000), tokens=4096).padding < 0.1


def test_pools_mix_a_large_corpus():
    lengths = [(4, 4)] * 3000
    first, second = (plan(lengths, tokens=8, epoch=epoch).batches for epoch in (0, 1))
    assert len(first) == 1500 > POOL
    assert len(set(map(frozenset, first)) & set(map(frozenset, second))) < 10


def test_nothing_makes_no_batches():
    assert plan([], tokens=8) == Plan((), 0.0)
    assert plan([(0, 0)], tokens=8) == Plan(((0,),), 0.0)


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(RegardError, match=r"^batches: a budget of 0 tokens is too small; 1 is the least$"):
        plan([(1, 1)], tokens=0)
