"""Plans of batches against counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batches import POOL_BATCHES, BatchPlan, plan_epoch
from regard.errors import RegardError

sizes = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=60)


def places_of(plan: BatchPlan) -> list[int]:
    return sorted(index for batch in plan.batches for index in batch)


def sentences(count: int) -> list[tuple[int, int]]:
    """Lengths as in running text: most near 20, some long, the target much like the source."""
    random = np.random.default_rng(0)
    source = np.clip(random.lognormal(3, 0.5, count), 2, 256).astype(int)
    target = np.clip(source * random.normal(1, 0.2, count), 2, 256).astype(int)
    return list(zip(source.tolist(), target.tolist(), strict=True))


@given(sizes, st.integers(1, 90), st.integers(0, 5), st.integers(0, 5))
def test_every_example_once_and_within_the_budget(lengths, tokens, seed, epoch):
    plan = plan_epoch(lengths, batch_tokens=tokens, seed=seed, epoch=epoch)
    assert places_of(plan) == list(range(len(lengths)))
    assert len(plan) == len(plan.batches)
    for batch in plan.batches:
        longest = max(max(lengths[index]) for index in batch)
        assert len(batch) * longest <= tokens or len(batch) == 1


@given(sizes, st.integers(1, 90))
def test_padding_is_what_counting_finds(lengths, tokens):
    plan = plan_epoch(lengths, batch_tokens=tokens)
    padding = indices = 0
    for batch in plan.batches:
        for side in (0, 1):
            width = max(lengths[index][side] for index in batch)
            for index in batch:
                indices += width
                padding += width - lengths[index][side]
    assert plan.padding == pytest.approx(padding / indices if indices else 0)


def test_by_hand():
    lengths = [(2, 2), (5, 1), (2, 1), (9, 9)]
    plan = plan_epoch(lengths, batch_tokens=5)  # the two short ones fit, the longest is alone though it is too long
    assert sorted(map(sorted, plan.batches)) == [[0, 2], [1], [3]]
    assert plan.padding == pytest.approx(1 / 32)  # places: 2 x (2 + 2), 5 + 1, 9 + 9


def test_seed_and_epoch_decide_and_nothing_else():
    lengths = sentences(500)
    first = plan_epoch(lengths, batch_tokens=512, seed=3, epoch=1)
    assert plan_epoch(lengths, batch_tokens=512, seed=3, epoch=1) == first
    others = [
        plan_epoch(lengths, batch_tokens=512, seed=seed, epoch=epoch)
        for seed, epoch in ((3, 0), (3, 2), (2, 1), (1, 3))
    ]
    assert len({other.batches for other in (first, *others)}) == 5


def test_the_lengths_of_batches_come_in_no_order():
    lengths = sentences(2000)
    widths = [max(max(lengths[index]) for index in batch) for batch in plan_epoch(lengths, batch_tokens=512).batches]
    assert abs(np.corrcoef(widths, range(len(widths)))[0, 1]) < 0.3


def test_running_text_has_little_padding():
    assert plan_epoch(sentences(20_000), batch_tokens=4096).padding < 0.1


def test_pools_mix_a_large_corpus():
    lengths = [(4, 4)] * 3000
    first, second = (plan_epoch(lengths, batch_tokens=8, epoch=epoch).batches for epoch in (0, 1))
    assert len(first) == 1500 > POOL_BATCHES
    assert len(set(map(frozenset, first)) & set(map(frozenset, second))) < 10


def test_nothing_makes_no_batches():
    assert plan_epoch([], batch_tokens=8) == BatchPlan((), 0.0)
    assert plan_epoch([(0, 0)], batch_tokens=8) == BatchPlan(((0,),), 0.0)


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(RegardError, match=r"^batch_tokens must be at least 1, got 0$"):
        plan_epoch([(1, 1)], batch_tokens=0)
