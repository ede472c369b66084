import json

import pytest
import torch

from regard.bench.cost import (
    LAYERS,
    CostRow,
    RecurrentLayer,
    count_operations,
    fit_exponent,
    fit_growth,
    make_table,
    measure_gradient,
    run_on_positions,
)
from regard.bench.settings import QUICK_COST, CostBench
from regard.cli import main
from regard.layers import MultiHeadAttention


@pytest.mark.parametrize("exponent", [0, 1, 2])
def test_the_exponent_of_a_power_is_fitted(exponent):
    lengths = [8, 16, 32, 64]
    assert fit_exponent(lengths, [3.0 * n**exponent for n in lengths]) == pytest.approx(exponent)


def test_the_exponent_is_that_of_the_longer_half():
    assert fit_exponent([1, 2, 4, 8], [100.0, 100.0, 16.0, 64.0]) == pytest.approx(2)
    assert fit_exponent([1, 2, 4], [None, None, 1.0]) is None


@pytest.mark.parametrize(
    ("values", "exponent"),
    [
        ([1.0, 2.0, 4.0, 8.0], 1),
        ([5.0, 5.1, 5.2, 5.3], None),  # a fixed cost
        ([1.0, 1.0, 9.0, 4.0], None),  # noise
        ([None, None, 1.0, 4.0], None),  # too few
    ],
)
def test_an_exponent_that_noise_or_fixed_costs_hide_is_not_reported(values, exponent):
    fitted = fit_growth([8, 16, 32, 64], values)
    assert fitted == (None if exponent is None else pytest.approx(exponent))


def test_the_table_shows_no_exponent_of_noise():
    rows = [CostRow(name, n, 1e-3, 2e-3, 10_000, 3, 2) for name in LAYERS for n in (32, 64, 128)]
    table = make_table(rows)
    assert list(table.columns[5].cells) == [f"- ({theory.time})" for _, theory in LAYERS.values()]
    assert next(iter(table.columns[7].cells)) == "0.0 (1)"


@pytest.mark.parametrize("name", LAYERS)
def test_counted_steps_and_paths_grow_as_theory_says(name):
    settings, (_, theory) = CostBench(width=4, heads=2), LAYERS[name]
    short, long = (count_operations(name, length, settings) for length in (16, 64))
    for before, after, exponent in zip(short, long, (theory.steps, theory.path), strict=True):
        assert fit_exponent([16, 64], [before, after]) == pytest.approx(exponent, abs=0.06)


def test_a_layer_step_by_step_is_the_layer_at_once():
    layer = RecurrentLayer("lstm", 4)
    x = torch.randn(1, 5, 4)
    torch.testing.assert_close(torch.stack(layer.unroll(x.unbind(1)), 1), layer(x))


def test_the_gradient_is_the_norm_of_the_jacobian():
    torch.manual_seed(0)
    layer = MultiHeadAttention(4, 2)
    settings = CostBench(width=4, heads=2)
    torch.manual_seed(1)
    norm = measure_gradient(layer, 3, settings)
    torch.manual_seed(1)
    x = torch.cat([torch.randn(1, 4) for _ in range(3)])[None]
    jacobian = torch.autograd.functional.jacobian(layer, x)[0, -1, :, 0, 0]
    assert norm == pytest.approx(float(jacobian.norm()), rel=1e-5)
    assert run_on_positions(layer, 3, settings)[1].shape == (1, 4)


@pytest.mark.slow
def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    picture, rows = tmp_path / "cost.png", tmp_path / "rows.jsonl"
    words = ["--quick", "--lengths", "8,16", "--width", "8", "--repeats", "1"]
    assert main(["bench", "cost", *words, "--picture", str(picture), "--jsonl", str(rows)]) == 0
    assert "recurrent (gru)" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    records = [json.loads(line) for line in rows.read_text().splitlines()]
    assert {record["layer"] for record in records} == {*LAYERS, "rnn", "gru", "lstm", "self-attention"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lengths", "8,4"], "--lengths: expected increasing numbers from 1 to 1,048,576, as in 64,128, got 8,4"),
        (["--lengths", "8,x"], "got 8,x"),
        (["--lengths", "99999999999"], "got 99999999999"),
        (["--width", "5", "--heads", "2"], "--width must be divisible by --heads, got 5 and 2"),
        (["--picture", "cost.gif"], 'cost.gif: expected .png or .svg, got ".gif"'),
        (["--device", "cuda:7"], '--device: "cuda:7" cannot be used here'),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["bench", "cost", "--quick", *words]) == 2
    assert message in capsys.readouterr().err
    assert QUICK_COST.parse_lengths() == [32, 64, 128]
