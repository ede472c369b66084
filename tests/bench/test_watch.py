import json
import os

import pytest
import torch
from rich.console import Console

from regard.bench import measure, watch
from regard.bench.settings import WatchBench
from regard.bench.watch import (
    EAGER,
    UNWATCHED,
    WATCHED,
    WatchRow,
    check_targets,
    iter_notes,
    make_table,
    make_watch_calls,
)
from regard.cli import main

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is asked of the network
pytest.importorskip("transformers")

TINY = WatchBench(length=12, layers=2, width=16, heads=4, keep="dense")
ROWS = [
    WatchRow(UNWATCHED, 2.0, 1.0, 30_000_000, 3),
    WatchRow(WATCHED, 2.5, 1.25, 40_000_000, 3),
    WatchRow(EAGER, 9.0, 4.5, 2 * 10**9, 3),
]


def test_all_ways_compute_the_same_and_see_the_same():
    calls = make_watch_calls(TINY)
    (plain, nothing), (watched, seen), (eager, _) = (calls[way]() for way in (UNWATCHED, WATCHED, EAGER))
    assert nothing is None
    assert plain.attentions is None
    torch.testing.assert_close(watched.last_hidden_state, plain.last_hidden_state)
    torch.testing.assert_close(eager.last_hidden_state, plain.last_hidden_state)
    assert list(seen) == ["h.0.attn", "h.1.attn"]
    torch.testing.assert_close([call for (call,) in seen.values()], list(eager.attentions))


def test_the_table_has_a_line_for_each_way():
    console = Console(width=100)
    with console.capture() as capture:
        console.print(make_table(ROWS))
    lines = [line.strip("│").split("│") for line in capture.get().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["SDPA, unwatched", "2.000", "1.00x", "30"],
        ["SDPA, watched", "2.500", "1.25x", "40"],
        ["eager, output_attentions=True", "9.000", "4.50x", "2,000"],
    ]


def test_a_miss_is_called_a_miss_and_what_is_unsound_is_noted():
    assert list(check_targets(ROWS)) == ["Targets:", "met   SDPA, watched, of SDPA, unwatched: 1.250x, at most 1.50x"]
    missed = [ROWS[0], WatchRow(WATCHED, 3.2, 1.6, quiet=False), WatchRow(EAGER, note="skipped: too large")]
    assert list(check_targets(missed))[1] == "MISS  SDPA, watched, of SDPA, unwatched: 1.600x, at most 1.50x"
    assert list(iter_notes(missed)) == [
        "eager, output_attentions=True: skipped: too large",
        "other programs were running; these times are unreliable",
    ]


def test_eager_is_skipped_where_its_weights_do_not_fit(monkeypatch):
    monkeypatch.setattr(measure, "get_free_memory", lambda _: 4 * 5 * 12**2 * 4 - 1)
    monkeypatch.setattr(watch, "measure_apart", lambda *_: [0])
    *others, eager = watch.measure_watch_rows(TINY, lambda _: None)
    assert [row.way for row in others] == [UNWATCHED, WATCHED]
    assert (eager.way, eager.note) == (EAGER, "skipped: needs about 0.0 GB, 0.0 GB are free")
    monkeypatch.setattr(measure, "get_free_memory", lambda _: 4 * 5 * 12**2 * 4)
    assert [row.note for row in watch.measure_watch_rows(TINY, lambda _: None)] == ["", "", ""]


@pytest.mark.slow
def test_the_command_measures_and_keeps_its_rows(tmp_path, capsys):
    kept = tmp_path / "rows.jsonl"
    sizes = ["--length", "16", "--layers", "1", "--width", "16", "--heads", "2", "--repeats", "1"]
    assert main(["bench", "watch", "--quick", *sizes, "--keep", "entropy", "--jsonl", str(kept)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [row["way"] for row in rows] == [UNWATCHED, WATCHED, EAGER]
    for row in rows:
        assert row["ratio"] == row["seconds"] / rows[0]["seconds"]  # of one round
        assert f"{row['ratio']:.2f}x" in out
        assert row["bytes"] >= 0
    assert rows[0]["settings"]["keep"] == "entropy"
    assert 'one text of 16 tokens, watched with keep="entropy", float32' in out.replace("\n", " ")
    assert "Targets" not in out  # which are for another length


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--layers", "0"], "--layers must be at least 1, got 0"),
        (["--heads", "5"], "--width must be divisible by --heads, got 768 and 5"),
        (["--quick", "--keep", "tops"], 'unknown reduction "tops"; did you mean "top:8"?'),
        (["--jsonl", "."], "cannot write .: is a directory"),
    ],
)
def test_bad_options_are_one_line(options, line, capsys):
    assert main(["bench", "watch", *options]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_without_transformers_there_is_nothing_to_watch(monkeypatch, capsys):
    monkeypatch.setattr(watch, "find_spec", lambda _: None)
    assert main(["bench", "watch", "--quick"]) == 2
    assert capsys.readouterr().err == "regard: bench watch: Transformers is not installed; pip install transformers\n"
