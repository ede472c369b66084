import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from regard import RegardError
from regard.bench import gpu
from regard.bench.gpu import GpuRow, iter_notes, make_table, measure_case, measure_cases, select_cases
from regard.bench.gpu_cases import CASES, Candidate, Goal, GpuCase
from regard.bench.settings import QUICK_GPU
from regard.cli import main

ROOT = Path(__file__).parents[2]
TINY = replace(QUICK_GPU, device="cpu", dtype="float32")


def build_candidates(settings):
    def fail():
        raise RuntimeError("no such kernel\nand more")

    numbers = torch.ones(3)
    return [
        Candidate("ours", lambda: lambda: numbers + 1, lambda result: (result - 2).abs().max().item(), ours=True),
        Candidate("peer", lambda: lambda: numbers),
        Candidate("broken", fail),
        Candidate("compiled", fail, is_compiled=True),
    ]


def test_a_candidate_that_fails_has_its_reason_and_the_others_are_measured():
    ours, peer, broken, compiled = measure_case(GpuCase("case", build_candidates, Goal(1, "x")), TINY)
    assert ours.milliseconds is not None
    assert peer.milliseconds is not None
    assert (ours.error, ours.note, peer.error, peer.ratio) == (0.0, "", None, 1.0)
    assert ours.ratio == pytest.approx(ours.milliseconds / peer.milliseconds)
    assert (broken.milliseconds, broken.note) == (None, "RuntimeError: no such kernel")
    assert (compiled.milliseconds, compiled.note) == (None, "left out")
    assert ours.reach is None  # goals are for the default sizes


def test_a_case_that_cannot_be_built_is_a_row_of_its_own():
    def build(settings):
        raise MemoryError("too large")

    assert measure_case(GpuCase("case", build), TINY) == [GpuRow("case", "", True, note="MemoryError: too large")]


def test_without_time_the_rest_is_named(monkeypatch):
    cases = [GpuCase(name, build_candidates) for name in ("first", "second")]
    clock = iter([0.0, 0.0, 1e9])
    monkeypatch.setattr(gpu.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(gpu, "time_in_rounds", lambda calls, *_: {name: [gpu.Timing(1.0, 0.5)] for name in calls})
    *_, last = measure_cases(cases, TINY, lambda text: None)
    assert list(iter_notes([last])) == ["second: not measured: no time was left; continue with --only second"]


def test_goals_are_met_or_missed():
    goal = Goal(1.3, "ms", 48)
    rows = [
        GpuRow("additive", "attend", True, 1.25, 5, 0.2, 50_000_000, 1e-3, goal, Goal(1.0, "ms"), "", 0.4),
        GpuRow("additive", "plain torch", False, 19.0, 5, 3.7, 16 * 10**9, 2e-3),
        GpuRow("entropy", "weights", True, reach=Goal(0.65, "x")),
    ]
    console = Console(width=140)
    with console.capture() as capture:
        console.print(make_table(rows))
    lines = [line.strip("│").split("│") for line in capture.get().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["additive", "attend", "1.250", "0.20x", "0.40", "50", "1e-03", "1.3 ms met, 48 MB MISS", "1 ms MISS"],
        ["", "plain torch", "19.000", "3.70x", "", "16,000", "2e-03", "", ""],
        ["entropy", "weights", "", "", "", "", "", "0.65x ?", ""],
    ]


def test_notes_of_one_reason_are_one():
    rows = [GpuRow(case, "SDPA, flash", False, note="not built") for case in ("long", "attend")]
    assert list(iter_notes(rows)) == ["long, attend: SDPA, flash: not built"]


def test_cases_are_selected_by_name():
    assert [case.name for case in select_cases(["top8", "additive", "top8"])] == ["top8", "additive"]
    with pytest.raises(RegardError, match='--only: unknown value "top9"; did you mean "top8"'):
        select_cases(["top9"])
    with pytest.raises(RegardError, match="--only is empty; choose from additive"):
        select_cases([])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [["gpu"], ["attention", "--device", "cuda"]])
def test_a_machine_without_a_gpu_says_so_in_one_line(words, capsys):
    assert main(["bench", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('regard: --device: "cuda" cannot be used here: ')


@pytest.mark.slow
def test_every_case_runs_on_tiny_sizes(tmp_path):
    pytest.importorskip("triton")
    pytest.importorskip("transformers")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = ["benchmarks/gpu.py", "--quick", "--device", "cpu", "--dtype", "float32", "--jsonl", tmp_path / "rows"]
    done = subprocess.run([sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    ours = {row["case"]: row for row in rows if row["ours"]}
    assert list(ours) == list(CASES)
    for name, row in ours.items():
        assert row["note"] == "", name
        assert row["milliseconds"] > 0, name
        assert row["error"] <= 1e-3, name
        peers = [peer for peer in rows if peer["case"] == name and not peer["ours"]]
        assert any(peer["milliseconds"] for peer in peers), name
    assert "SDPA, cuDNN: RuntimeError: No" in done.stdout
