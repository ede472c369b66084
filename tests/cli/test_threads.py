import os

import pytest
import torch

from regard.cli import main
from regard.cli.threads import shorten_spin

SHORT_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}


@pytest.fixture
def _same_threads(monkeypatch):
    """Keep a test from changing the number of threads of those after it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads_that_wait_spin_for_a_short_time():
    environment = {"HOME": "/home/ann", "MY_OMP_": "x"}
    shorten_spin(environment)
    assert environment == {"HOME": "/home/ann", "MY_OMP_": "x", **SHORT_SPIN}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME"])
def test_what_the_user_has_set_for_openmp_stays(name):
    environment = {name: "2"}
    shorten_spin(environment)
    assert environment == {name: "2"}


def test_every_command_line_sets_the_spin(monkeypatch):
    environment = {name: value for name, value in os.environ.items() if "OMP_" not in name and "KMP_" not in name}
    monkeypatch.setattr(os, "environ", environment)
    assert main(["--version"]) == 0
    assert environment.items() >= SHORT_SPIN.items()


@pytest.mark.parametrize(
    "command",
    [
        *(["train", "copy", "--out", "none"], ["demo"], ["serve", "none"]),
        *(["bench", "attention"], ["bench", "training"], ["bench", "watch"]),
        *(["predict", "pairs"], ["evaluate", "pairs"], ["look", "pairs"], ["explain", "pairs"], ["align", "pairs"]),
        ["generate", "text"],
    ],
)
def test_every_command_that_computes_takes_a_number_of_threads(command, plain_run, text_run, tmp_path, capsys):
    runs = {"pairs": str(plain_run), "text": str(text_run), "none": str(tmp_path / "none")}
    words = [runs.get(word, word) for word in command]
    for number, line in (("0", "must be at least 1, got 0"), ("1025", "must be at most 1,024, got 1,025")):
        assert main([*words, "--threads", number]) == 2
        assert capsys.readouterr() == ("", f"regard: --threads {line}\n")


def test_train_says_what_is_no_number_of_threads(tmp_path, capsys):
    assert main(["train", "copy", "--out", str(tmp_path / "run"), "--threads", "two"]) == 2
    assert capsys.readouterr().err == 'regard: --threads: expected an integer, got "two"\n'


@pytest.mark.usefixtures("_same_threads")
def test_torch_uses_that_many_threads(plain_run, capsys):
    for number in (2, 3):
        assert main(["predict", str(plain_run), "a b", "--device", "cpu", "--threads", str(number)]) == 0
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (number, str(number))
    assert main(["predict", str(plain_run), "a b", "--device", "cpu"]) == 0
    assert torch.get_num_threads() == 3  # nothing is set without the option
