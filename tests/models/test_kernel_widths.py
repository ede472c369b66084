import pytest
import torch
from torch import nn

from regard import attend, causal, lengths
from regard.attention import Boxcar, Dot, Epanechnikov, Exact, Gaussian
from regard.batch import Pair, collate
from regard.models.kernel_widths import set_kernel_widths
from regard.models.recurrent_seq2seq import RecurrentConfig, RecurrentSeq2Seq

BATCH = collate([Pair([4, 5], [6]), Pair([7], [8, 9])])


class Looks(nn.Module):
    """Compares what it is given with one score after another."""

    def __init__(self, query, keys, *scores, visible=None):
        super().__init__()
        self.query, self.keys, self.scores = query, keys, nn.ModuleList(scores)
        self.visible, self.runs, self.dropout = visible, 0, nn.Dropout()

    def forward(self, batch):
        self.runs += 1
        assert not self.training
        return [attend(self.query, self.keys, self.keys, score, visible=self.visible) for score in self.scores]


@pytest.mark.parametrize(("kind", "width"), [(Gaussian, 5.0), (Boxcar, 5.0), (Epanechnikov, 10.0)])
def test_the_width_is_the_median_distance_or_twice_that(kind, width):
    keys = torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]])  # 5, 1 and 10 away
    model = Looks(torch.zeros(1, 1, 2), keys[None], kind(), kind(heads=1))
    assert set_kernel_widths(model, BATCH) == {"scores.0": width, "scores.1": width}
    assert [score.width.flatten().tolist() for score in model.scores] == [[width], [width]]
    assert model.training
    assert model.dropout.training


def test_only_keys_that_may_be_seen_count():
    keys = torch.tensor([[1.0], [2.0], [4.0], [900.0], [1000.0]])
    model = Looks(torch.zeros(1, 1, 1), keys[None], Gaussian(), visible=lengths([3]))
    assert set_kernel_widths(model, BATCH) == {"scores.0": 2.0}
    model = Looks(torch.zeros(1, 5, 1), keys[None], Gaussian(), visible=causal())
    assert set_kernel_widths(model, BATCH) == {"scores.0": 2.0}  # of 1 1 1 1 1 2 2 2 2 4 4 4 900 900 1000


def test_all_calls_of_one_kernel_count():
    score = Gaussian()
    model = Looks(torch.zeros(1, 1), torch.tensor([[1.0]]), score)
    more = Looks(torch.zeros(1, 1), torch.tensor([[7.0], [8.0]]), score)
    both = nn.Sequential(model, more)
    assert set_kernel_widths(both, BATCH) == {"0.scores.0": 7.0}


def test_a_model_without_kernels_is_not_run():
    model = Looks(torch.zeros(1, 1), torch.ones(1, 1), Dot(), Exact())
    assert set_kernel_widths(model, BATCH) == {}
    assert model.runs == 0


def test_keys_that_equal_the_query_leave_the_width():
    model = Looks(torch.ones(1, 1), torch.ones(3, 1), Gaussian(2.0))
    assert set_kernel_widths(model, BATCH) == {"scores.0": 2.0}


@pytest.mark.parametrize("attention", ["before", "after"])
def test_in_a_model_half_the_keys_come_within_reach(attention):
    torch.manual_seed(1)
    sizes = {"source_vocab_size": 10, "target_vocab_size": 10, "embedding": 8, "hidden": 64}
    model = RecurrentSeq2Seq(RecurrentConfig(**sizes, attention=attention, score="boxcar", learn_width=True))
    model.attention.score.width.data.fill_(1e-3)
    ((path, width),) = set_kernel_widths(model, BATCH).items()
    assert path == "attention.score"
    assert width > 1e-3
    assert model.attention.score.width.requires_grad
    assert not model(BATCH).isnan().any()
