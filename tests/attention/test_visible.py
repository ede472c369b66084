import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError, attend, causal, documents, key_indices, lengths, window
from regard.attention.visible import Rule, as_rule, split_conjunction

CPU = torch.device("cpu")


def matrix(rule: Rule, n: int, m: int, *batch: int) -> torch.Tensor:
    shape = torch.Size((*batch, n, m))
    rule.check(shape)
    return rule.tile(slice(0, n), slice(0, m), shape, CPU).expand(shape)


def test_causal_by_hand():
    assert matrix(causal(), 3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert matrix(causal(strict=True), 3, 3).int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_queries_stand_at_the_last_keys():
    assert matrix(causal(), 1, 4).int().tolist() == [[1, 1, 1, 1]]  # one query with a cache sees all
    assert matrix(causal(), 2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert matrix(causal(), 4, 2).int().tolist() == [[0, 0], [0, 0], [1, 0], [1, 1]]
    assert matrix(window(1, 0), 2, 4).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]


def test_window_by_hand():
    assert matrix(window(1, 0), 3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert matrix(window(0, 1), 3, 3).int().tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 1]]
    assert torch.equal(matrix(window(None, 0), 3, 3), matrix(causal(), 3, 3))
    assert matrix(window(None, None), 3, 3).all()


def test_lengths_serve_all_heads():
    seen = matrix(lengths(torch.tensor([1, 3])), 2, 3, 2, 5)
    assert seen[0].int().tolist() == [[[1, 0, 0], [1, 0, 0]]] * 5
    assert seen[1].all()


def test_lengths_without_a_batch():
    assert matrix(lengths(2), 2, 3).int().tolist() == [[1, 1, 0], [1, 1, 0]]
    assert torch.equal(matrix(lengths([2, 0]), 2, 3, 2), matrix(lengths(torch.tensor([2, 0])), 2, 3, 2))


def test_documents_by_hand():
    seen = matrix(documents(torch.tensor([4, 4, 9])), 3, 3)
    assert seen.int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert matrix(documents(torch.tensor([4, 4, 9])), 1, 3).int().tolist() == [[0, 0, 1]]  # the last, with a cache
    cross = documents(torch.tensor([1, 2, 2]), torch.tensor([2, 1]))
    assert matrix(cross, 2, 3).int().tolist() == [[0, 1, 1], [1, 0, 0]]


