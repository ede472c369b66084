"""`regard compare` from the command line to the report."""

import json
import platform
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import __version__
from regard.cli import main
from regard.compare.charts import build_charts
from regard.compare.pages import build_rows, describe_conditions, write_report
from regard.compare.plan import read_plan
from regard.compare.report import build_report
from regard.compare.schedule import build_training
from regard.compare.worker import choose_texts, get_result_file, run_training
from regard.compare.worker import main as run_worker
from regard.data.corpora import generate_built_in
from regard.errors import RegardError
from regard.metrics.items import ItemCounts
from regard.tasks.item_scores import ItemScores

MODELS = ("seq2seq", "simple-attention")
SIZES = "--steps 30 --batch-tokens 300 --hidden 16 --embedding 16 --corpus-size 200 --max-length 4"
OPTIONS = [*SIZES.split(" "), "--device", "cpu"]


def compare(*words: str) -> int:
    return main(["compare", *words])


@pytest.fixture(scope="module")
def comparison(share) -> Path:
    """A comparison of two models with two seeds, trained in this process."""

    def fill(folder: Path) -> None:
        _, test = generate_built_in("reverse", train=0, valid=60, max_length=4)
        (folder / "test.tsv").write_text("".join(f"{example.source}\t{example.target}\n" for example in test))
        words = ["--seeds", "2", "--test", str(folder / "test.tsv"), "--out", str(folder / "comparison")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.compare.schedule.run_all", run_here)
            assert compare("reverse", "--models", ",".join(MODELS), *OPTIONS, *words) == 0

    return share("comparison", fill) / "comparison"


def run_here(plan, folder, *, jobs, quiet):
    """Train one after another in this process, which has imported torch already."""
    for variant, seed in plan.trainings:
        run_training(folder, plan, variant, seed)
    trainings = [build_training(variant, seed, folder) for variant, seed in plan.trainings]
    return [replace(training, state="done") for training in trainings]


def test_every_training_leaves_a_run_and_a_result(comparison):
    names = [f"{model}-{seed}" for model in MODELS for seed in (0, 1)]
    assert sorted(path.name for path in (comparison / "runs").iterdir()) == sorted(names)
    assert sorted(path.stem for path in (comparison / "results").glob("*.json")) == sorted(names)
    result = json.loads((comparison / "results" / "seq2seq-0.json").read_text())
    assert (result["steps"], result["seed"], result["variant"]) == (30, 0, "seq2seq")
    assert result["memory"] > 1e6


def test_all_seeds_and_models_are_tested_on_the_same_items(comparison):
    results = [json.loads(path.read_text()) for path in (comparison / "results").glob("*.json")]
    assert len(results) == 4
    assert len({tuple(result["test"]["inputs"]) for result in results}) == 1
    assert len({tuple(look["text"] for look in result["looks"]) for result in results}) == 1


def test_the_table_has_a_row_for_each_model(comparison):
    report = build_report(read_plan(comparison), comparison, {})
    header, *rows = build_rows(report)
    assert [row[0] for row in rows] == list(MODELS)
    assert header[2] == "exact match (higher is better)"
    values = [json.loads((comparison / "results" / f"seq2seq-{seed}.json").read_text()) for seed in (0, 1)]
    scores = [ItemCounts.from_json(value["test"]["items"]).value for value in values]
    assert rows[0][2] == f"{np.mean(scores):.4f} ± {np.std(scores, ddof=1):.4f}"
    assert rows[0][4] == ""
    assert rows[1][4].startswith(("+", "-"))


class Tags(HTMLParser):
    """The addresses that a page loads, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data):
        self.text += data


def test_the_page_is_self_contained(comparison):
    page = Tags()
    page.feed((comparison / "report.html").read_text())
    assert len(page.sources) == 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert "seq2seq has no attention" in page.text
    assert "regard compare reverse --models seq2seq,simple-attention" in page.text


def test_the_pictures_of_the_markdown_are_there(comparison):
    text = (comparison / "report.md").read_text()
    pictures = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(pictures) == 3 + 3  # charts, and three texts with attention in one model
    assert all((comparison / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert "Trained on cpu; one training at a time." in text
    versions = f"regard {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    assert f"\n- {versions}.\n" in text
    assert "here with seed 0 of 2" in text
    assert text.count("regard train ") == 2


def test_the_recipe_of_a_model_trains_the_same_model(comparison, tmp_path):
    assert (
        main(["train", str(comparison / "recipes" / "seq2seq.toml"), "--seed", "1", "--out", str(tmp_path / "r")]) == 0
    )
    runs = tmp_path / "r", comparison / "runs" / "seq2seq-1"
    assert len({(run / "model.safetensors").read_bytes() for run in runs}) == 1


@pytest.mark.slow
def test_trainings_run_side_by_side_in_processes_and_are_not_repeated(tmp_path, capsys):
    words = ("reverse", "--models", ",".join(MODELS), *OPTIONS, "--jobs", "2", "--out", str(tmp_path / "c"))
    assert compare(*words) == 0
    first = capsys.readouterr()
    assert "seq2seq, seed 0: done" in first.err
    assert [line.split()[0] for line in first.out.splitlines()] == ["model", *MODELS]
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "results").iterdir()}
    assert compare(*words) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "running" not in again.err
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "results").iterdir()}


@pytest.mark.slow
def test_a_failed_training_is_reported_and_the_others_go_on(comparison, tmp_path, capsys):
    words = ["reverse", "--models", ",".join(MODELS), *OPTIONS, "--out", str(tmp_path / "c")]
    run = tmp_path / "c" / "runs" / "seq2seq-0"
    plan = read_plan(comparison)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.compare.schedule.run_all", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert compare(*words) == 130
    assert "stopped; run the same command again to resume" in capsys.readouterr().err
    run.mkdir(parents=True)
    (run / "letter.txt").write_text("dear")
    assert compare(*words) == 2
    streams = capsys.readouterr()
    assert "regard: 1 of 2 trainings failed; seq2seq, seed 0:" in streams.err
    assert "is not empty and not a run; choose another folder" in streams.err
    assert [line.split()[0] for line in streams.out.splitlines()] == ["model", "simple-attention"]
    assert "seq2seq, seed 0 failed" in (tmp_path / "c" / "report.md").read_text()
    assert plan.variants


def test_the_worker_ends_with_one_line(comparison, tmp_path, capsys):
    assert run_worker([str(tmp_path), "seq2seq", "0"]) == 2
    assert capsys.readouterr().err == f"cannot read {tmp_path / 'plan.json'}: not found\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reverse", "--models", "seq2seq,bahdanau"], "compare: --out is required: the folder of the comparison"),
        (["reverse", "--models", "seq2seq", "--out", "x"], "compare: expected at least two models; pass --models A,B"),
        (["--models", "seq2seq,bahdanau", "--out", "x"], "compare: DATA is required"),
        (["reverse", "--models", "seq2seq,bahdanow", "--out", "x"], 'did you mean "bahdanau"?'),
        (
            ["reverse", "--models", "seq2seq,", "--out", "x"],
            "--models: expected values separated by commas",
        ),
        (["reverse", "--set", "score", "--out", "x"], "--set: expected NAME=VALUE,VALUE, got score"),
        (
            ["reverse", "--models", "seq2seq,bahdanau", "--seeds", "0", "--out", "x"],
            "--seeds must be at least 1, got 0",
        ),
        (["reverse", "--models", "seq2seq,bahdanau", "--jobs", "two", "--out", "x"], "--jobs"),
        (["reverse", "--models", "seq2seq,bahdanau", "--from", "r", "--out", "x"], "--from cannot be combined"),
        (
            ["reverse", "--models", "seq2seq,bahdanau", "--hiden", "3", "--out", "x"],
            "compare: unknown option --hiden; did you mean --hidden?",
        ),
        (
            ["reverse", "--models", "seq2seq,bahdanow", "--out", "x"],
            '--models: unknown value "bahdanow"; did you mean "bahdanau"?',
        ),
        (
            ["reverse", "--models", "bahdanau", "--set", "model.hiden=1,2", "--out", "x"],
            '--set model.hiden: unknown setting "hiden"; did you mean "hidden"?',
        ),
        (
            ["reverse", "--models", "seq2seq,bahdanau", "--set", "model.hidden=x,2", "--out", "x"],
            '--set model.hidden: expected an integer, got "x"',
        ),
        (
            ["reverse", "--models", "seq2seq", "--set", "training.metric=exact,bleu", "--out", "x"],
            "compare: expected one validation metric for all models, got exact and bleu",
        ),
        (["reverse", "--models"], "--models requires a value"),
        (["reverse", "--models", "bahdanau", "--scores", "dot,dott", "--out", "x"], 'did you mean "dot"?'),
        (
            ["reverse", "--models", "seq2seq,gpt", "--out", "x"],
            "compare: expected models of one task, got seq2seq (pairs) and gpt (text)",
        ),
        (
            ["reverse", "--models", "seq2seq,bahdanau", *OPTIONS, "--test", "test.tsv", "--out", "x"],
            "--test: test.tsv: not found; expected a file or a built-in corpus",
        ),
        (
            ["reverse", "--models", "seq2seq,bahdanau", *OPTIONS, "--test", "acts", "--out", "x"],
            "data: acts is a built-in corpus for the task label, not pairs; choose from ",
        ),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compare(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help(capsys):
    assert compare("--help") == 0
    text = capsys.readouterr().out
    assert "Usage: regard compare DATA --out FOLDER" in text
    assert text.rstrip().endswith("--out runs/story")


def test_combinations_of_settings_are_named_by_what_differs(comparison, monkeypatch, tmp_path):
    plans = []
    monkeypatch.setattr("regard.compare.schedule.run_all", lambda plan, *_, **__: plans.append(plan) or stop())

    def stop():
        raise KeyboardInterrupt

    words = ["reverse", *OPTIONS, "--scores", "dot,additive"]
    compare(*words, "--models", "bahdanau", "--out", str(tmp_path / "a"))
    compare(*words, "--models", "bahdanau,luong-general", "--set", "dropout=0.1,0.2", "--out", str(tmp_path / "b"))
    assert [variant.name for variant in plans[0].variants] == ["dot", "additive"]
    assert plans[1].variants[0].name == "bahdanau score=dot dropout=0.1"
    assert len(plans[1].variants) == 8
    assert plans[1].variants[0].table["model"] == {
        "name": "bahdanau",
        "score": "dot",
        "dropout": 0.1,
        "hidden": 16,
        "embedding": 16,
    }


def test_texts_to_look_at_are_short_and_of_different_lengths():
    texts = [" ".join("w" * n) for n in (40, 3, 5, 9, 2, 30)]
    items = ItemCounts("accuracy", "", np.ones((6, 2)), np.arange(6), "words", np.zeros(6, dtype=bool))
    scores = ItemScores(part="", items=items, curve=items, inputs=texts, outputs=texts, output_tokens=0, scores={})
    assert [len(text.split()) for text in choose_texts(scores)] == [3, 5, 9]
    assert choose_texts(replace(scores, inputs=["a b"] * 6)) == ["a b"]


def test_texts_that_only_some_models_looked_at_are_shown_with_these(comparison, tmp_path):
    plan = read_plan(comparison)
    for variant, seed in plan.trainings:  # as if the tokens of the second model made up one text only
        result = json.loads(get_result_file(comparison, variant, seed).read_text())
        if variant.name == "simple-attention":
            result["looks"] = [{"text": "x y", "reason": "too short"}]
        file = get_result_file(tmp_path, variant, seed)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(result))
    markdown, html = write_report(build_report(plan, tmp_path, {}), tmp_path)
    text = markdown.read_text()
    assert text.count("\n### ") == 4
    assert text.count("seq2seq: seq2seq has no attention") == 3
    assert "### x y\n\nsimple-attention: too short\n" in text
    assert "<h3>x y</h3>" in html.read_text()


def test_a_comparison_without_results_is_refused(comparison, tmp_path):
    plan = read_plan(comparison)
    with pytest.raises(Exception, match="no training has a result"):
        build_report(plan, tmp_path, {})


def test_different_tokens_are_said(comparison):
    report = build_report(read_plan(comparison), comparison, {})
    assert not any("tokens" in line for line in describe_conditions(report))
    items = replace(report.models[0].items[0], metric="bits_per_character")
    other = replace(report, models=[replace(report.models[0], items=[items]), *report.models[1:]])
    assert describe_conditions(other)[1].startswith("The models have different tokens: compare bits per character")


def test_a_result_of_another_version_is_refused_in_one_line(comparison, tmp_path):
    plan = read_plan(comparison)
    file = get_result_file(tmp_path, plan.variants[0], 0)
    file.parent.mkdir()
    record = json.loads(get_result_file(comparison, plan.variants[0], 0).read_text())
    del record["versions"], record["looks"]
    file.write_text(json.dumps(record))
    with pytest.raises(RegardError, match=r"seq2seq-0.json: missing versions, looks; remove the file and run the same"):
        build_report(plan, tmp_path, {})


def test_charts_leave_out_unknown_words_where_there_are_some(comparison, tmp_path):
    plan = read_plan(comparison)
    assert [chart.name for chart in build_charts(build_report(plan, comparison, {}))] == [
        "by-length",
        "learning-seconds",
        "learning-tokens",
    ]
    for variant, seed in plan.trainings:
        result = json.loads(get_result_file(comparison, variant, seed).read_text())
        result["test"]["curve"]["unknown"][0] = True
        file = get_result_file(tmp_path, variant, seed)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(result))
    report = build_report(plan, tmp_path, {"seq2seq, seed 3": "out of memory"})
    assert [chart.name for chart in build_charts(report)][1] == "by-length-known"
    assert report.models[0].known_bands[0].items == report.models[0].bands[0].items - 1
    page = write_report(report, tmp_path)[0].read_text()
    tables = [line for line in page.splitlines() if line.startswith("| model | 3 (")]
    items = [report.models[0].known_bands[0].items, report.models[0].bands[0].items]
    assert [line.split(" | ")[1] for line in tables] == [f"3 ({count})" for count in reversed(items)]
    assert "seq2seq, seed 3 failed: out of memory" in page
