"""A task of one's own: one class, a row of TASKS and a row of MODELS are all it takes."""

from dataclasses import dataclass, field

import pytest

from regard.cli import main
from regard.models import MODELS, Preset, RecurrentConfig, RecurrentSeq2Seq
from regard.run import Run
from regard.tasks import TASKS
from regard.tasks.pairs import PairTask
from regard.tasks.pairs.settings import PairData, PairRecipe


@dataclass(frozen=True, kw_only=True)
class EchoData(PairData):
    loud: bool = False  # say it in capitals


@dataclass(frozen=True, kw_only=True)
class EchoRecipe(PairRecipe):
    data: EchoData = field(default_factory=EchoData)  # what is said


class Echo(PairTask):
    name = "echo"
    data_help = "a file of things to say (.say)"
    example = "regard train hello.say --out runs/echo"
    next_command = "predict {run} < said.txt"
    recipe = EchoRecipe  # type: ignore[assignment]
    presets = ("parrot",)  # type: ignore[assignment]
    unit = "saying"

    def claims(self, data):
        return str(data.get("train")).endswith(".say")


@pytest.fixture
def echo(monkeypatch):
    rows = {"echo": Echo(), **TASKS}
    TASKS.clear()  # so that it is asked before pairs, which are all the rest
    TASKS.update(rows)
    monkeypatch.setitem(MODELS, "parrot", Preset(RecurrentSeq2Seq, RecurrentConfig, {}, "echo"))
    yield
    del TASKS["echo"]


def test_a_fifth_task_is_trained_helped_with_and_described(echo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.say").write_text("a b\tA B\nb a\tB A\nb b\tB B\n")
    short = ["--steps", "2", "--validate-every", "2", "--hidden", "4", "--embedding", "4", "--format", "tsv"]
    assert main(["train", "hello.say", "--model", "parrot", "--loud", "--out", "run", *short]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "next: regard predict run < said.txt"
    assert Run(tmp_path / "run").read_card()["task"] == "echo"
    assert Run(tmp_path / "run").read_recipe()["data"]["loud"] is True
    assert main(["inspect", "run"]) == 0
    assert "; 2 sayings for training, 1 for validation\n" in capsys.readouterr().out
    assert main(["train", "--help"]) == 0
    assert "  echo    a file of things to say (.say)\n" in capsys.readouterr().out
    assert main(["train", "--help", "--task", "echo"]) == 0
    out = capsys.readouterr().out
    assert "data: what is said\n" in out
    assert "  --data.loud                   say it in capitals [false]\n" in out
    assert out.splitlines()[-1] == "Example: regard train hello.say --out runs/echo"
    assert main(["train", "pairs.tsv", "--loud", "--out", "other"]) == 2
    assert capsys.readouterr().err == (
        "regard: command line: [data] loud is for the task echo; this recipe is for pairs\n"
    )
