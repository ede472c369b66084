"""Texts read in segments and in batches, against one pass over each row alone."""

import pytest
import torch

from regard.batch import BOS, PAD, TextBatch
from regard.decoding.score_text import iter_segment_log_probabilities, sum_nats, text_log_probabilities
from regard.errors import RegardError
from regard.models import build

SIZES = {
    "neural-lm": {"hidden": 6, "embedding": 5, "window": 3},
    "gru-lm": {"hidden": 6, "embedding": 5},
    "lstm-lm": {"hidden": 6, "embedding": 5, "layers": 2},
    "attentive-lm": {"hidden": 6, "embedding": 5, "window": 4},
}


def text_model(name: str):
    torch.manual_seed(2)
    return build(name, vocab_size=11, **SIZES[name]).eval()


def text(rows: int, time: int) -> torch.Tensor:
    torch.manual_seed(1)
    tokens = torch.randint(4, 11, (rows, time))
    tokens[:, 0] = BOS
    return tokens


def alone(model, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each token but the first, reading each row alone."""
    with torch.no_grad():
        rows = [model(row[None, :-1])[0].double().log_softmax(-1)[0] for row in tokens]
    return torch.stack([log.gather(-1, row[1:, None])[:, 0] for log, row in zip(rows, tokens, strict=True)])


@pytest.mark.parametrize("name", SIZES)
def test_segments_are_read_on(name):
    model, tokens = text_model(name), text(3, 10)
    segments = [TextBatch(tokens[:, a:b], tokens[:, a + 1 : b + 1], fresh=a == 0) for a, b in [(0, 4), (4, 5), (5, 9)]]
    actual = torch.cat(list(iter_segment_log_probabilities(model, segments, "cpu")), 1)
    torch.testing.assert_close(actual.double(), alone(model, tokens), atol=1e-5, rtol=0)


def test_what_is_fresh_knows_nothing_of_what_was_before():
    model, tokens = text_model("gru-lm"), text(2, 7)
    batch = TextBatch(tokens[:, :-1], tokens[:, 1:], fresh=True)
    first, second = iter_segment_log_probabilities(model, [batch, batch], "cpu")
    assert torch.equal(first, second)


def test_what_is_carried_on_is_given_and_keeps_no_gradient():
    model, tokens = text_model("lstm-lm"), text(2, 7)
    _, carried = text_log_probabilities(model, tokens[:, :3], tokens[:, 1:4])
    actual, _ = text_log_probabilities(model, tokens[:, 3:6], tokens[:, 4:7], carried)
    torch.testing.assert_close(actual.double(), alone(model, tokens)[:, 3:], atol=1e-5, rtol=0)
    assert not any(tensor.requires_grad for tensor in carried)


def test_the_sum_over_groups_counts_what_is_asked_for():
    model, tokens = text_model("gru-lm"), text(4, 6)
    targets = tokens[:, 1:].clone()
    targets[0, 2:] = PAD
    targets[3] = PAD
    loss: list[int] = []
    groups = [[TextBatch(tokens[rows, :-1], targets[rows])] for rows in (slice(0, 3), slice(3, 4))]
    nats, count = sum_nats(model, groups, "cpu", loss.append)
    assert (count, loss) == (12, [12, 12])
    assert nats == pytest.approx(-alone(model, tokens)[targets != PAD].sum().item(), abs=1e-4)
    assert sum_nats(model, [], "cpu") == (0.0, 0)


def test_dropout_must_be_off():
    model, tokens = text_model("gru-lm").train(), text(1, 3)
    with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
        text_log_probabilities(model, tokens, tokens)
