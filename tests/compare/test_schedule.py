"""Trainings of a comparison in processes of their own."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from regard.compare.plan import Plan, Variant
from regard.compare.schedule import Training, build_table, build_training, run_all
from regard.errors import RegardError
from regard.training.stop import Terminated

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("error", [RegardError("cannot write"), KeyboardInterrupt(), Terminated()])
def test_whatever_ends_the_command_ends_its_trainings(error, tmp_path, monkeypatch):
    processes = []

    def start(training):
        if processes:
            raise error
        training.process, training.state = subprocess.Popen(SLEEP), "running"
        processes.append(training.process)

    monkeypatch.setattr(Training, "start", start)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    plan = Plan(variants=(Variant("a", {}), Variant("b", {})), seeds=(0,), test=None)
    with pytest.raises(type(error)):
        run_all(plan, tmp_path, jobs=2, quiet=True)
    assert [process.returncode for process in processes] == [-15]


def test_the_table_shows_brackets_as_they_are(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    training = build_training(Variant("a", {}), 0, tmp_path)
    training.state = "a: [model] hidden must be at least 1"
    console.print(build_table([training]))
    assert "a: [model] hidden must be at least 1" in console.file.getvalue()
