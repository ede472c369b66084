"""The commands on classifiers and taggers that have learned what decides."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.errors import RegardError
from regard.schemes import Span
from regard.tasks.label.actions import PredictLabels
from regard.tasks.label.predictor import Labeling, RankedLabel
from regard.tasks.loading import load
from regard.tasks.tag.actions import PredictTags, read_word_lines
from regard.tasks.tag.predictor import Tagging
from regard.views.terminal import SHADES


@pytest.fixture
def answer(monkeypatch, capsys):
    """What a command writes to stdout, line by line, and nothing else."""

    def run(text: str, *arguments: object) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main([*map(str, arguments), "--device", "cpu"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return run


@pytest.fixture
def complaint(monkeypatch, capsys):
    """The one line that a command refuses with."""

    def run(*arguments: object, text: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main([*map(str, arguments), "--device", "cpu"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("regard: ")
        assert err.count("\n") == 1
        return err.removeprefix("regard: ").removesuffix("\n")

    return run


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# predict: labels


def test_each_line_gets_its_label_and_a_blank_line_none(label_runs, answer, tmp_path, monkeypatch):
    text = "one good two\n\nsix bad\n   \nodd"
    assert answer(text, "predict", label_runs["one"]) == ["plus", "", "minus", "", "other"]
    source = written(tmp_path / "in.txt", *text.split("\n"))
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    expected = ["plus", "", "minus", "", "other"]
    assert answer("", "predict", label_runs["one"], "--source", source, "--quiet") == expected
    assert answer("", "predict", label_runs["one"]) == []


def test_the_texts_of_a_table_are_labeled_without_its_labels(label_runs, answer, tmp_path):
    source = written(tmp_path / "test.tsv", "one good two\tminus", "", "six bad\tplus")
    assert answer("", "predict", label_runs["one"], "--source", source) == ["plus", "", "minus"]
    lines = answer("", "predict", label_runs["one"], "--source", source, "--jsonl")
    assert [json.loads(line)["text"] for line in lines] == ["one good two", "", "six bad"]


def test_several_labels_stand_side_by_side(label_runs, answer):
    lines = answer("one bad good\nodd\ntwo", "predict", label_runs["several"])
    assert set(lines[0].split("|")) == {"plus", "minus"}
    assert lines[1] == "other"
    run = label_runs["several"]
    (line,) = answer("one bad", "predict", run, "--threshold", "0")
    assert sorted(line.split("|")) == ["minus", "other", "plus"]


def test_the_best_labels_with_their_probabilities(label_runs, answer):
    (line, blank) = answer("six bad\n\n", "predict", label_runs["one"], "--nbest", 2)
    ranked = load(label_runs["one"]).predict("six bad", nbest=2).ranked
    assert line == "\t".join(f"{label.label} {label.probability:.4f}" for label in ranked)
    assert blank == ""


def test_labels_as_json_with_the_weights_of_words(label_runs, answer):
    lines = answer('one good "é"\n\nbad', "predict", label_runs["one"], "--jsonl", "--nbest", 3)
    first, blank, last = map(json.loads, lines)
    assert list(first) == ["text", "labels", "ranked", "words", "weights"]
    assert (first["text"], first["labels"]) == ('one good "é"', ["plus"])
    assert first["words"] == ["one", "good", '"', "é", '"']
    assert len(first["weights"]) == 5
    assert sum(first["weights"]) == pytest.approx(1, abs=1e-5)
    assert max(first["weights"]) == first["weights"][1]
    assert sum(each["probability"] for each in first["ranked"]) == pytest.approx(1, abs=1e-5)
    assert first["ranked"][0]["label"] == "plus"
    assert blank == {"text": "", "labels": [], "ranked": [], "words": []}
    assert last["weights"] == [pytest.approx(1)]
    (line,) = answer("good", "predict", label_runs["mean"], "--jsonl")
    assert "weights" not in json.loads(line)


def test_a_dialogue_is_read_line_by_line_and_ends_with_a_blank_line(label_runs, answer):
    lines = answer("one good\ntwo bad\nsix\n\nbad\n", "predict", label_runs["context"])
    assert lines == ["none", "plus", "minus", "", "none"]
    lines = list(map(json.loads, answer("good\nbad\nsix\none", "predict", label_runs["context"], "--jsonl")))
    assert [len(each["context_weights"]) for each in lines] == [0, 1, 2, 2]
    assert sum(lines[3]["context_weights"]) == pytest.approx(1, abs=1e-5)


def test_two_texts_have_a_tab_between(label_runs, answer, complaint):
    run = label_runs["pairs"]
    assert answer("one good\tgreat\n\nbad two\todd\n", "predict", run) == ["same", "", "other"]
    line = "line 2: expected two texts separated by a tab, got one"
    assert complaint("predict", run, text="good\tbad\ngood\n") == line


def test_why_shades_the_words(label_runs, answer):
    lines = answer("one good two\n\n", "predict", label_runs["one"], "--why")
    assert lines[0] == "plus"
    assert lines[1] == "one good two"
    shades = lines[2].ljust(12)
    levels = [SHADES.index(shades[index]) for index in (0, 4, 9)]
    assert max(levels) == levels[1] >= 5
    assert lines[3] == f"0 {SHADES} 1"
    assert lines[4:] == ["", ""]
    assert all(line.isascii() for line in lines)


def test_a_page_of_shaded_words(label_runs, answer, tmp_path):
    page = tmp_path / "why.html"
    lines = answer("one good <b>\n\nsix bad", "predict", label_runs["one"], "--html", page, "--quiet")
    assert lines == ["plus", "", "minus"]
    html = page.read_text()
    assert html.startswith("<!DOCTYPE html>") or html.startswith("<!doctype html>")
    assert html.count("<section>") == 2
    assert re.search(r"<h2[^>]*>plus \(\d+%\)</h2>", html)
    assert "&lt;" in html
    assert not re.search(r"""(src|href)=["']?http""", html)  # it needs nothing else
    weights = [float(each) for each in re.findall(r'<data class="s\d+" value="([^"]+)"', html)]
    assert len(weights) == 5 + 2  # one good < b >
    assert sum(weights[:5]) == pytest.approx(1, abs=1e-3)
    assert max(weights[:5]) == weights[1]


