import json
import os
import time

import pytest
import torch
from rich.console import Console

from regard.batch import PAD
from regard.bench import training
from regard.bench.measure import Timing
from regard.bench.settings import TrainingBench
from regard.bench.training import (
    build_both_sides,
    check_targets,
    compute_speeds,
    count_parameters,
    iter_batches,
    iter_notes,
    list_comparisons,
    make_table,
    measure_seconds_per_token,
    run_update,
)
from regard.cli import main

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is asked of the network

TINY = TrainingBench(
    words=20, width=8, lstm_layers=2, gpt_layers=2, heads=2, segment_length=6, context_length=8, batch_tokens=24
)
LSTM, LOCKED, GPT = "lstm-lm, variational_dropout=false", "lstm-lm", "gpt2"


def contest(name):
    if name == GPT:
        pytest.importorskip("transformers")
    return next(each for each in list_comparisons(TINY) if each.name == name)


@pytest.mark.parametrize("name", [LSTM, LOCKED, GPT])
def test_both_sides_do_the_same_work_dropout_included(name, tmp_path, monkeypatch):
    for module in ("dropout", "recurrent"):  # draw what to drop as the other side does
        monkeypatch.setattr(f"regard.layers.{module}.drop", torch.nn.functional.dropout)
    trainer, loop = build_both_sides(contest(name), TINY, tmp_path)
    assert count_parameters(trainer.engine.model) == count_parameters(loop.model)
    for step in (1, 2, 3):  # what was carried on, and the updates before, are the same too
        before = trainer.counters.loss
        tokens = run_update(trainer)  # seeds each step by its number
        torch.manual_seed(step)
        assert loop.update() == tokens
        assert loop.loss == pytest.approx((trainer.counters.loss - before) / tokens, rel=1e-5)
    assert loop.state == () if name == GPT else not any(part.requires_grad for part in loop.state)


@pytest.mark.parametrize("name", [LSTM, LOCKED, GPT])
def test_something_is_dropped_on_both_sides(name, tmp_path):  # or the same work above would say nothing of it
    trainer, loop = build_both_sides(contest(name), TINY, tmp_path)
    batch = next(iter_batches(trainer.batches))
    assert all(model.train() for model in (trainer.engine.model, loop.model))
    (ours, again), (theirs, once_more) = (
        [call()[0] for _ in range(2)]
        for call in (lambda: trainer.engine.model(batch.tokens), lambda: loop.model(batch.tokens, None))
    )
    assert not torch.equal(ours, again)
    assert not torch.equal(theirs, once_more)
    trainer.engine.model.eval()
    loop.model.eval()
    torch.testing.assert_close(trainer.engine.model(batch.tokens)[0], loop.model(batch.tokens, None)[0])


@pytest.mark.parametrize(("name", "rows", "widths"), [(LSTM, 4, {5, 6}), (GPT, 3, {8})])
def test_batches_are_full(name, rows, widths, tmp_path):
    trainer, _ = build_both_sides(contest(name), TINY, tmp_path)
    result = [trainer.batches.batch(places, 0) for places in trainer.batches.plan(0)]
    assert len(result) >= 16
    assert {len(batch) for batch in result} == {rows}
    assert {batch.tokens.shape[1] for batch in result[:-1]} <= widths  # the last has what is left
    assert all((batch.targets != PAD).all() for batch in result)
    assert [batch.fresh for batch in result[1:]] == [name == GPT] * (len(result) - 1)


def test_the_clock_counts_tokens(monkeypatch):
    ticks = iter([10.0, 16.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert measure_seconds_per_token(lambda: 24) == 0.25


def new_speeds(ours, theirs, quiet=True):
    timing = Timing([{"regard": o, "nn.LSTM": t} for o, t in zip(ours, theirs, strict=True)], quiet)
    return compute_speeds(contest(LSTM), timing, vocabulary=25, parameters=1234, tokens=20.0)


def test_a_ratio_is_the_median_of_how_much_faster_ours_is_in_each_round():
    theirs, ours = new_speeds([0.001, 0.002, 0.004], [0.003, 0.004, 0.002])
    assert (ours.seconds, theirs.seconds) == (0.002, 0.003)
    assert (ours.ratio, theirs.ratio) == (2.0, 0.5)  # of 3, 2 and 1/2
    assert (ours.rounds, ours.by, theirs.by) == (3, "regard", "nn.LSTM")


def test_the_table_has_speeds_of_both_and_the_ratio_of_ours():
    console = Console(width=120)
    with console.capture() as capture:
        console.print(make_table(new_speeds([0.001], [0.0015])))
    lines = [line.strip("│").split("│") for line in capture.get().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["lstm-lm, variational_dropout=false", "nn.LSTM", "1,234", "20", "30.0", "667", ""],
        ["", "regard", "1,234", "20", "20.0", "1,000", "1.50x"],
    ]


def test_a_miss_is_called_a_miss_and_a_busy_machine_is_noted():
    rows = [*new_speeds([1.0], [1.0]), *new_speeds([1.0], [0.9], quiet=False)]
    assert list(check_targets(rows)) == [
        "Targets:",
        "met   tokens a second of lstm-lm, variational_dropout=false, of nn.LSTM: 1.000x, at least 1.00x",
        "MISS  tokens a second of lstm-lm, variational_dropout=false, of nn.LSTM: 0.900x, at least 1.00x",
    ]
    busy = "lstm-lm, variational_dropout=false: other programs were running; these times are unreliable"
    assert [note for note in iter_notes(rows) if not note.startswith("gpt")] == [busy]


def test_the_command_measures_and_keeps_its_rows_and_says_what_it_skips(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "has_transformers", lambda: False)
    kept = tmp_path / "rows.jsonl"
    sizes = ["--words", "20", "--width", "8", "--segment-length", "6", "--context-length", "8", "--batch-tokens", "24"]
    assert main(["bench", "training", "--quick", *sizes, "--repeats", "1", "--jsonl", str(kept)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(row["model"], row["by"]) for row in rows] == [
        (LSTM, "nn.LSTM"),
        (LSTM, "regard"),
        (LOCKED, "nn.LSTM, layer by layer"),
        (LOCKED, "regard"),
    ]
    for theirs, ours in (rows[:2], rows[2:]):
        assert ours["ratio"] == theirs["seconds"] / ours["seconds"]  # of one round
        assert f"{ours['ratio']:.2f}x" in out
        assert f"{1 / ours['seconds']:,.0f}" in out
        assert ours["parameters"] == theirs["parameters"] == 25 * 8 + 25 + 2 * (2 * 8 * 32 + 2 * 32)
    assert rows[0]["settings"]["width"] == 8
    for line in (
        "lstm-lm: 2 layers of width 8, segments of up to 6, vocabulary 25",
        "gpt2: skipped: Transformers is not installed; pip install transformers",
    ):
        assert line in out.splitlines()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--gpt-layers", "0"], "--gpt-layers must be at least 1, got 0"),
        (["--words", "-1"], "--words must be at least 1, got -1"),
        (["--heads", "3"], "--width must be divisible by --heads, got 256 and 3"),
        (
            ["--segment-length", "64", "--batch-tokens", "63"],
            "--batch-tokens must be at least --segment-length (64), got 63",
        ),
        (["--batch-tokens", "255"], "--batch-tokens must be at least --context-length (256), got 255"),
        (["--jsonl", "."], "cannot write .: is a directory"),
        (["--width", "x"], 'invalid value for --width: unable to convert "x" into int.'),
    ],
)
def test_bad_options_are_one_line(options, line, capsys):
    assert main(["bench", "training", *options]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")
