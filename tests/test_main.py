"""Interrupts of the real command, at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WATCH = """
import os, signal
install = signal.signal
def install_and_tell(*arguments):
    previous = install(*arguments)
    open(os.environ["READY"], "w").close()
    return previous
signal.signal = install_and_tell
"""
TRAIN = ["train", "copy", "--steps", "50", "--model", "bahdanau", "--hidden", "8", "--device", "cpu"]
NOTHING = "stopped before the first step; nothing was saved\n"


def interrupt(number: int, delay: float, folder: Path, *arguments: str) -> tuple[int, str]:
    """Start the command, send it a signal some seconds after it can handle signals; return its status and stderr.

    Before that, Python itself starts, and ends by the signal.
    """
    (folder / "sitecustomize.py").write_text(WATCH)
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(folder), "READY": str(ready), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(number)
        errors = process.communicate()[1]
    return process.returncode, errors


def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path):
    assert interrupt(signal.SIGINT, 0, tmp_path, "inspect", str(tmp_path)) == (130, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_training_stopped_at_once_says_that_nothing_is_kept(number, status, tmp_path):
    assert interrupt(number, 0.1, tmp_path, *TRAIN, "--out", str(tmp_path / "run")) == (status, NOTHING)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_at_any_moment_ends_in_130_without_a_traceback(tmp_path):
    draw = random.Random(1)
    for number in range(14):
        run = tmp_path / f"run{number}"
        status, errors = interrupt(signal.SIGINT, draw.uniform(0, 3), tmp_path, *TRAIN, "--out", str(run))
        assert "Traceback" not in errors
        assert status in (0, 130), errors
        if not run.exists():
            assert errors.endswith(NOTHING)
