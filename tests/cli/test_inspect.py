import json
import re
import shutil

import pytest

from regard.checkpoint import list_checkpoints
from regard.cli import main
from regard.models import MODELS
from regard.run import Run
from regard.tasks.loading import load
from tests.signing import edit_card, sign


def test_a_run_is_described_in_plain_words(reverse_run, capsys):
    assert main(["inspect", str(reverse_run)]) == 0
    out, err = capsys.readouterr()
    parameters = sum(parameter.numel() for parameter in load(reverse_run).model.parameters())
    best = Run(reverse_run).read_card()["best"]
    expected = [
        rf"{reverse_run}: bahdanau, {parameters:,} parameters, made by regard 0\.1\.0",
        rf"preset: {re.escape(MODELS['bahdanau'].source)}",
        r"model: hidden 24, embedding 24, dropout 0\.0, copy false",
        r"data: the built-in corpus reverse, seed 0; 250 pairs for training, 12 for validation",
        r"vocabulary: 8 source tokens \(words\), 8 target tokens \(words\)",
        r"training: up to 200 steps, batches of 300 tokens, learning rate 0\.01, seed 0",
        r"trained: 200 steps, [\d,]+ target tokens, \d+ s",
        r"last validation: loss [\d.e-]+, exact [\d.]+",
        rf"best: exact {best['value']:.4g} at step {best['step']}",
        r"checkpoints: 100, 200",
        r"state: finished at step 200",
    ]
    lines = out.splitlines()
    assert (len(lines), err) == (len(expected), "")
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.parametrize(
    ("name", "model", "data", "words", "seen", "result"),
    [
        ("several", "attentive-classifier", r"several\.tsv; 192 texts", "3 labels", "texts", r"loss [\d.e-]+, f1 1"),
        ("crf", "attentive-tagger", r"names\.bio; \d+ sentences", "5 tags", "words",
         r"loss [\d.e-]+, accuracy 1, f1 1"),
        ("plain", "attentive-tagger", r"words\.bio; \d+ sentences", "2 tags", "words",
         r"loss [\d.e-]+, accuracy 1"),
    ],
)  # fmt: skip
def test_classifiers_and_taggers_are_described(name, model, data, words, seen, result, label_runs, capsys):
    run = label_runs[name]
    assert main(["inspect", str(run)]) == 0
    card = Run(run).read_card()
    lexicon = load(run).vocabulary
    expected = [
        rf"{re.escape(str(run))}: {model}, {card['parameters']:,} parameters, made by regard 0\.1\.0",
        rf"preset: {re.escape(MODELS[model].source)}",
        r"model: .*hidden 16, embedding 16.*",
        rf"data: {re.escape(str(run.parent))}/{data} for training, \d+ for validation",
        rf"words: {lexicon.size}, {lexicon.pieces.size} pieces; {words}",
        r"training: up to \d+ steps, batches of 300 words, learning rate 0\.02, seed 0",
        rf"trained: \d+ steps, [\d,]+ {seen}, \d+ s",
        rf"last validation: {result}",
        rf"best: {card['best']['metric']} 1 at step {card['best']['step']}",
        r"checkpoints: \d+, \d+",
        r"state: finished at step \d+",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_a_run_as_json(reverse_run, capsys):
    assert main(["inspect", str(reverse_run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["card"]["model"] == result["recipe"]["model"]["name"] == "bahdanau"
    assert [line["step"] for line in result["metrics"]] == [100, 200]


def test_a_run_that_has_only_begun(reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    card = Run(reverse_run).read_card()
    del card["best"], card["sha256"]
    (run / "run.json").write_text(json.dumps({**card, "from": "runs/other"}))
    shutil.copy(reverse_run / "recipe.toml", run)
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "started from: runs/other",
        "best: none yet",
        "checkpoints: none",
        "state: no checkpoint to resume from",
    ]


def test_a_run_that_was_stopped(reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    list_checkpoints(Run(run))[-1].remove()
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["checkpoints: 100", "state: not finished; training would resume at step 100"]


@pytest.mark.parametrize(("step", "where"), [(100, "at step 100 of pretraining"), (200, "after pretraining")])
def test_a_run_that_was_stopped_while_it_read(step, where, reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    assert [each.step for each in list_checkpoints(Run(run))] == [100, 200]  # the second is the last of its training
    (run / "pretraining").mkdir()
    (run / "training").rename(run / "pretraining/training")
    for each in list_checkpoints(Run(run / "pretraining")):
        if each.step > step:
            each.remove()
    assert main(["inspect", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["checkpoints: none", f"state: not finished; training would resume {where}"]


def test_one_of_a_thing(plain_run, capsys):
    assert main(["inspect", str(plain_run)]) == 0
    out = capsys.readouterr().out
    assert "vocabulary: 9 source tokens (characters), 9 target tokens (characters)\n" in out
    assert "training: up to 1 step, batches of 100 tokens, " in out
    assert "\ntrained: 1 step, " in out


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("run.json", {"parameters": "many"}, '{run}/run.json.parameters: expected an integer, got "many"'),
        ("run.json", {"model": None}, "{run}/run.json.model: expected a string, got none"),
        ("run.json", {"data": 3}, "{run}/run.json: data: expected an object, got 3"),
        ("run.json", {"best": {"metric": "exact"}}, "{run}/run.json: [best] missing value, step"),
        ("run.json", {"format": 9, "regard": "9"},
         "{run}/run.json: format 9 was written by regard 9; regard 0.1.0 reads formats up to 1; upgrade regard"),
        ("run.json", "x",
         "{run}/run.json is corrupt: Expecting value: line 1 column 1 (char 0)"),
        ("recipe.toml", "x",
         "{run}/recipe.toml is not valid TOML: Expected '=' after a key in a key/value pair (at end of document)"),
        ("recipe.toml", "[model]\nname = 'x'", None),
        ("recipe.toml", "model = 3", "{run}/recipe.toml: [model]: expected a table, got 3"),
        ("metrics.jsonl", "x\n", "{run}/metrics.jsonl, line 1 is corrupt; remove the line"),
        ("metrics.jsonl", '{"step": 3}\n', "{run}/metrics.jsonl: missing tokens, seconds"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_one_line(name, change, line, reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    shutil.rmtree(run / "training")
    if isinstance(change, dict):
        edit_card(run, **change)
    else:
        (run / name).write_text(change)
    if name != "run.json":
        sign(run, name)
    assert main(["inspect", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    if line is None:
        assert err.startswith(f'regard: {run}/{name}: [model] unknown name "x"; choose from attentive-classifier, ')
    else:
        assert err == f"regard: {line.format(run=run)}\n"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_damaged_model_is_reported_after_the_description(option, reverse_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    model = run / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert main(["inspect", str(run), *option]) == 2
    out, err = capsys.readouterr()
    assert "finished at step 200" in out or json.loads(out)["card"]["best"]
    line = f"{model} is corrupt: its checksum differs from run.json; to restore it, run regard train --out {run}"
    assert err == f"regard: {line}\n"


def test_what_is_no_run(tmp_path, capsys):
    for path, line in (
        (tmp_path / "none", ": not found; expected a run folder created by regard train"),
        (tmp_path, " is not a run folder: run.json is missing"),
    ):
        assert main(["inspect", str(path)]) == 2
        assert capsys.readouterr() == ("", f"regard: {path}{line}\n")
