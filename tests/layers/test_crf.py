import math
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard import RegardError
from regard.layers.crf import Crf
from tests.waiting import no_waiting, put_on_host

O, B, I = range(3)  # noqa: E741
BIO = {  # an I comes after a B or an I
    "allowed": torch.tensor([[True, True, False], [True, True, True], [True, True, True]]),
    "allowed_start": torch.tensor([True, True, False]),
}


def field(tags, **constraints):
    """In float64, with scores that are not zero."""
    crf = Crf(tags, **constraints).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def sequences(crf, scores, length):
    """Every allowed sequence with its score, enumerated in lexicographic order."""
    follow, first, last = crf.allowed.tolist(), crf.allowed_start.tolist(), crf.allowed_end.tolist()
    transitions, start, end = crf.transitions.tolist(), crf.start.tolist(), crf.end.tolist()
    scores, totals = scores.tolist(), {}
    for tags in product(range(crf.tags), repeat=length):
        pairs = list(pairwise(tags))
        if first[tags[0]] and last[tags[-1]] and all(follow[before][after] for before, after in pairs):
            score = start[tags[0]] + end[tags[-1]] + sum(transitions[before][after] for before, after in pairs)
            totals[tags] = score + sum(scores[step][tag] for step, tag in enumerate(tags))
    return totals


CASES = st.tuples(
    st.integers(1, 3),  # tags
    st.integers(1, 4).flatmap(
        lambda time: st.tuples(st.just(time), st.lists(st.integers(1, time), min_size=3, max_size=3))
    ),
    st.sets(st.sampled_from(["allowed", "allowed_start", "allowed_end"])),
    st.integers(0, 10**6),  # seed
)


def built(tags, times, constraints, seed):
    """A field, with constraints or without, scores of three sequences, and their lengths."""
    torch.manual_seed(seed)
    shapes = {"allowed": (tags, tags), "allowed_start": (tags,), "allowed_end": (tags,)}
    crf = field(tags, **{name: torch.rand(shapes[name]) < 0.7 for name in sorted(constraints)})
    time, lengths = times
    return crf, 3 * torch.randn(3, time, tags, dtype=torch.float64), torch.tensor(lengths)


def all_have_some(crf, scores, lengths):
    """The sequences of each row, or None if a row has none, which must raise an error."""
    rows = [sequences(crf, row, length) for row, length in zip(scores, lengths.tolist(), strict=True)]
    if all(rows):
        return rows
    nothing = r"^Crf: the constraints allow no sequence of length \d$"
    for ask in (crf.decode, crf.marginals):
        with pytest.raises(RegardError, match=nothing):
            ask(scores, lengths)
    return None


@given(CASES)
def test_the_likelihood_is_the_share_among_all_sequences(case):
    crf, scores, lengths = built(*case)
    rows = all_have_some(crf, scores, lengths)
    if rows is None:
        return
    for pick in (0, -1):
        picked = [list(row)[pick] for row in rows]
        tags = torch.tensor([[*each, *[-100] * (scores.shape[1] - len(each))] for each in picked])
        totals = [math.log(sum(map(math.exp, row.values()))) for row in rows]
        expected = [row[each] - total for row, each, total in zip(rows, picked, totals, strict=True)]
        likelihood = crf.log_likelihood(scores, tags, lengths)
        assert_close(likelihood, torch.tensor(expected, dtype=torch.float64))
        assert (likelihood <= 0).all()


@given(CASES)
def test_the_best_is_the_best_of_all_sequences(case):
    crf, scores, lengths = built(*case)
    rows = all_have_some(crf, scores, lengths)
    if rows is None:
        return
    tags, score = crf.decode(scores, lengths)
    assert_close(score, torch.tensor([max(row.values()) for row in rows], dtype=torch.float64))
    for best, length, row in zip(tags.tolist(), lengths.tolist(), rows, strict=True):
        assert tuple(best[:length]) == max(row, key=row.__getitem__)
        assert best[length:] == [0] * (len(best) - length)


@given(CASES)
def test_marginals_are_shares_among_all_sequences(case):
    crf, scores, lengths = built(*case)
    rows = all_have_some(crf, scores, lengths)
    if rows is None:
        return
    expected = torch.zeros_like(scores)
    for row, row_scores in enumerate(rows):
        total = sum(math.exp(score) for score in row_scores.values())
        for tags, score in row_scores.items():
            for step, tag in enumerate(tags):
                expected[row, step, tag] += math.exp(score) / total
    marginals = crf.marginals(scores, lengths)
    assert_close(marginals, expected)
    assert ((marginals == 0) == (expected == 0)).all()