# predict: tags


def test_each_word_gets_its_tag_and_a_blank_line_follows(label_runs, answer):
    lines = answer("mr ann junior.\n\nin bob", "predict", label_runs["crf"])
    assert lines[:4] == ["mr\tO", "ann\tB-PER", "junior\tI-PER", lines[3]]
    assert lines[3].startswith(".\t")
    assert lines[4:] == ["", "", "in\tO", "bob\tB-LOC", ""]


def test_words_that_are_cut_already(label_runs, answer, tmp_path):
    lines = ["mr\tx", "ann\tx", "", "", "in\tx", "o'bob.\tx"]
    path = written(tmp_path / "words.conll", *lines)
    by_name = answer("", "predict", label_runs["crf"], "--source", path)
    words = [line.split("\t")[0] for line in by_name]
    assert words == ["mr", "ann", "", "in", "o'bob.", ""]
    assert by_name[:2] == ["mr\tO", "ann\tB-PER"]
    assert answer("mr\nann\n\n\nin\no'bob.", "predict", label_runs["crf"], "--words") == by_name
    assert list(read_word_lines(path, ())) == [["mr", "ann"], ["in", "o'bob."]]


def test_words_are_read_where_training_had_them(tmp_path):
    path = written(tmp_path / "ner.conll", "# id 1", "1\tmr\tO", "2\t10\u00a0000\tO", "", "# id 2", "1\tann\tB-PER")
    assert list(read_word_lines(path, ("2", "3"))) == [["mr", "10\u00a0000"], ["ann"]]
    assert list(read_word_lines(written(tmp_path / "alone", "mr", "#1", "", "in"), ("2", "3"))) == [
        ["mr", "#1"],
        ["in"],
    ]
    path = written(tmp_path / "few", "mr O")
    with pytest.raises(RegardError) as refused:
        list(read_word_lines(path, ("3", "4")))
    assert str(refused.value) == f"{path}, line 1: expected the word in column 3, got 2 columns"


