import io
import json
import sys

import pytest

from regard.api import explain, train
from regard.cli import main
from regard.tasks.loading import load

TEXTS = [
    ("who wrote this", "person"),
    ("where is the town", "place"),
    ("who is she", "person"),
    ("where is he", "place"),
]
SENTENCES = [("Ann B-P", "sees O", "Bob B-P"), ("a O", "man O", "sees O", "Ann B-P")]
ONE_STEP = {"steps": 1, "batch_tokens": 100, "validate_every": 1}
SMALL = {"embedding": 6, "hidden": 4, "char_width": 4}


@pytest.fixture(scope="module")
def label_run(tmp_path_factory):
    """A classifier, hardly trained."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in TEXTS * 5))
    recipe = {
        "data": {"train": str(folder / "texts.tsv"), "task": "label", "validation_share": 0.2},
        "training": ONE_STEP,
    }
    train({**recipe, "model": {"name": "attentive-classifier", **SMALL}}, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def tag_run(tmp_path_factory):
    """A tagger, hardly trained."""
    folder = tmp_path_factory.mktemp("tags")
    (folder / "words.bio").write_text("\n\n".join("\n".join(lines) for lines in SENTENCES * 5) + "\n")
    recipe = {
        "data": {"train": str(folder / "words.bio"), "task": "tag", "validation_share": 0.2},
        "training": ONE_STEP,
    }
    train({**recipe, "model": {"name": "attentive-tagger", **SMALL}}, folder / "run", quiet=True)
    return folder / "run"


def output(capsys, *arguments: object) -> list[str]:
    assert main(["explain", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def refusal(capsys, *arguments: object) -> str:
    assert main(["explain", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_label(label_run, capsys):
    lines = output(capsys, label_run, "who is Ann ?")
    assert lines == explain(load(label_run), "who is Ann ?").format_lines()
    assert lines[1].split("  ", 1)[0] == ""
    assert lines[1].split() == ["word", "attention", "gradient", "x", "input", "leave", "one", "out"]
    assert [line.split()[:2] for line in lines[2:6]] == [["0", "who"], ["1", "is"], ["2", "Ann"], ["3", "?"]]


def test_the_text_comes_from_stdin_too(label_run, capsys, monkeypatch):
    given = output(capsys, label_run, "who is she", "--label", "place")
    for argument in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"who is she\n")))
        assert output(capsys, label_run, *argument, "--label", "place") == given
    assert given[0].startswith("label place, probability ")


def test_a_tag(tag_run, capsys):
    lines = output(capsys, tag_run, "a man sees Bob", "--word", 3, "--label", "B-P")
    assert lines[0].startswith('tag B-P of word 3, "Bob", probability ')
    assert "attention rollout" in lines[1]


def test_a_target(reverse_run, capsys):
    lines = output(capsys, reverse_run, "a b c", "--target", "c b a", "--word", 0)
    assert lines[0].startswith('word 0, "c", of the target "c b a", log-probability ')
    assert len(lines) == 10  # what, head, three words, four lines of agreement, and where else it looked


def test_a_language_model_as_json(gpt_run, capsys):
    (line,) = output(capsys, gpt_run, "the cat", "--json")
    assert json.loads(line) == explain(load(gpt_run), "the cat").to_json()


def test_a_page_has_the_words_once_for_each_method(label_run, capsys, tmp_path):
    output(capsys, label_run, "who is <she>", "--html", tmp_path / "why.html", "--quiet")
    page = (tmp_path / "why.html").read_text()
    assert page.count("<section>") == 3
    assert page.count("as shares of the sum of all magnitudes") == 3
    assert "&lt;" in page
    assert "<she>" not in page


def test_a_text_may_begin_with_a_hyphen(label_run, capsys):
    assert output(capsys, label_run, "-who")[2].split()[1] == "-"


def test_what_is_wrong_is_said_in_one_line(label_run, tag_run, reverse_run, capsys):
    assert refusal(capsys, label_run, "who", "is") == ("regard: unexpected argument is; put quotes around the text\n")
    assert refusal(capsys, label_run, "who", "--word", 0) == (
        f"regard: explain: --word is for the task tag or text or pairs; {label_run} is of the task label\n"
    )
    assert refusal(capsys, tag_run, "who", "--second", "x") == (
        f"regard: explain: --second is for the task label; {tag_run} is of the task tag\n"
    )
    assert refusal(capsys, reverse_run, "a b", "--context", "x") == (
        f"regard: explain: --context is for the task label; {reverse_run} is of the task pairs\n"
    )
    assert refusal(capsys, label_run, "") == "regard: explain: the text has no words\n"


def test_a_predictor_needs_no_options(label_run):
    model = load(label_run)
    assert model.explain("who is she") == explain(model, "who is she")


def test_a_page_is_announced_unless_quiet(label_run, tmp_path, capsys):
    page = tmp_path / "a.html"
    for flags, line in ([], f"wrote {page}\n"), (["--quiet"], ""), (["-q"], ""):
        assert main(["explain", str(label_run), "who is she", "--html", str(page), *flags]) == 0
        assert capsys.readouterr().err == line
        assert page.read_text().startswith("<!doctype html>")
