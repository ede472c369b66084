import json
import re
import shutil

import pytest

from regard.cli import main
from regard.run import Run, checkpoints_of
from regard.tasks.loading import load


def test_a_run_is_described_in_plain_words(reverse_run, capsys):
    assert main(["inspect", str(reverse_run)]) == 0
    out, err = capsys.readouterr()
    parameters = sum(parameter.numel() for parameter in load(reverse_run).model.parameters())
    best = Run(reverse_run).read_card()["best"]
    expected = [
        rf"{reverse_run}: bahdanau, {parameters:,} parameters, made by regard 0\.1\.0",
        r"model: hidden 24, embedding 24, dropout 0\.0",
        r"data: the built-in corpus reverse, seed 0; 250 pairs to train on, 12 to validate with",
        r"tokens: 8 of the source \(words\), 8 of the target \(words\)",
        r"training: up to 200 updates of 300 tokens, rate 0\.01, seed 0",
        r"trained: 200 updates, [\d,]+ target tokens, \d+ s",
        r"last validation: loss [\d.e-]+, exact [\d.]+",
        rf"best: exact {best['value']:.4g} at update {best['step']}",
        r"checkpoints: 100, 200",
        r"state: finished at update 200",
    ]
    lines = out.splitlines()
    assert (len(lines), err) == (len(expected), "")
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.parametrize(
    ("name", "model", "data", "words", "seen", "found"),
    [
        ("several", "attentive-classifier", r"several\.tsv; 192 texts", "3 labels", "texts", r"loss [\d.e-]+, f1 1"),
        ("crf", "attentive-tagger", r"names\.bio; \d+ sentences", "5 tags", "words",
         r"loss [\d.e-]+, accuracy 1, f1 1"),
        ("plain", "attentive-tagger", r"words\.bio; \d+ sentences", "2 tags", "words",
         r"loss [\d.e-]+, accuracy 1"),
    ],
)  # fmt: skip
def test_classifiers_and_taggers_are_described(name, model, data, words, seen, found, label_runs, capsys):
    run = label_runs[name]
    assert main(["inspect", str(run)]) == 0
    card = Run(run).read_card()
    lexicon = load(run).lexicon
    expected = [
        rf"{re.escape(str(run))}: {model}, {card['parameters']:,} parameters, made by regard 0\.1\.0",
        r"model: .*hidden 16, embedding 16.*",
        rf"data: {re.escape(str(run.parent))}/{data} to train on, \d+ to validate with",
        rf"words: {lexicon.size}, spelt with {lexicon.pieces.size} pieces; {words}",
        r"training: up to \d+ updates of 300 words, rate 0\.02, seed 0",
        rf"trained: \d+ updates, [\d,]+ {seen}, \d+ s",
        rf"last validation: {found}",
        rf"best: {card['best']['metric']} 1 at update {card['best']['step']}",
        r"checkpoints: \d+, \d+",
        r"state: finished at update \d+",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_a_run_as_json(reverse_run, capsys):
    assert main(["inspect", str(reverse_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["card"]["model"] == found["recipe"]["model"]["name"] == "bahdanau"
    assert [line["step"] for line in found["metrics"]] == [100, 200]


def test_a_run_that_has_only_begun(reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    card = Run(reverse_run).read_card()
    del card["best"]
    (run / "run.json").write_text(json.dumps({**card, "from": "runs/other"}))
    shutil.copy(reverse_run / "recipe.toml", run)
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "started from: runs/other",
        "best: none yet",
        "checkpoints: none",
        "state: no checkpoint, so training would begin anew",
    ]


def test_a_run_that_was_stopped(reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    checkpoints_of(Run(run))[-1].remove()
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["checkpoints: 100", "state: not finished; training would go on from update 100"]


@pytest.mark.parametrize(("step", "where"), [(100, "update 100 of the reading"), (200, "the labels")])
def test_a_run_that_was_stopped_while_it_read(step, where, reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    assert [each.step for each in checkpoints_of(Run(run))] == [100, 200]  # the second is the last of its training
    (run / "reading").mkdir()
    (run / "training").rename(run / "reading/training")
    for each in checkpoints_of(Run(run / "reading")):
        if each.step > step:
            each.remove()
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["checkpoints: none", f"state: not finished; training would go on with {where}"]


def test_one_of_a_thing(plain_run, capsys):
    assert main(["inspect", str(plain_run)]) == 0
    out = capsys.readouterr().out
    assert "tokens: 9 of the source (characters), 9 of the target (characters)\n" in out
    assert "training: up to 1 update of 100 tokens, " in out
    assert "\ntrained: 1 update, " in out


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("run.json", {"parameters": "many"}, '{run}/run.json.parameters is "many"; a whole number is needed'),
        ("run.json", {"model": None}, "{run}/run.json.model is none; a text is needed"),
        ("run.json", {"data": 3}, "{run}/run.json: [data] origin, train, valid must be set"),
        ("run.json", {"best": {"metric": "exact"}}, "{run}/run.json: [best] value, step must be set"),
        ("run.json", {"format": 9, "regard": "9"},
         "{run}/run.json: has the format 9, made by regard 9; this regard 0.1.0 reads up to 1: install a newer one"),
        ("run.json", "x",
         "{run}/run.json: is damaged (Expecting value: line 1 column 1 (char 0)); restore it from a copy"),
        ("recipe.toml", "x",
         "{run}/recipe.toml: Expected '=' after a key in a key/value pair (at end of document); a TOML file is needed"),
        ("recipe.toml", "[model]\nname = 'x'", None),
        ("recipe.toml", "model = 3", "{run}/recipe.toml: [model] is 3; a table is needed"),
        ("metrics.jsonl", "x\n", "{run}/metrics.jsonl, line 1: is damaged; remove the line"),
        ("metrics.jsonl", '{"step": 3}\n', "{run}/metrics.jsonl: tokens, seconds must be set"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_one_line(name, change, line, reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    if isinstance(change, dict):
        change = json.dumps({**json.loads((run / name).read_text()), **change})
    (run / name).write_text(change)
    assert main(["inspect", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    if line is None:
        assert err.startswith(f'regard: {run}/{name}: [model] name: there is no "x"; there are: attentive-classifier, ')
    else:
        assert err == f"regard: {line.format(run=run)}\n"


def test_what_is_no_run(tmp_path, capsys):
    for path, line in (
        (tmp_path / "none", "there is no such folder; a run made by regard train is needed"),
        (tmp_path, "is no run; there is no run.json in it"),
    ):
        assert main(["inspect", str(path)]) == 2
        assert capsys.readouterr() == ("", f"regard: {path}: {line}\n")