def test_tags_as_json(label_runs, answer):
    first, blank = map(json.loads, answer("mr ann junior one\n\n", "predict", label_runs["crf"], "--jsonl"))
    assert list(first) == ["words", "tags", "probabilities", "spans", "weights"]
    assert len(first["weights"]) == 4
    assert sum(first["weights"]) == pytest.approx(1)
    assert first["words"] == ["mr", "ann", "junior", "one"]
    assert first["tags"] == ["O", "B-PER", "I-PER", "O"]
    assert first["spans"] == [{"type": "PER", "first": 1, "last": 2, "text": "ann junior"}]
    assert all(0.5 < each <= 1.000001 for each in first["probabilities"])
    assert blank == {"words": [], "tags": [], "probabilities": [], "spans": []}


def test_why_shows_what_attention_each_word_received(label_runs, answer, tmp_path):
    page = tmp_path / "why.html"
    lines = answer("mr ann\n\nin bob one", "predict", label_runs["crf"], "--why", "--html", page, "--quiet")
    assert lines[:4] == ["mr\tO", "ann\tB-PER", "attention received", "mr ann"]
    assert lines[5] == f"0 {SHADES} 1"
    assert lines[6:9] == ["", "", "in\tO"]
    html = page.read_text()
    assert html.count("<section>") == 2  # of a blank line there is nothing to show
    weights = [float(each) for each in re.findall(r'<data class="s\d+" value="([^"]+)"', html)]
    assert sum(weights[:2]) == pytest.approx(1, abs=1e-3)
    assert sum(weights[2:]) == pytest.approx(1, abs=1e-3)


def test_forms_of_a_line(label_runs):
    model = load(label_runs["several"])
    ranked = (RankedLabel("plus", 0.75), RankedLabel("minus", 0.5))
    lines = Labeling("a b", ("plus", "minus"), ranked, ("a", "b"), (0.25, 0.75), None)
    assert lines.lines(PredictLabels()) == ["plus|minus"]
    assert lines.lines(PredictLabels(nbest=2)) == ["plus 0.7500\tminus 0.5000"]
    odd = Labeling("a", ("x\ny", "z\t1"), (RankedLabel("x\ny", 0.75), RankedLabel("z\t1", 0.5)), ("a",))
    assert odd.lines(PredictLabels()) == ["x y|z 1"]
    assert odd.lines(PredictLabels(nbest=2)) == ["x y 0.7500\tz 1 0.5000"]
    model.recipe = replace(model.recipe, data=replace(model.recipe.data, separator=""))
    assert odd.lines(PredictLabels()) == ["x y|z 1"]
    assert lines.title == "plus (75%), minus"
    assert Labeling("a", (), ranked, ("a",)).title == "no label"
    tagging = Tagging(("a", "b"), ("O", "B-X"), (0.5, 1.0), (Span("X", 1, 1),))
    assert tagging.lines(PredictTags()) == ["a\tO", "b\tB-X", ""]
    assert Tagging((), (), (), ()).lines(PredictTags(why=True)) == [""]


# evaluate


