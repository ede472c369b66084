import json
import math
from dataclasses import replace

import pytest
import torch

from regard.bench.scaling import (
    SCORES,
    Lookup,
    draw_batch,
    measure_scaling,
    measure_scores,
    softmax_gradient_norm,
    train_lookup,
)
from regard.bench.settings import ScalingBench
from regard.cli import main


@pytest.mark.parametrize("width", [4, 64])
def test_the_variance_of_a_dot_product_is_the_width_and_scaled_it_is_one(width):
    settings = ScalingBench(samples=2000)
    assert measure_scores("dot", width, settings)[0] == pytest.approx(width, rel=0.1)
    assert measure_scores("scaled_dot", width, settings)[0] == pytest.approx(1, rel=0.1)


def test_the_gradient_of_the_softmax_is_that_of_autograd():
    scores = torch.randn(3, 5, dtype=torch.float64)
    for row, norm in zip(scores, softmax_gradient_norm(scores.softmax(-1)), strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row)
        torch.testing.assert_close(norm, jacobian.norm())


def test_large_scores_let_less_gradient_pass():
    settings = ScalingBench(samples=500)
    gradients = {name: measure_scores(name, 1024, settings)[1] for name in ("dot", "scaled_dot")}
    assert gradients["dot"] < 0.5 * gradients["scaled_dot"]


def test_the_right_class_is_that_of_the_key_the_query_was_made_from():
    settings = ScalingBench(keys=8)
    query, keys, values, classes = draw_batch(settings, torch.Generator().manual_seed(0))
    nearest = torch.cdist(query[:, None], keys).squeeze(1).argmin(-1)
    right = values[torch.arange(len(query)), nearest].argmax(-1)
    assert (right == classes).float().mean() > 0.9


@pytest.mark.parametrize("name", SCORES)
def test_a_lookup_gives_probabilities(name):
    settings = ScalingBench(keys=4)
    query, keys, values, _ = draw_batch(settings, torch.Generator().manual_seed(0))
    torch.testing.assert_close(Lookup(name, 8)(query, keys, values).exp().sum(-1), torch.ones(len(query)))


def test_training_finds_the_key():
    settings = ScalingBench(keys=4, steps=60)
    assert train_lookup("scaled_dot", 16, 0.01, 0, settings) < 0.5 * math.log(16)
    assert train_lookup("additive", 16, 0.01, 0, replace(settings, steps=200)) < 0.5 * math.log(16)


def test_the_best_learning_rate_is_reported():
    settings = ScalingBench(widths="8", keys=4, samples=10, steps=60, learning_rates="1e-5,1e-2", seeds=1)
    row = next(measure_scaling(settings, lambda _: None))
    assert row.learning_rate == 0.01
    assert row.loss == pytest.approx(train_lookup("dot", 8, 0.01, 0, settings))


def test_the_biases_break_the_symmetry_of_the_additive_score():
    model = Lookup("additive", 8)
    query, keys = torch.randn(2, 32), torch.randn(2, 3, 32)

    def score(sign):
        return model.score(model.query(sign * query)[:, None], model.keys(sign * keys))

    torch.testing.assert_close(score(-1), -score(1))  # at the start, biases are zero
    torch.nn.init.ones_(model.query.bias)
    assert (score(-1) + score(1)).abs().max() > 1e-3


def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    picture, rows = tmp_path / "scaling.svg", tmp_path / "rows.jsonl"
    words = ["--quick", "--steps", "2", "--picture", str(picture), "--jsonl", str(rows)]
    assert main(["bench", "scaling", *words]) == 0
    assert "scaled_dot" in capsys.readouterr().out
    assert "<svg" in picture.read_text()
    assert [json.loads(line)["width"] for line in rows.read_text().splitlines()] == [4, 64] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--widths", "0"], "--widths: expected increasing numbers from 1 to 65,536, as in 64,128, got 0"),
        (["--learning-rates", "1e-3,20"], "--learning-rates must be at most 10, got 20.0"),
        (["--learning-rates", "1e-3,x"], '--learning-rates: expected a number, got "x"'),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["bench", "scaling", "--quick", *words]) == 2
    assert message in capsys.readouterr().err
