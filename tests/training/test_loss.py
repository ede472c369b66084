"""The losses of a step against cross-entropy worked out token by token."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from regard.batch import PAD, Pair, TextBatch, collate
from regard.models import build
from regard.training.loss import PairStep, TextStep, summed_loss

CARRYING = {
    "neural-lm": {"window": 3},
    "rnn-lm": {},
    "gru-lm": {"layers": 2},
    "lstm-lm": {},
    "attentive-lm": {"window": 4},
}


def text_model(name: str):
    torch.manual_seed(3)
    sizes = (
        {"width": 8, "heads": 2, "layers": 1, "context_length": 9}
        if name == "gpt"
        else {"hidden": 6, "embedding": 5, **CARRYING[name]}
    )
    return build(name, vocab_size=11, dropout=0.0, **sizes)


def text(rows: int, time: int) -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randint(4, 11, (rows, time))


def segment(tokens: torch.Tensor, start: int, stop: int) -> TextBatch:
    return TextBatch(tokens[:, start:stop], tokens[:, start + 1 : stop + 1], fresh=start == 0)


def test_the_sum_by_hand():
    logits = torch.tensor([[[math.log(3), 0.0, 0.0], [0.0, 0.0, 0.0]]])
    assert summed_loss(logits, torch.tensor([[2, 1]])).item() == pytest.approx(math.log(5) + math.log(3))
    assert summed_loss(logits, torch.tensor([[2, PAD]])).item() == pytest.approx(math.log(5))


@given(st.floats(0, 0.9), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_smoothing_asks_for_a_share_of_everything(smoothing, target):
    logits = torch.randn(1, len(target), 6, generator=torch.Generator().manual_seed(1))
    log = logits[0].double().log_softmax(-1)
    expected = sum(
        -(1 - smoothing) * log[position, token].item() - smoothing * log[position].mean().item()
        for position, token in enumerate(target)
        if token != PAD
    )
    actual = summed_loss(logits, torch.tensor([target]), smoothing)
    assert actual.item() == pytest.approx(expected, abs=1e-4)


def test_half_precision_is_summed_in_single():
    logits = torch.randn(1, 40, 5).bfloat16()
    actual = summed_loss(logits, torch.full((1, 40), 3))
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, -logits.float().log_softmax(-1)[0, :, 3].sum())


def test_a_step_on_pairs_counts_the_end_of_each_target():
    model = build("bahdanau", source_vocab_size=9, target_vocab_size=9, hidden=6, embedding=5, dropout=0.0)
    batch = collate([Pair([4, 5], [6]), Pair([7], [8, 4, 5])])
    loss, count, _ = PairStep(model)(batch)
    assert count.item() == 2 + 4
    expected = functional.cross_entropy(
        model(batch).transpose(1, 2), batch.target_out, ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", [*CARRYING, "gpt"])
def test_a_step_on_text_is_the_cross_entropy_of_what_follows(name):
    model, tokens = text_model(name), text(2, 8)
    targets = tokens[:, 1:].clone()
    targets[1, 4:] = PAD
    loss, count, _ = TextStep(model)(TextBatch(tokens[:, :-1], targets))
    log = model(tokens[:, :-1])[0].log_softmax(-1)
    expected = -sum(
        log[row, position, targets[row, position]] for row in (0, 1) for position in range(7 if row == 0 else 4)
    )
    assert count.item() == 11
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", CARRYING)
def test_segments_one_after_the_other_are_the_whole_text(name):
    model, tokens = text_model(name), text(3, 13)
    step = TextStep(model)
    whole, *_ = step(segment(tokens, 0, 12))
    parts, carried = [], ()
    for start in (0, 4, 8):
        loss, _, carried = step(segment(tokens, start, start + 4), carried)
        parts.append(loss)
    torch.testing.assert_close(sum(parts), whole)
    again, *_ = step(segment(tokens, 0, 12), carried)  # fresh: the state of earlier segments is ignored
    torch.testing.assert_close(again, whole)
    assert not torch.allclose(parts[1], step(TextBatch(tokens[:, 4:8], tokens[:, 5:9]))[0])


@pytest.mark.parametrize("name", CARRYING)
def test_no_gradient_goes_back_beyond_a_segment(name):
    model, tokens = text_model(name), text(2, 9)
    step = TextStep(model)
    *_, carried = step(segment(tokens, 0, 4))
    assert carried
    assert not any(tensor.requires_grad for tensor in carried)
    step(segment(tokens, 4, 8), carried)[0].backward()  # would fail if it went through the first graph, freed or not
    actual = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    _, carried = model(tokens[:, :4])
    logits, _ = model(tokens[:, 4:8], tuple(tensor.detach() for tensor in carried))
    functional.cross_entropy(logits.flatten(0, 1), tokens[:, 5:9].flatten(), reduction="sum").backward()
    expected = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_state_that_is_not_finite_is_not_carried_on():
    """The cell of an LSTM can be infinite where its output, o * tanh(c), and so the loss are not."""
    step, tokens = TextStep(text_model("lstm-lm")), text(2, 13)
    *_, carried = step(segment(tokens, 0, 4))
    carried[-1].view(-1)[3] = math.inf
    for start, finite in ((4, False), (8, True)):
        step.model.zero_grad()
        loss, _, carried = step(segment(tokens, start, start + 4), carried)
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in step.model.parameters()) == finite
        assert all(tensor.isfinite().all() for tensor in carried)