def test_labels_are_scored(label_runs, answer, tmp_path):
    path = written(tmp_path / "data.tsv", "good\tplus", "bad\tminus", "great one\tminus", "odd\tnew")
    out = tmp_path / "out.txt"
    lines = answer("", "evaluate", label_runs["one"], "--data", path, "--out", out)
    # plus: 1 right, 2 predicted, 1 gold; minus: 1 right, 1 predicted, 2 gold; other: 1 predicted; new: 1 gold
    macro = (2 / 3 + 2 / 3 + 0 + 0) / 4
    weighted = (1 * 2 / 3 + 2 * 2 / 3 + 0 + 0) / 4
    assert lines == [
        "accuracy 0.5000 (right:2|texts:4)",
        "micro F1 0.5000 (right:2|predicted:4|gold:4)",
        f"macro F1 {macro:.4f} (texts:4|labels:4)",
        f"weighted F1 {weighted:.4f} (texts:4|labels:4)",
        "minus: precision 1.0000, recall 0.5000, F1 0.6667 (right:1|predicted:1|gold:2)",
        "new: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:0|gold:1)",
        "other: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:1|gold:0)",
        "plus: precision 0.5000, recall 1.0000, F1 0.6667 (right:1|predicted:2|gold:1)",
        "plus for minus: 1 of 2",
        "other for new: 1 of 1",
    ]
    assert out.read_text() == "plus\nminus\nplus\nother\n"
    (line,) = answer("", "evaluate", label_runs["one"], "--data", path, "--json", "--quiet")
    record = json.loads(line)
    assert record["accuracy"]["value"] == 0.5
    assert record["macro_f1"]["value"] == pytest.approx(macro)
    assert record["confusion"]["labels"] == ["minus", "new", "other", "plus"]
    assert record["confusion"]["rows"] == [[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_several_labels_are_scored(label_runs, answer, tmp_path):
    path = written(tmp_path / "data.tsv", "good bad one\tminus|plus", "odd\tother|plus", "bad\tnew")
    out = tmp_path / "out.txt"
    lines = answer("", "evaluate", label_runs["several"], "--data", path, "--out", out)
    # predicted are minus and plus, other, minus; right are three of these, of five
    precision, recall, f1 = 3 / 4, 3 / 5, 2 * 3 / 9
    name, value, conditions = re.fullmatch(r"(.*) ([\d.]+) \((.*)\)", lines[0]).groups()
    assert (name, float(value)) == ("micro F1", pytest.approx(f1, abs=5e-5))
    assert re.fullmatch(r"threshold:0\.\d+\|right:3\|predicted:4\|gold:5", conditions)
    assert lines[1].startswith(f"precision {precision:.4f} ")
    assert lines[2].startswith(f"recall {recall:.4f} ")
    # among the three best are all three labels: of the three texts 2 of 2, 2 of 2 and 0 of 1 are there
    assert lines[4] == f"recall@3 {2 / 3:.4f} (best:3|texts:3)"
    assert lines[5] == f"precision@3 {4 / 9:.4f} (best:3|texts:3)"
    assert [set(line.split("|")) for line in out.read_text().splitlines()] == [{"minus", "plus"}, {"other"}, {"minus"}]


def test_context_and_pairs_are_read_as_in_training(label_runs, answer, tmp_path):
    path = written(tmp_path / "talk.tsv", "good\tnone", "bad\tplus", "six\tminus", "", "six\tnone")
    assert answer("", "evaluate", label_runs["context"], "--data", path)[0] == "accuracy 1.0000 (right:4|texts:4)"
    path = written(tmp_path / "pairs.tsv", "good\tgreat one\tsame", "good\tbad\tother")
    assert answer("", "evaluate", label_runs["pairs"], "--data", path)[0] == "accuracy 1.0000 (right:2|texts:2)"


def test_spans_are_scored(label_runs, answer, tmp_path):
    lines = ["mr\tO", "ann\tB-PER", "junior\tI-PER", "", "in\tO", "bob\tB-PER", "six\tO", "mr\tO", "kim\tB-PER"]
    path, out = written(tmp_path / "data.bio", *lines), tmp_path / "out.bio"
    report = answer("", "evaluate", label_runs["crf"], "--data", path, "--out", out)
    # LOC: none right of one predicted; PER: both predicted are right, of three
    assert report == [
        "F1 0.6667 (mode:default|right:2|predicted:3|gold:3|sentences:2)",
        "precision 0.6667 (mode:default|right:2|predicted:3|gold:3|sentences:2)",
        "recall 0.6667 (mode:default|right:2|predicted:3|gold:3|sentences:2)",
        "macro F1 0.4000 (mode:default|types:2|sentences:2)",
        "macro precision 0.5000 (mode:default|types:2|sentences:2)",
        "macro recall 0.3333 (mode:default|types:2|sentences:2)",
        "LOC: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:1|gold:0)",
        "PER: precision 1.0000, recall 0.6667, F1 0.8000 (right:2|predicted:2|gold:3)",
    ]
    predicted = [line for line in out.read_text().splitlines() if line]
    assert predicted == [line.replace("bob\tB-PER", "bob\tB-LOC") for line in lines if line]
    again = answer("", "evaluate", label_runs["crf"], "--data", out)  # what is written can be read
    assert again[0] == "F1 1.0000 (mode:default|right:3|predicted:3|gold:3|sentences:2)"
    (line,) = answer("", "evaluate", label_runs["crf"], "--data", path, "--json")
    assert json.loads(line)["f1"]["value"] == pytest.approx(2 / 3)


def test_a_file_without_tags_of_spans_is_named(label_runs, complaint, tmp_path):
    path = written(tmp_path / "pairs.tsv", "ann\tB-PER", "Ein Hund\tA dog")
    expected = 'tags: expected O, or B-, I-, E-, S-, L- or U- with a type, got "A dog"'
    assert complaint("evaluate", label_runs["crf"], "--data", path) == f"{path}, line 2: {expected}"


def test_plain_tags_are_scored_word_by_word(label_runs, answer, tmp_path):
    path = written(tmp_path / "data.bio", "one WORD", "ann NAME", "", "two NAME")
    lines = answer("", "evaluate", label_runs["plain"], "--data", path)
    assert lines[0] == "accuracy 0.6667 (right:2|texts:3)"
    path = written(tmp_path / "wide.bio", "1 one x WORD", "2 ann x NAME")
    lines = answer("", "evaluate", label_runs["plain"], "--data", path, "--columns", "2,4")
    assert lines[0] == "accuracy 1.0000 (right:2|texts:2)"


def test_two_runs_are_compared(label_runs, answer, complaint, tmp_path):
    one, mean, crf = (label_runs[name] for name in ("one", "mean", "crf"))
    path = written(tmp_path / "data.tsv", "good\tplus", "bad\tminus", "great one\tplus", "awful\tminus")
    command = ("evaluate", one, "--data", path, "--against", mean)
    right = sum(each.labels == (label,) for each, label in zip(
        load(mean).predict(["good", "bad", "great one", "awful"]), ["plus", "minus"] * 2, strict=True
    ))  # fmt: skip
    *_, line, verdict = answer("", *command)
    assert line.startswith(f"{mean} and {one}, micro F1 {right / 4:.4f} and 1.0000: ")
    assert verdict.startswith(f"no significant difference between {mean} and {one} (p ")
    record = json.loads(answer("", *command, "--json")[0])
    assert record["accuracy"]["value"] == 1
    assert record["against"]["first"]["value"] == right / 4
    assert (
        complaint("evaluate", one, "--data", path, "--against", crf)
        == f"{crf}: expected a run of the task label, got tag"
    )


# What is refused


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("one", ["--beam", "2"], "predict: --beam is for the task pairs; {run} is of the task label"),
        ("one", ["--words"], "predict: --words is for the task tag; {run} is of the task label"),
        ("one", ["--weights"], "predict: --weights is for the task pairs; {run} is of the task label"),
        ("one", ["--draw"], "predict: --draw is for the task pairs; {run} is of the task label"),
        ("one", ["--nbest", "0"], "--nbest must be at least 1, got 0"),
        ("one", ["--threshold", "0.5"], "threshold requires a model with several labels per text"),
        ("mean", ["--why"],
         "attentive-classifier has no attention weights to show: pooling is mean; train with --pooling attention"),
        ("crf", ["--nbest", "2"], "predict: --nbest is for the task label or pairs; {run} is of the task tag"),
        ("crf", ["--threshold", "0.5"], "predict: --threshold is for the task label; {run} is of the task tag"),
        ("crf", ["--max-length", "3"], "predict: --max-length is for the task pairs; {run} is of the task tag"),
        ("plain", ["--html", "x.html"],
         "attentive-tagger has no self-attention weights to show; train with --encoder both"),
    ],
)  # fmt: skip
def test_what_predict_refuses(name, options, line, label_runs, complaint):
    assert complaint("predict", label_runs[name], *options) == line.format(run=label_runs[name])
    assert not Path("x.html").exists()


