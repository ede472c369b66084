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
    both_sides,
    contests,
    endless,
    make_table,
    notes,
    our_update,
    parameters_of,
    seconds_a_token,
    speeds,
    targets,
)
from regard.cli import main

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is asked of the network

TINY = TrainingBench(words=20, width=8, lstm_layers=2, gpt_layers=2, heads=2, segment=6, context=8, tokens=24)
LSTM, LOCKED, GPT = "lstm-lm, variational=false", "lstm-lm", "gpt"


def contest(name):
    if name == GPT:
        pytest.importorskip("transformers")
    return next(each for each in contests(TINY) if each.name == name)


@pytest.mark.parametrize("name", [LSTM, LOCKED, GPT])
def test_both_sides_do_the_same_work_dropout_included(name, tmp_path, monkeypatch):
    for module in ("dropout", "recurrent"):  # draw what to drop as the other side does
        monkeypatch.setattr(f"regard.layers.{module}.drop", torch.nn.functional.dropout)
    trainer, loop = both_sides(contest(name), TINY, tmp_path)
    assert parameters_of(trainer.engine.model) == parameters_of(loop.model)
    for step in (1, 2, 3):  # what was carried on, and the updates before, are the same too
        before = trainer.counters.loss
        tokens = our_update(trainer)  # seeds each step by its number
        torch.manual_seed(step)
        assert loop.update() == tokens
        assert loop.loss == pytest.approx((trainer.counters.loss - before) / tokens, rel=1e-5)
    assert loop.state == () if name == GPT else not any(part.requires_grad for part in loop.state)


@pytest.mark.parametrize("name", [LSTM, LOCKED, GPT])
def test_something_is_dropped_on_both_sides(name, tmp_path):  # or the same work above would say nothing of it
    trainer, loop = both_sides(contest(name), TINY, tmp_path)
    batch = next(endless(trainer.batches))
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
    trainer, _ = both_sides(contest(name), TINY, tmp_path)
    found = [trainer.batches.batch(places, 0) for places in trainer.batches.plan(0)]
    assert len(found) >= 16
    assert {len(batch) for batch in found} == {rows}
    assert {batch.tokens.shape[1] for batch in found[:-1]} <= widths  # the last has what is left
    assert all((batch.targets != PAD).all() for batch in found)
    assert [batch.fresh for batch in found[1:]] == [name == GPT] * (len(found) - 1)


def test_the_clock_counts_tokens(monkeypatch):
    ticks = iter([10.0, 16.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert seconds_a_token(lambda: 24) == 0.25


def new_speeds(ours, theirs, quiet=True):
    timing = Timing([{"regard": o, "nn.LSTM": t} for o, t in zip(ours, theirs, strict=True)], quiet)
    return speeds(contest(LSTM), timing, vocabulary=25, parameters=1234, tokens=20.0)


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
        ["lstm-lm, variational=false", "nn.LSTM", "1,234", "20", "30.0", "667", ""],
        ["", "regard", "1,234", "20", "20.0", "1,000", "1.50x"],
    ]


def test_a_miss_is_called_a_miss_and_a_busy_machine_is_noted():
    rows = [*new_speeds([1.0], [1.0]), *new_speeds([1.0], [0.9], quiet=False)]
    assert list(targets(rows)) == [
        "Targets:",
        "met   tokens a second of lstm-lm, variational=false, of nn.LSTM: 1.000x, at least 1.00x",
        "MISS  tokens a second of lstm-lm, variational=false, of nn.LSTM: 0.900x, at least 1.00x",
    ]
    busy = "lstm-lm, variational=false: other programs were busy meanwhile; these times are unsound"
    assert [note for note in notes(rows) if not note.startswith("gpt")] == [busy]


def test_the_command_measures_and_keeps_its_rows_and_says_what_it_skips(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "has_transformers", lambda: False)
    kept = tmp_path / "rows.jsonl"
    sizes = ["--words", "20", "--width", "8", "--segment", "6", "--context", "8", "--tokens", "24"]
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
        "gpt: skipped: Transformers is not installed; pip install 'regard[hf]'",
    ):
        assert line in out.splitlines()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--gpt-layers", "0"], "--gpt-layers is 0; 1 or more is needed"),
        (["--words", "-1"], "--words is -1; 1 or more is needed"),
        (["--heads", "3"], "--heads is 3; what divides --width, which is 256, is needed"),
        (["--segment", "64", "--tokens", "63"], "--tokens is 63; --segment, which is 64, or more is needed"),
        (["--tokens", "255"], "--tokens is 255; --context, which is 256, or more is needed"),
        (["--jsonl", "."], ".: cannot be written: Is a directory"),
        (["--width", "x"], 'invalid value for --width: unable to convert "x" into int.'),
    ],
)
def test_bad_options_are_one_line(options, line, capsys):
    assert main(["bench", "training", *options]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")