@given(CASES, st.randoms(use_true_random=False))
def test_of_equals_the_first_in_the_dictionary_is_best(case, chance):
    crf, scores, lengths = built(*case)
    for parameter in crf.parameters():
        torch.nn.init.zeros_(parameter)
    scores = torch.tensor([chance.randint(-1, 1) for _ in range(scores.numel())]).double().view_as(scores)
    rows = all_have_some(crf, scores, lengths)
    if rows is None:
        return
    tags, score = crf.decode(scores, lengths)
    for best, length, total, row in zip(tags.tolist(), lengths.tolist(), score.tolist(), rows, strict=True):
        assert tuple(best[:length]) == max(row, key=row.__getitem__)  # max keeps the first
        assert total == max(row.values())


def test_the_numbers_can_be_worked_out_by_hand():
    crf = Crf(2)
    crf.load_state_dict(
        {
            **crf.state_dict(),
            "start": torch.tensor([0.0, math.log(2)]),
            "transitions": torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]),
            "end": torch.tensor([math.log(5), 0.0]),
        }
    )
    scores = torch.zeros(1, 2, 2)  # 00: 5, 01: 3, 10: 2 * 5, 11: 2; 20 in all
    tags = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert_close(crf.log_likelihood(scores.expand(4, 2, 2), tags).exp(), torch.tensor([0.25, 0.15, 0.5, 0.1]))
    assert_close(crf.marginals(scores), torch.tensor([[[0.4, 0.6], [0.75, 0.25]]]))
    best, score = crf.decode(scores)
    assert best.tolist() == [[1, 0]]
    assert_close(score, torch.tensor([math.log(10)]))


def test_gradients_are_those_of_small_differences():
    torch.manual_seed(0)
    crf, lengths = field(3, **BIO), torch.tensor([4, 2])
    tags = torch.tensor([[B, I, I, O], [O, B, -1, -1]])
    scores = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    inputs = [scores, *crf.parameters()]  # the field sees its own change
    assert torch.autograd.gradcheck(lambda scores, *_: crf.log_likelihood(scores, tags, lengths), inputs)
    assert torch.autograd.gradcheck(lambda scores, *_: crf.marginals(scores, lengths), inputs)


@pytest.mark.parametrize("constraints", [{}, BIO])
def test_the_likelihood_rises_with_the_tags_and_falls_with_the_marginals(constraints):
    torch.manual_seed(1)
    crf, lengths = field(3, **constraints), torch.tensor([5, 3, 1])
    scores = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    tags = torch.tensor([[O, B, I, O, B], [B, I, I, O, O], [B, O, O, O, O]])
    crf.log_likelihood(scores, tags, lengths).sum().backward()
    real = (torch.arange(5) < lengths[:, None])[..., None]
    assert_close(scores.grad, torch.nn.functional.one_hot(tags, 3) * real - crf.marginals(scores.detach(), lengths))
    assert crf.transitions.grad.isfinite().all()
    assert (crf.transitions.grad[~crf.allowed] == 0).all()


@pytest.mark.parametrize("junk", [7.0, -1e30, math.inf, math.nan])
def test_what_stands_in_padding_changes_nothing(junk):
    torch.manual_seed(2)
    crf, lengths = field(3, **BIO), torch.tensor([2, 4, 1])
    scores, tags = torch.randn(3, 4, 3, dtype=torch.float64), torch.tensor([[B, I, 0, 0], [O, B, I, O], [B, 0, 0, 0]])
    padding = torch.arange(4) >= lengths[:, None]
    other = scores.masked_fill(padding[..., None], junk).requires_grad_()
    likelihood = crf.log_likelihood(other, tags.masked_fill(padding, -100), lengths)
    assert_close(likelihood, crf.log_likelihood(scores, tags, lengths))
    assert_close(crf.marginals(other, lengths), crf.marginals(scores, lengths))
    assert_close(crf.decode(other, lengths), crf.decode(scores, lengths))
    gradients = torch.autograd.grad(likelihood.sum(), [other, *crf.parameters()])
    scores.requires_grad_()
    expected = torch.autograd.grad(crf.log_likelihood(scores, tags, lengths).sum(), [scores, *crf.parameters()])
    assert_close(gradients, expected)
    assert (gradients[0][padding] == 0).all()
    for row, length in enumerate(lengths.tolist()):  # nor does it matter that there is padding
        alone = scores[row : row + 1, :length]
        assert_close(likelihood[row : row + 1], crf.log_likelihood(alone, tags[row : row + 1, :length]))


def test_large_scores_and_long_sequences_stay_exact():
    torch.manual_seed(3)
    crf = field(3, **BIO).float()
    for size, time in ((1e4, 50), (10.0, 2000)):
        scores = (size * torch.randn(2, time, 3).sign() + torch.randn(2, time, 3)).requires_grad_()
        tags, score = crf.decode(scores)
        likelihood = crf.log_likelihood(scores, tags)
        likelihood.sum().backward()
        marginals = crf.marginals(scores)
        assert all(tensor.isfinite().all() for tensor in (score, likelihood, marginals, scores.grad))
        assert_close(marginals.sum(-1), torch.ones(2, time))
        expected = crf.double().log_likelihood(scores.double(), tags)
        crf.float()
        assert_close(likelihood.double(), expected, rtol=1e-4, atol=1e-2 if size > 100 else 1e-4)


