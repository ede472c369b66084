import pytest
import torch

from regard import Weights, attend, causal
from regard.attention import DenseWeights
from regard.attention.combined_weights import JoinedWeights, MergedWeights

MADE = torch.Generator().manual_seed(0)
QUERY, KEYS = torch.randn(2, 3, 2, 5, 4, generator=MADE), torch.randn(2, 3, 1, 5, 4, generator=MADE)


def grouped():
    return attend(QUERY, KEYS, KEYS, visible=causal(), return_weights=True)[1]


def merged():
    """Weights of three groups of two heads as those of six, and the same by the plain formula."""
    scores = QUERY.flatten(1, 2) @ KEYS.repeat_interleave(2, 2).flatten(1, 2).mT / 2
    return MergedWeights(grouped(), 1), scores.masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf).softmax(-1)


def joined():
    """Three rows that see keys 0 to 2, then one that sees keys 1 to 3, then one that sees 2 and 3, of five heads."""
    first = torch.rand(5, 3, 3, generator=torch.Generator().manual_seed(1)).softmax(-1)
    query, keys = torch.randn(5, 1, 4, generator=MADE), torch.randn(5, 3, 4, generator=MADE)
    lazy = attend(query, keys, keys, return_weights=True)[1]
    last = torch.rand(5, 1, 2, generator=torch.Generator().manual_seed(2)).softmax(-1)
    matrix = torch.zeros(5, 5, 4)
    matrix[:, :3, :3], matrix[:, 4:, 2:] = first, last
    matrix[:, 3:4, 1:] = (query @ keys.mT / 2).softmax(-1)
    return JoinedWeights([DenseWeights(first), lazy, DenseWeights(last)], [0, 1, 2]), matrix


CASES = {"merged": merged, "joined": joined}


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_they_are_the_matrix(made):
    weights, matrix = made()
    assert weights.shape == matrix.shape
    torch.testing.assert_close(weights.dense(), matrix)
    torch.testing.assert_close(weights.materialize().dense(), matrix)
    torch.testing.assert_close(weights.detach().dense(), matrix)
    torch.testing.assert_close(weights.clone().dense(), matrix)
    torch.testing.assert_close(weights.to("cpu").dense(), matrix)


@pytest.mark.parametrize(
    "index",
    [
        (..., slice(1, 4), slice(None)),
        (..., slice(None, None, 2), slice(1, 3)),
        (1, ..., 3, 2),
        (..., torch.tensor([4, 0, 4]), slice(None)),
        (..., -1, torch.tensor([3, 0])),
        (0,),
        (slice(1, 2), ..., slice(2, 4), slice(None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_parts_are_those_of_the_matrix(made, index):
    weights, matrix = made()
    torch.testing.assert_close(weights[index], matrix[index])


@pytest.mark.parametrize("head", [0, 3, 5, -1, slice(1, 4)])
def test_a_head_is_found_in_its_group(head):
    weights, matrix = merged()
    torch.testing.assert_close(weights[1, head], matrix[1, head])
    torch.testing.assert_close(weights[:, head, 2], matrix[:, head, 2])


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_reductions_are_those_of_the_matrix(made):
    weights, matrix = made()
    (values, indices), received, entropy, best = weights.reduce("top:3", "received", "entropy", "argmax")
    torch.testing.assert_close(values, matrix.topk(3).values)
    torch.testing.assert_close(matrix.gather(-1, indices.clamp_min(0)).where(indices >= 0, 0.0), values)
    torch.testing.assert_close(received, matrix.sum(-2))
    torch.testing.assert_close(entropy, torch.special.entr(matrix).sum(-1))
    assert torch.equal(best, matrix.argmax(-1))


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_products_are_those_of_the_matrix(made):
    weights, matrix = made()
    *batch, rows, columns = matrix.shape
    for leading in ((), (1,) * len(batch), (*batch[:-1], 1), tuple(batch)):
        right, left = torch.randn(*leading, columns, 3), torch.randn(*leading, rows, 2)
        torch.testing.assert_close(weights @ right, matrix @ right)
        torch.testing.assert_close(weights.mT @ left, matrix.mT @ left)
    right, left = torch.randn(*batch[:-1], columns, 3), torch.randn(*batch[:-1], rows, 2)
    torch.testing.assert_close(weights.mean() @ right, matrix.mean(-3) @ right)
    torch.testing.assert_close(weights.mean().mT @ left, matrix.mean(-3).mT @ left)
    norms = torch.rand(*batch, columns, 4)
    torch.testing.assert_close(weights.value_weighted(norms).received(), matrix.sum(-2) * norms.norm(dim=-1))


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_the_mean_over_heads_is_that_of_the_matrix(made):
    weights, matrix = made()
    torch.testing.assert_close(weights.mean().dense(), matrix.mean(-3))
    torch.testing.assert_close(weights.mean().received(), matrix.mean(-3).sum(-2))


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_they_are_saved(made, tmp_path):
    weights, matrix = made()
    weights.save(tmp_path / "weights.safetensors")
    loaded = Weights.load(tmp_path / "weights.safetensors")
    assert type(loaded) is type(weights)
    torch.testing.assert_close(loaded.dense(), matrix)


def test_gradients_pass_through():
    query, keys = QUERY[0, 0].clone().requires_grad_(), KEYS[0, 0].clone()
    parts = [attend(query[:, rows], keys, keys, return_weights=True)[1] for rows in (slice(0, 3), slice(3, 5))]
    total = JoinedWeights(parts, [0, 0])[..., 1:5, 2:4].square().sum()
    expected = (query @ keys.mT / 2).softmax(-1)[..., 1:5, 2:4].square().sum()
    torch.testing.assert_close(torch.autograd.grad(total, query), torch.autograd.grad(expected, query))


def test_gradients_pass_through_products():
    query, keys = QUERY.clone().requires_grad_(), KEYS.clone()
    right, left = torch.randn(6, 5, 2), torch.randn(5, 2)
    weights = MergedWeights(attend(query, keys, keys, visible=causal(), return_weights=True)[1], 1)
    matrix = (query @ keys.mT / 2).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf).softmax(-1).flatten(1, 2)
    for product, expected in (
        (weights @ right, matrix @ right),
        (weights.mean().mT @ left, matrix.mean(1).mT @ left),
        (JoinedWeights([weights, weights], [0, 5]).mT @ torch.cat([left, left]), torch.cat([matrix.mT @ left] * 2, -2)),
    ):
        found, wanted = (
            torch.autograd.grad(part.square().sum(), query, retain_graph=True)[0] for part in (product, expected)
        )
        torch.testing.assert_close(found, wanted)