def test_what_is_for_labels_is_refused_of_others(plain_run, complaint):
    having = {"threshold": "label", "why": "tag or label", "html": "tag or label", "words": "tag"}
    for option, value in (("threshold", ["0.5"]), ("why", []), ("html", ["a.html"]), ("words", [])):
        line = f"predict: --{option} is for the task {having[option]}; {plain_run} is of the task pairs"
        assert complaint("predict", plain_run, f"--{option}", *value) == line


def test_what_evaluate_refuses(label_runs, complaint, tmp_path):
    one, crf, pairs = (label_runs[name] for name in ("one", "crf", "pairs"))
    empty = written(tmp_path / "empty.tsv")
    two = written(tmp_path / "two.tsv", "good\tplus|minus")
    blank = written(tmp_path / "blank.tsv", "good\t")
    odd = written(tmp_path / "odd.dat", "good\tplus")
    cases: list[tuple[list[Any], str]] = [
        ([one], "--data is required: a file of texts and labels"),
        ([crf], "--data is required: a file of words and tags"),
        ([one, "--data", empty], f"{empty} is empty; expected at least one example"),
        ([crf, "--data", empty], f"{empty} is empty; expected at least one sentence"),
        ([one, "--data", two], f"{two}: expected one label per text, got plus, minus"),
        (
            [one, "--data", blank],
            f"{blank}, line 1: the label is empty; pass --on-empty skip to skip such examples",
        ),
        (
            [one, "--data", odd],
            f"{odd}: cannot infer the format from the file name; pass --format, "
            "or use one of .csv, .jsonl, .ndjson, .tab, .tsv",
        ),
        (
            [pairs, "--data", two, "--columns", "1,2"],
            'text "good": second is required; this model classifies text pairs',
        ),
        ([one, "--data", two, "--beam", "2"], f"evaluate: --beam is for the task pairs; {one} is of the task label"),
        ([crf, "--data", two, "--gold", "x"], f"evaluate: --gold is for the task pairs; {crf} is of the task tag"),
        (
            [crf, "--data", two, "--format", "tsv"],
            f"evaluate: --format is for the task label or pairs; {crf} is of the task tag",
        ),
        (
            [crf, "--data", two, "--on-empty", "skip"],
            f"evaluate: --on-empty is for the task label or pairs; {crf} is of the task tag",
        ),
        ([crf, "--data", "x"], "cannot read x: not found"),
    ]
    for arguments, line in cases:
        assert complaint("evaluate", *arguments) == line


def test_a_tagger_is_told_its_words_as_the_command_line_has_them(label_runs, answer):
    """What the command writes is what the predictor gives."""
    model = load(label_runs["no-crf"])
    lines = answer("in lee junior six", "predict", label_runs["no-crf"])
    tagging = model.predict("in lee junior six")
    assert lines == [*(f"{word}\t{tag}" for word, tag in zip(tagging.words, tagging.tags, strict=True)), ""]