def test_key_indices_by_hand():
    chosen = [[0, 2], [3, -1], [1, 9]]  # -1 and 9 are no keys
    rule, by_hand = key_indices(chosen), [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert matrix(rule, 3, 4).int().tolist() == by_hand
    assert matrix(rule & causal(), 3, 4).int().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    part = rule.tile(torch.tensor([2, 0]), torch.tensor([2, 1, 1]), torch.Size((3, 4)), CPU)
    assert part.int().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert rule.tile(slice(0, 2), slice(2, 4), torch.Size((3, 4)), CPU).int().tolist() == [[1, 0], [0, 1]]


def test_key_indices_serve_all_heads():
    seen = matrix(key_indices(torch.tensor([[[0]], [[2]]], dtype=torch.int32)), 1, 3, 2, 4)
    assert seen.int().tolist() == [[[[1, 0, 0]]] * 4, [[[0, 0, 1]]] * 4]


def test_key_indices_that_do_not_fit():
    for indices, message in (
        ([1, 2], "key_indices: expected shape (*batch, queries, k), got (2,)"),
        ([[0.5]], "key_indices: expected integers, got float32"),
    ):
        with pytest.raises(RegardError) as error:
            key_indices(indices)
        assert str(error.value) == message
    with pytest.raises(RegardError) as error:
        matrix(key_indices([[0]]), 2, 3)
    assert str(error.value) == "key_indices: expected indices for 2 queries, got 1"


@pytest.mark.parametrize("n", [3, 5])
def test_rules_combine_as_their_matrices(n):
    given_ = torch.rand(2, n, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    one, other, third = causal(), lengths(torch.tensor([2, 4])), as_rule(given_)
    a, b, c = (matrix(rule, n, 5, 2) for rule in (one, other, third))
    assert torch.equal(matrix(one & other, n, 5, 2), a & b)
    assert torch.equal(matrix(one | other, n, 5, 2), a | b)
    assert torch.equal(matrix(~one, n, 5, 2), ~a)
    assert torch.equal(matrix(one & (other | ~third), n, 5, 2), a & (b | ~c))
    assert torch.equal(matrix(one & given_, n, 5, 2), a & c)
    assert torch.equal(matrix(given_ & one, n, 5, 2), a & c)
    assert torch.equal(matrix(given_ | one, n, 5, 2), a | c)
    assert len(split_conjunction(one & (other & third))) == 3
    assert len(split_conjunction(one & (other | third))) == 2


rules = st.recursive(
    st.one_of(
        st.builds(causal, strict=st.booleans()),
        st.builds(window, st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)),
        st.lists(st.integers(0, 6), min_size=2, max_size=2).map(lambda counts: lengths(torch.tensor(counts))),
        st.lists(st.integers(0, 2), min_size=6, max_size=6).map(lambda ids: documents(torch.tensor(ids))),
        st.integers(0, 2**30).map(lambda bits: as_rule(torch.tensor([bits >> i & 1 for i in range(6)]).bool()[None])),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


@given(rules, st.integers(1, 6), st.integers(0, 5), st.integers(1, 6))
def test_a_rule_answers_for_any_tile_and_knows_what_it_shows(rule, n, start, size):
    whole = matrix(rule, n, 6, 2)
    rows = slice(min(start, n - 1), min(start + size, n))
    shape = torch.Size((2, n, 6))
    tile = rule.tile(rows, slice(2, 5), shape, CPU).expand(2, rows.stop - rows.start, 3)
    assert torch.equal(tile, whole[:, rows, 2:5])
    picked = rule.tile(torch.tensor([n - 1, 0]), torch.tensor([5, 1, 1]), shape, CPU).expand(2, 2, 3)
    assert torch.equal(picked, whole[:, [n - 1, 0]][:, :, [5, 1, 1]])
    reach = rule.reach(range(rows.start, rows.stop), shape)
    outside = [key for key in range(6) if key not in reach]
    assert not whole[:, rows][:, :, outside].any()
    certain = rule.certainly_visible(range(rows.start, rows.stop), shape)
    assert whole[:, rows][:, :, certain.start : certain.stop].all()
    assert certain.stop <= 6


def test_most_of_a_causal_window_is_certain():
    shape = torch.Size((2, 100, 100))
    assert causal().certainly_visible(range(40, 50), shape) == range(41)
    assert (causal() & window(30, None)).certainly_visible(range(40, 50), shape) == range(19, 41)
    assert (causal() | window(30, 5)).certainly_visible(range(40, 50), shape) == range(41)
    assert not (~causal()).certainly_visible(range(40, 50), shape)


@given(rules, st.integers(1, 6))
def test_every_path_follows_every_rule(rule, n):
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, n, 3), torch.randn(2, 6, 3), torch.randn(2, 6, 4)
    seen = matrix(rule, n, 6, 2)
    scores = (query @ keys.mT).masked_fill(~seen, -torch.inf)
    expected = torch.nan_to_num(torch.softmax(scores, -1)) @ values
    for path in ("reference", "sdpa", "tiled"):
        out, weights = attend(query, keys, values, "dot", visible=rule, path=path, return_weights=True)
        torch.testing.assert_close(out, expected)
        assert not weights.dense()[~seen].any()


@pytest.mark.parametrize("path", ["reference", "sdpa", "tiled"])
def test_padding_on_either_side_changes_nothing(path):
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 4, 3), torch.randn(2, 5, 3), torch.randn(2, 5, 6)
    expected = attend(query, keys, values, path="reference")
    noise = torch.full((2, 3, 3), 1e4), torch.full((2, 3, 6), torch.nan_to_num(torch.tensor(1e4)))
    right = attend(
        query,
        torch.cat([keys, noise[0]], 1),
        torch.cat([values, noise[1]], 1),
        visible=lengths(torch.tensor([5, 5])),
        path=path,
    )
    torch.testing.assert_close(right, expected)
    seen = torch.tensor([False] * 3 + [True] * 5)[None, None]
    left = attend(query, torch.cat([noise[0], keys], 1), torch.cat([noise[1], values], 1), visible=seen, path=path)
    torch.testing.assert_close(left, expected)
    self_padded = attend(
        torch.cat([query, query[:, :2]], 1), torch.cat([keys, noise[0]], 1), torch.cat([values, noise[1]], 1),
        visible=lengths(torch.tensor([5, 5])), path=path,
    )  # fmt: skip
    torch.testing.assert_close(self_padded[:, :4], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: window(-1, 0), "window: left must be None or an integer of at least 0, got -1"),
        (
            lambda: documents(torch.zeros(5, dtype=torch.long)).check(torch.Size((3, 4))),
            "documents: expected numbers for 4 keys and 3 queries, got 5 and 5",
        ),
        (
            lambda: causal() and lengths(3),
            "visible: a rule has no truth value; combine rules with &, | and ~, not and, or, not",
        ),
        (lambda: window("a", 1), "window: left must be None or an integer of at least 0, got 'a'"),  # type: ignore[arg-type]
        (lambda: lengths([1.5]), "lengths: expected integers, got float32"),
        (lambda: lengths(None), "lengths: expected integers, got NoneType"),
        (lambda: lengths([[1], [2, 3]]), "lengths: expected integers, got list"),
        (lambda: documents(None), "documents: expected integers, got NoneType"),
        (lambda: documents(3), "documents: expected one number per position, got a single number"),
        (lambda: as_rule("x"), "visible must be a bool tensor (True = visible) or a rule such as causal(), got str"),
    ],
)
def test_a_rule_that_cannot_be_is_said(make, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        make()
    assert str(error.value) == message
