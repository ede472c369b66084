"""A few of the kills of `make torture`."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_killed_trainings_end_in_the_same_bits():
    result = subprocess.run(
        [sys.executable, "-m", "tests.torture", "--kills", "24", "--seed", "1"],
        capture_output=True,
        text=True,
    )
    assert result.stdout.startswith("28 of 28 stopped trainings ended in the same bits"), result.stdout + result.stderr
    assert result.returncode == 0
