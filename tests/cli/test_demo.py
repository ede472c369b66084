import sys

import pytest

from regard.cli import main
from regard.cli.demo import EXAMPLE_DATE, RECIPE, print_predictions
from regard.data.example import Example
from regard.tasks.loading import load

QUICK = {
    "data": {"train": "dates", "corpus_size": 60},
    "model": {"name": "bahdanau", "hidden": 8, "embedding": 8},
    "training": {"steps": 2, "batch_tokens": 300, "validate_every": 2, "max_validation": 2},
}


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """The demo with next to no training, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.cli.demo.RECIPE", QUICK)
    return tmp_path


@pytest.mark.slow
def test_the_demo_trains_predicts_draws_and_says_how_to_go_on(quick, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name: None)  # not on the path, as after `make demo`
    monkeypatch.setattr(sys, "argv", [str(quick / ".venv" / "bin" / "regard")])
    assert main(["demo", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("data: the built-in corpus dates, seed 0\n")
    assert (quick / "demo/dates.png").read_bytes().startswith(b"\x89PNG")
    lines = out.splitlines()
    assert lines[1] == "Predictions for ten dates that are not in the training data:"
    assert all(line.startswith("  ") and "(correct: " in line for line in lines[2:12])  # two steps teach nobody
    assert "Saved the picture demo/dates.png and the run demo/dates. Next:" in lines
    assert f'  echo "{EXAMPLE_DATE}" | .venv/bin/regard predict demo/dates' in lines
    commands = [line.split("regard ")[-1].split() for line in lines if line.startswith("  ") and "bin/regard" in line]
    assert [command[0] for command in commands] == ["predict", "evaluate", "inspect", "train", "train", "--help"]
    for name, *_ in commands[:-1]:
        assert main([name, "--help"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["inspect", "demo/dates"]) == 0


@pytest.mark.slow
def test_the_demo_can_be_quiet_and_goes_on_with_what_is_there(quick, capsys):
    for _ in range(2):
        assert main(["demo", "--out", "here", "--quiet"]) == 0
        assert capsys.readouterr().err == ""
    assert (quick / "here.png").exists()
    assert load(quick / "here").recipe.training.steps == 2


def test_a_table_shows_what_would_be_right(reverse_run, capsys):
    predictions = load(reverse_run).predict(["a b", "c d a"])
    print_predictions([Example("a b", "b a"), Example("c d a", "x")], predictions)
    assert capsys.readouterr().out == "  a b    b a\n  c d a  a d c  (correct: x)\n"


def test_the_real_recipe_is_a_recipe():
    from regard.tasks import to_recipe

    assert to_recipe(RECIPE, "demo").data.train == "dates"


def test_what_is_missing_is_said_before_anything_is_trained(quick, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo"]) == 2
    assert capsys.readouterr() == ("", "regard: pictures require matplotlib: pip install matplotlib\n")
    assert not (quick / "demo").exists()


def test_the_demo_says_where_it_cannot_write(quick, capsys):
    (quick / "file").touch()
    assert main(["demo", "--out", "file"]) == 2
    assert capsys.readouterr() == ("", "regard: file: expected a folder for the run, got a file\n")
    assert main(["demo", "--out", "file/run"]) == 2
    assert capsys.readouterr() == ("", "regard: cannot write file/run/training/lock: not a directory\n")
