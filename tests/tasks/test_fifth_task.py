"""A fifth task, in one file and two table rows, works with every command, the server and its page."""

import io
import json
import re
import sys

import pytest

from regard.api import explain, load, look
from regard.cli import main
from regard.models import MODELS
from regard.serve.served_models import start_model
from regard.serve.settings import ServeSettings
from regard.tasks import TASKS
from tests.chromium import chromium
from tests.serve.running import running
from tests.serve.static.conftest import Shown
from tests.tasks.number import ROW_OF_MODELS, ROW_OF_TASKS

WORTH = {"awful": -2.0, "bad": -1.0, "good": 1.0, "great": 2.0}
FILLERS = ["the", "a", "film", "was", "so", "very", "really", "it"]


@pytest.fixture(scope="module", autouse=True)
def number_task():
    """Add the two rows, before all others: pairs claims everything that no other task does."""
    patch = pytest.MonkeyPatch()
    others = dict(TASKS)
    TASKS.clear()
    TASKS.update({**ROW_OF_TASKS, **others})
    for name, preset in ROW_OF_MODELS.items():
        patch.setitem(MODELS, name, preset)
    yield
    TASKS.clear()
    TASKS.update(others)
    patch.undo()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run trained by the command: the number of a text is that of its one rating word."""
    folder = tmp_path_factory.mktemp("number")
    texts = [
        (f"{FILLERS[index % 8]} {word} {FILLERS[(index // 8) % 8]}", worth)
        for index in range(64)
        for word, worth in WORTH.items()
    ]
    (folder / "films.rated").write_text("".join(f"{text}\t{worth}\n" for text, worth in texts))
    (folder / "new.rated").write_text("it was so great\t2\nbad film\t-1\n")
    assert main(["train", str(folder / "films.rated"), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def output(capsys, *words):
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_predict(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"so great film\na bad film\n")))
    numbers = [float(line) for line in output(capsys, "predict", run, "--digits", 3).splitlines()]
    assert numbers == pytest.approx([2, -1], abs=0.2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"so great film\n")))
    (line,) = output(capsys, "predict", run, "--jsonl", "--html", tmp_path / "why.html", "--quiet").splitlines()
    record = json.loads(line)
    assert list(record) == ["text", "number", "words", "weights"]
    assert record["weights"][1] > 0.5
    assert (tmp_path / "why.html").read_text().count("<section>") == 1


def test_evaluate(run, capsys):
    line = output(capsys, "evaluate", run, "--rated", run.parent / "new.rated")
    assert float(line.removeprefix("mean absolute error ")) < 0.2
    assert json.loads(output(capsys, "evaluate", run, "--rated", run.parent / "new.rated", "--json")).keys() == {
        "mean_absolute_error"
    }


def test_look_and_explain(run, capsys):
    lines = output(capsys, "look", run, "the film was great").splitlines()
    assert lines[1] == "the film was great"
    picture = look(load(run), "the film was great")
    assert picture.columns[picture.select()[0].argmax()] == "great"
    assert "attention  gradient x input  leave one out" in output(capsys, "explain", run, "the film was great")
    explanation = explain(load(run), "the film was great")
    assert explanation.words[max(range(4), key=explanation.values["leave one out"].__getitem__)] == "great"


def test_help_and_refusals(run, reverse_run, capsys):
    help_text = output(capsys, "predict", run, "--help")
    assert "--digits" in help_text
    assert "--beam INT" not in help_text
    assert "Only for the task number" in output(capsys, "predict", "--help-all")
    assert main(["predict", str(run), "--beam", "2"]) == 2
    assert capsys.readouterr().err == f"regard: predict: --beam is for the task pairs; {run} is of the task number\n"
    assert main(["predict", str(reverse_run), "--digits", "2"]) == 2
    line = f"regard: predict: --digits is for the task number; {reverse_run} is of the task pairs\n"
    assert capsys.readouterr().err == line
    assert main(["generate", str(run)]) == 2
    assert capsys.readouterr().err == f"regard: generate is for the task text; {run} is of the task number\n"
    assert re.search(r"^vocabulary: \d+ words$", output(capsys, "inspect", run), re.MULTILINE)


def test_the_server(run):
    model = start_model("films", load(run), ServeSettings())
    try:
        with running({"films": model}) as client:
            (about,) = client.ask("/api/models").json["models"]
            assert (about["kind"], about["attention"], about["options"]) == ("number", ["pooling"], ["digits"])
            answer = client.ask("/api/predict", {"text": "so great film"}).json
            assert (answer["kind"], answer["model"], answer["words"]) == ("number", "films", ["so", "great", "film"])
            assert answer["number"] == pytest.approx(2, abs=0.2)
            ((name, streamed),) = client.ask("/api/stream", {"text": "so great film"}).events
            assert (name, streamed) == ("answer", answer)
            assert client.ask("/api/look", {"text": "so great film"}).json["columns"] == ["so", "great", "film"]
            refused = client.ask("/api/predict", {"text": "so great film", "beam": 2})
            assert refused.error == 'model "films" does not support "beam"; choose from text, digits'
            assert "NumberRecord" in client.ask("/openapi.json").json["components"]["schemas"]
    finally:
        model.worker.stop(5)


@pytest.mark.slow
def test_the_page(run):
    model = start_model("films", load(run), ServeSettings())
    try:
        with running({"films": model}) as client, chromium() as browser:
            page = Shown(browser.new_page())
            page.page.goto(client.address)
            page.run("the film was great")
            assert page.page.locator("[name=model] option").all_text_contents() == ["films (regression model)"]
            (output,) = page.outputs()
            assert float(output.removeprefix("number ")) == pytest.approx(2, abs=0.2)
            assert page.page.get_by_role("tab", selected=True).text_content() == "Words"
            assert page.wrong == []
    finally:
        model.worker.stop(5)