def test_half_precision_is_computed_in_single():
    torch.manual_seed(4)
    crf, scores = field(3, **BIO).bfloat16(), torch.randn(2, 4, 3).bfloat16()
    tags = torch.tensor([[O, B, I, O], [B, I, I, I]])
    likelihood = crf.log_likelihood(scores, tags)
    assert likelihood.dtype == torch.float32
    assert_close(likelihood, crf.float().log_likelihood(scores.float(), tags))


def test_a_tag_of_probability_zero_is_still_better_than_a_forbidden_one():
    log_probabilities = torch.tensor([[[0.0, -math.inf, -math.inf], [-math.inf, -math.inf, 0.0]]])
    tags, score = Crf(3, **BIO).decode(log_probabilities)  # O I is not allowed; O O and B I have one zero each
    assert tags.tolist() == [[O, O]]
    assert score.item() < -1e19


def test_constraints_alone_mend_what_single_choices_break():
    probabilities = torch.tensor([[[0.6, 0.4, 0.0], [0.1, 0.0, 0.9], [0.3, 0.1, 0.6]]])
    assert probabilities.argmax(-1).tolist() == [[O, I, I]]
    tags, score = Crf(3, **BIO).decode(probabilities.log(), torch.tensor([3]))
    assert tags.tolist() == [[B, I, I]]
    assert_close(score, torch.tensor([math.log(0.4 * 0.9 * 0.6)]))
    assert Crf(3).decode(probabilities.log())[0].tolist() == [[O, I, I]]


def test_a_field_learns_which_tags_follow_which():
    crf, scores = Crf(2), torch.zeros(1, 6, 2)
    tags = torch.tensor([[0, 1, 0, 1, 0, 1]])  # they differ only in order
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.2)
    for _ in range(40):
        optimizer.zero_grad()
        (-crf.log_likelihood(scores, tags).mean()).backward()
        optimizer.step()
    assert crf.decode(scores)[0].tolist() == tags.tolist()
    assert crf.log_likelihood(scores, tags).exp().item() > 0.9


def test_constraints_are_saved_with_the_parameters():
    crf = Crf(3)
    crf.load_state_dict(Crf(3, **BIO).state_dict())
    assert crf.decode(torch.tensor([[[0.0, 0.0, 9.0]]]))[0].tolist() == [[O]]


@pytest.mark.parametrize(
    ("tags", "offence"),
    [
        ([[O, O, O], [O, I, O]], "sequence 1 has tag 2 after tag 0 at step 1"),
        ([[I, O, O], [O, O, O]], "sequence 0 begins with tag 2"),
        ([[O, O, I], [O, B, O]], "sequence 1 ends with tag 1"),
    ],
)
def test_tags_that_are_not_allowed_are_refused(tags, offence):
    crf, lengths = Crf(3, **BIO, allowed_end=torch.tensor([True, False, True])), torch.tensor([2, 2])
    with pytest.raises(RegardError) as refused:
        crf.log_likelihood(torch.zeros(2, 3, 3), torch.tensor(tags), lengths)
    assert str(refused.value) == f"Crf: {offence}, which is not allowed; correct the tags or the constraints"


def test_where_nothing_is_waited_for_tags_that_are_not_allowed_have_no_likelihood():
    crf, lengths = Crf(3, **BIO), torch.tensor([2, 3, 3])
    scores, tags = torch.randn(3, 3, 3), torch.tensor([[B, I, I], [O, I, O], [O, 3, -1]])
    put_on_host(lengths)
    with no_waiting():
        likelihood = crf.log_likelihood(scores, tags, lengths)
    assert likelihood.isnan().tolist() == [False, True, True]
    assert_close(likelihood[0], crf.log_likelihood(scores[:1, :2], tags[:1, :2])[0])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Crf(0), "Crf: tags must be at least 1, got 0"),
        (
            lambda: Crf(4, allowed=BIO["allowed"]),
            "Crf: allowed must have shape (4, 4) for 4 tags, got (3, 3)",
        ),
        (
            lambda: Crf(4, allowed_end=torch.ones(3).bool()),
            "Crf: allowed_end must have shape (4,) for 4 tags, got (3,)",
        ),
        (lambda: Crf(4).decode(torch.zeros(1, 2, 3)), "Crf: expected scores for 4 tags, got 3"),
        (
            lambda: Crf(3).log_likelihood(torch.zeros(1, 2, 3), torch.tensor([[0, 3]])),
            "Crf: sequence 0 has tag 3 at step 1; tags must be at least 0 and at most 2",
        ),
        (
            lambda: Crf(3).marginals(torch.zeros(2, 2, 3), torch.tensor([0, 3])),
            "Crf: lengths must be at least 1 and at most 2, got 0 to 3",
        ),
    ],
)
def test_what_does_not_fit_is_refused(ask, message):
    with pytest.raises(RegardError) as refused:
        ask()
    assert str(refused.value) == message
