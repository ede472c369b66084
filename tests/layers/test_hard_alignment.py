"""Hard alignment by dynamic programming, against a sum over every alignment."""

from itertools import pairwise, product

import pytest
import torch

from regard.layers.hard_alignment import (
    NEVER,
    compute_posterior,
    find_distances,
    move_alignment,
    normalize_transitions,
    predict_alignment,
)

TARGET, SOURCE = 4, 5
LENGTHS = (5, 3)


def make(monotonic, jumps=3):
    torch.manual_seed(0)
    visible = torch.arange(SOURCE) < torch.tensor(LENGTHS)[:, None, None]
    scores, moves = torch.randn(2, TARGET, SOURCE).double(), torch.randn(2, TARGET, jumps).double()
    transitions = normalize_transitions(scores, moves, visible, monotonic=monotonic)
    return transitions, -torch.rand(2, TARGET, SOURCE).double() - 0.1


def enumerate_alignments(transitions, emissions, length, monotonic):
    """Every alignment of one pair with its probability, the product of its moves and tokens."""
    alignments = {}
    for alignment in product(range(length), repeat=TARGET):
        if monotonic and any(after < before for before, after in pairwise(alignment)):
            continue
        steps = enumerate(pairwise((0, *alignment)))
        moves = sum(transitions[i, before, after] for i, (before, after) in steps)
        alignments[alignment] = (moves + sum(emissions[i, j] for i, j in enumerate(alignment))).exp()
    return alignments


@pytest.mark.parametrize("monotonic", [True, False])
def test_the_likelihood_is_the_sum_over_all_alignments(monotonic):
    transitions, emissions = make(monotonic)
    likelihood = (predict_alignment(transitions, emissions) + emissions).logsumexp(-1).sum(-1)
    for row, length in enumerate(LENGTHS):
        alignments = enumerate_alignments(transitions[row], emissions[row], length, monotonic)
        assert len(alignments) == ({5: 70, 3: 15} if monotonic else {5: 625, 3: 81})[length]
        torch.testing.assert_close(likelihood[row].exp(), sum(alignments.values()))


@pytest.mark.parametrize("monotonic", [True, False])
def test_the_posterior_is_the_share_of_the_alignments_through_a_position(monotonic):
    transitions, emissions = make(monotonic)
    posterior = compute_posterior(transitions, emissions)
    for row, length in enumerate(LENGTHS):
        alignments = enumerate_alignments(transitions[row], emissions[row], length, monotonic)
        total = sum(alignments.values())
        for i, j in product(range(TARGET), range(SOURCE)):
            through = sum((p for alignment, p in alignments.items() if alignment[i] == j), start=0 * total)
            torch.testing.assert_close(posterior[row, i, j], through / total)


def test_the_posterior_is_the_gradient_of_the_likelihood():
    transitions, emissions = make(monotonic=True)
    emissions.requires_grad_()
    (predict_alignment(transitions, emissions) + emissions).logsumexp(-1).sum().backward()
    torch.testing.assert_close(emissions.grad, compute_posterior(transitions, emissions.detach()))


@pytest.mark.parametrize("monotonic", [True, False])
def test_gradients_are_those_of_finite_differences(monotonic):
    torch.manual_seed(1)
    visible = torch.arange(3) < torch.tensor([3, 2])[:, None, None]

    def likelihood(scores, moves, emissions):
        transitions = normalize_transitions(scores, moves, visible, monotonic=monotonic)
        return (predict_alignment(transitions, emissions) + emissions).logsumexp(-1).sum()

    shapes = ((2, 3, 3), (2, 3, 2 if monotonic else 3), (2, 3, 3))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(likelihood, inputs)


@pytest.mark.parametrize("monotonic", [True, False])
def test_moves_lead_to_visible_positions_and_sum_to_one(monotonic):
    transitions, _ = make(monotonic)
    probabilities = transitions.exp()
    assert not probabilities[1, :, :, 3:].any()
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(probabilities[row, :, :length].sum(-1), torch.ones(TARGET, length).double())
    below = torch.ones(SOURCE, SOURCE, dtype=torch.bool).tril(-1)
    assert bool(probabilities[..., below].any()) != monotonic


@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_pairs_equal_a_sum_of_probabilities_in_float64(monotonic, dtype):
    torch.manual_seed(2)
    target, source = 200, 120
    visible = torch.ones(1, 1, source, dtype=torch.bool)
    scores, moves = torch.randn(1, target, source, dtype=dtype), torch.randn(1, target, 5, dtype=dtype)
    emissions = -5 * torch.rand(1, target, source)
    actual = predict_alignment(normalize_transitions(scores, moves, visible, monotonic=monotonic), emissions)
    assert actual.dtype == torch.float32
    position = torch.zeros(source).double()
    position[0] = 1  # before the first token
    for i in range(target):
        distances = torch.arange(source) - torch.arange(source)[:, None]
        distances = distances if monotonic else distances + 2
        move = (scores[0, i].double() + moves[0, i].double()[distances.clamp(0, 4)]).exp()
        move = move.triu() if monotonic else move
        position = position @ (move / move.sum(1, keepdim=True))
        torch.testing.assert_close(actual[0, i].double().exp(), position, rtol=1e-3, atol=1e-6)
        position = position * emissions[0, i].double().exp()
        position = position / position.sum()


def test_long_moves_share_a_score():
    assert find_distances(4, 3, torch.device("cpu"), monotonic=True)[0].tolist() == [0, 1, 2, 2]
    assert find_distances(4, 3, torch.device("cpu"), monotonic=False)[1].tolist() == [0, 1, 2, 2]


def test_nothing_is_undefined_where_no_position_is_visible():
    transitions = torch.full((1, 2, 3, 3), NEVER, requires_grad=True)
    moved = move_alignment(torch.full((1, 3), NEVER), torch.zeros(1, 3), transitions[:, 0])
    moved.sum().backward()
    assert moved.isfinite().all()
    assert transitions.grad.isfinite().all()
