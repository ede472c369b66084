"""The commands on the run of a language model, and those of its options on a run of pairs."""

import io
import json
import re
import shutil
import sys

import pytest

from regard.cli import main
from regard.models import MODELS
from regard.run import Run
from regard.tasks.loading import get_run_task, load
from regard.tasks.text.actions import PredictText
from regard.tasks.text.evaluation import evaluate_text_file, score_text_file
from regard.tasks.text.predictor import ScoredText


def answer(monkeypatch, capsys, text: str, *arguments: object) -> list[str]:
    """What a command writes to stdout, line by line, and nothing else."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main([*map(str, arguments), "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_which_runs_are_of_language_models(text_run, gpt_run, reverse_run):
    assert [get_run_task(run).name for run in (text_run, gpt_run, reverse_run)] == ["text", "text", "pairs"]


# predict


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_each_line_gets_its_log_probability(name, request, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    lines = ["the cat sees the dog", "", "a bird sings and sings and sings", "zzz"]
    expected = [f"{scored.log_probability:.4f}" for scored in load(run).score_texts(lines)]
    assert answer(monkeypatch, capsys, "\n".join(lines) + "\n", "predict", run, "--quiet") == expected
    assert expected[1] == "0.0000" if name == "gpt_run" else float(expected[1]) < 0  # the end of a line counts


def test_a_file_is_answered_in_parts(text_run, tmp_path, monkeypatch, capsys):
    lines = ["a bird", "the cat", "the dog", "the dog sleeps", "a"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    whole = answer(monkeypatch, capsys, "", "predict", text_run, "--source", tmp_path / "in.txt")
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    assert answer(monkeypatch, capsys, "\n".join(lines), "predict", text_run, "--source", "-") == whole
    assert len(whole) == 5
    assert answer(monkeypatch, capsys, "", "predict", text_run) == []


def test_the_log_probability_of_each_token(text_run, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "the  cat zzz", "predict", text_run, "--per-token", "--quiet")
    total, *cells = line.split("\t")
    scored = load(text_run).score_texts("the  cat zzz")
    assert [cell.split(" ")[0] for cell in cells] == ["the", "cat", "zzz", "<eos>"]
    values = [float(cell.split(" ")[1]) for cell in cells]
    assert values == pytest.approx(scored.log_probabilities, abs=0.006)
    assert float(total) == pytest.approx(sum(values), abs=0.03)


def test_what_the_model_does_not_know_is_told_once(text_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat zzz\nyyy cat\n")))
    assert main(["predict", str(text_run)]) == 0
    assert capsys.readouterr().err == "40% of the tokens are unknown to the model\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat zzz\n")))
    assert main(["predict", str(text_run), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_certain_does_not_surprise():
    scored = ScoredText("a\tb", ("a", "\\t", "b"), (-1.5, 0.0, -0.001))
    assert scored.lines(PredictText(per_token=True)) == ["-1.5010\ta -1.50\t\\t 0.00\tb 0.00"]
    assert scored.lines(PredictText()) == ["-1.5010"]
    assert ScoredText("", (), ()).lines(PredictText(per_token=True)) == ["0.0000"]


def test_a_line_as_json(text_run, monkeypatch, capsys):
    texts = ["the çat", "", 'say "a"']
    lines = answer(monkeypatch, capsys, "\n".join(texts) + "\n", "predict", text_run, "--jsonl", "--quiet")
    for line, text in zip(lines, texts, strict=True):
        record = json.loads(line)
        assert list(record) == ["text", "log_probability", "tokens", "log_probabilities"]
        assert record["text"] == text
        assert record["tokens"] == [*text.split(), "<eos>"]
        assert record["log_probability"] == pytest.approx(sum(record["log_probabilities"]))
    assert "ç" in lines[0]


# evaluate


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_a_text_is_scored(name, request, tmp_path, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    text = "the cat sees a bird\n\nthe dog sleeps\n"
    (tmp_path / "text.txt").write_text(text)
    report = evaluate_text_file(load(run), tmp_path / "text.txt")
    command = ("evaluate", run, "--data")
    assert answer(monkeypatch, capsys, "", *command, tmp_path / "text.txt") == report.lines()
    assert answer(monkeypatch, capsys, text, *command, "-") == report.lines()
    assert answer(monkeypatch, capsys, "", *command, tmp_path) == report.lines()  # a folder of one file
    (line,) = answer(monkeypatch, capsys, "", *command, tmp_path / "text.txt", "--json", "--quiet")
    assert json.loads(line) == report.to_json()


def test_conditions_can_be_set(gpt_run, monkeypatch, capsys):
    options = ["--documents", "paragraph", "--context-length", 9, "--stride", 2]
    lines = answer(monkeypatch, capsys, "a cat\n\na dog", "evaluate", gpt_run, "--data", "-", *options)
    assert lines[0].endswith(" (nats per token|context:9|stride:2|documents:paragraph)")
    assert lines[1].endswith(" (tokens:12|context:9|stride:2|documents:paragraph)")  # five letters and <eos>, twice


def test_two_runs_are_compared(text_run, gpt_run, tmp_path, monkeypatch, capsys):
    path = tmp_path / "text.txt"
    path.write_text("the cat sees a bird\n" * 25)
    assert main(["evaluate", str(text_run), str(path), "--against", str(gpt_run)]) == 0
    assert capsys.readouterr().err == (
        f"{gpt_run} was trained with --documents file, but is scored with line as {text_run} was trained, "
        "which may favor the latter; pass --documents to choose\n"
    )
    command = ("evaluate", text_run, path, "--against", gpt_run, "--documents", "line")
    lines = answer(monkeypatch, capsys, "", *command)
    assert lines[:-2] == evaluate_text_file(load(text_run), path).lines()
    assert lines[-2].startswith(f"{gpt_run} and {text_run}, bits per character ")
    assert lines[-2].endswith("|paired bootstrap, 1000 samples|different tokens|documents:25|documents:line)")
    gpt, text = (
        re.escape(score_text_file(load(run), path, documents="line").conditions.removesuffix("|documents:line"))
        for run in (gpt_run, text_run)
    )
    assert gpt.startswith("context:16")
    assert gpt != text
    assert re.search(rf"bits per character [\d.]+ \({gpt}\) and [\d.]+ \({text}\): ", lines[-2])
    (line,) = answer(monkeypatch, capsys, "", *command, "--json")
    against = json.loads(line)["against"]
    assert against["verdict"] == lines[-1]
    for name, run in (("first", gpt_run), ("second", text_run)):
        scores = {score.name: score.value for score in evaluate_text_file(load(run), path, documents="line").scores}
        assert against[name]["value"] == pytest.approx(scores["bits per character"])
    same = answer(monkeypatch, capsys, "", "evaluate", text_run, path, "--against", text_run)
    assert same[-1] == f"no significant difference between {text_run} and {text_run} (p 1.0000)"
    assert ", loss " in same[-2]


# inspect and generate


def test_a_language_model_is_described_in_plain_words(text_run, capsys):
    assert main(["inspect", str(text_run)]) == 0
    parameters = sum(parameter.numel() for parameter in load(text_run).model.parameters())
    best = Run(text_run).read_card()["best"]
    book = re.escape(str(text_run.parent / "lines.txt"))
    expected = [
        rf"{re.escape(str(text_run))}: gru-lm, {parameters:,} parameters, made by regard 0\.1\.0",
        rf"preset: {re.escape(MODELS['gru-lm'].source)}",
        r"model: hidden 12, embedding 12, dropout 0\.0",
        rf"data: {book}; "
        r"\d+ tokens for training, \d+ for validation",
        r"vocabulary: \d+ tokens \(words\)",
        r"training: up to 40 steps, batches of 200 tokens, learning rate 0\.02, seed 0",
        r"trained: 40 steps, [\d,]+ target tokens, \d+ s",
        r"last validation: loss [\d.]+, perplexity [\d.]+",
        rf"best: loss {best['value']:.4g} at step {best['step']}",
        r"checkpoints: 20, 40",
        r"state: finished at step 40",
    ]
    lines = capsys.readouterr().out.splitlines()
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_a_text_is_written(name, request, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    model = load(run)
    expected = model.generate("the cat", max_tokens=30, seed=5)
    command = ("generate", run, "--prompt", "-", "--max-tokens", 30, "--seed", 5)
    assert answer(monkeypatch, capsys, "the cat\n", *command) == f"the cat{expected.text}".split("\n")
    (line,) = answer(monkeypatch, capsys, "the cat\n", *command, "--jsonl")
    record = json.loads(line)
    assert (record["prompt"], record["text"], record["seed"]) == ("the cat", expected.text, 5)
    assert record["log_probability"] == pytest.approx(expected.log_probability)
    texts = [text.text for text in model.continuations("a", max_tokens=4, beam=3, nbest=2)]
    options = ["--prompt", "a", "--max-tokens", 4, "--beam", 3, "--nbest", 2]
    lines = answer(monkeypatch, capsys, "", "generate", run, *options)
    assert lines == f"a{texts[0]}\n---\na{texts[1]}".split("\n")


# what cannot be


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(
            ("predict", option)
            for option in (
                "--beam 3",
                "--nbest 2",
                "--length-penalty 0",
                "--max-length 9",
                "--log-probabilities",
                "--weights",
                "--draw",
                "--picture map.png",
            )
        ),
        *(
            ("evaluate --data in.txt", option)
            for option in (
                "--source in.txt",
                "--target in.txt",
                "--format tsv",
                "--columns 1,2",
                "--on-empty skip",
                "--variants",
                "--beam 3",
                "--lowercase",
                "--tokenize none",
                "--against-length bleu",
                "--unit word",
                "--gold in.txt",
                "--gold-base 1",
                "--attention mean",
                "--shift 0",
                "--out out.txt",
            )
        ),
    ],
)
def test_options_of_pairs_are_refused(command, option, text_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat\n")
    name, *rest = command.split()
    assert main([name, str(text_run), *rest, *option.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    tasks = re.fullmatch(
        rf"regard: {name}: {option.split()[0]} is for the task (.+); {text_run} is of the task text\n", err
    )
    assert tasks
    assert "pairs" in tasks[1].split(" or ")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("predict PAIRS --per-token", "predict: --per-token is for the task text; PAIRS is of the task pairs"),
        ("evaluate PAIRS --documents line", "evaluate: --documents is for the task text; PAIRS is of the task pairs"),
        (
            "evaluate PAIRS --context-length 3",
            "evaluate: --context-length is for the task text; PAIRS is of the task pairs",
        ),
        ("evaluate PAIRS --stride 3", "evaluate: --stride is for the task text; PAIRS is of the task pairs"),
        (
            "generate PAIRS --prompt a",
            "generate is for the task text; PAIRS is of the task pairs",
        ),
        (
            "align TEXT --source in.txt --target in.txt",
            "align is for the task pairs; TEXT is of the task text",
        ),
        ("evaluate TEXT", "--data is required: a text file or a folder of text files"),
        ("evaluate TEXT --data none.txt", "cannot read none.txt: not found"),
        ("evaluate TEXT --data blank.txt", "blank.txt: no text"),
        (
            "evaluate TEXT --data - --against GPT",
            "--against cannot be combined with --data -: both runs read the data",
        ),
        ("evaluate TEXT --data in.txt --against PAIRS", "PAIRS: expected a run of the task text, got pairs"),
        (
            "evaluate TEXT --data in.txt --context-length 0",
            "--context-length must be at least 1, got 0",
        ),
        (
            "evaluate GPT --data in.txt --context-length 17",
            "evaluate: context_length must be from 1 to 16 for gpt, got 17",
        ),
        (
            "evaluate GPT --data in.txt --stride 17",
            "evaluate: stride must be from 1 to context_length (16), got 17",
        ),
        (
            "evaluate TEXT in.txt x",
            "unexpected argument x; pass two files with --source and --target",
        ),
        ("predict TEXT --source none.txt", "cannot read none.txt: not found"),
        ("predict TEXT --device meta", '--device: unknown "meta"; choose from auto, cpu, cuda, cuda:1'),
        ("predict none", "none: not found; expected a run folder created by regard train"),
        ("generate TEXT --max-tokens 0", "--max-tokens must be at least 1, got 0"),
        (
            "generate TEXT --max-tokens 1000001 --seed 1",
            "--max-tokens must be at most 1,000,000, got 1,000,001",
        ),
    ],
)
def test_what_a_user_can_put_right_is_one_line(
    arguments, line, text_run, gpt_run, reverse_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    (tmp_path / "in.txt").write_text("the cat\n")
    (tmp_path / "blank.txt").write_text(" \n\n")
    runs = {"TEXT": str(text_run), "GPT": str(gpt_run), "PAIRS": str(reverse_run)}
    for name, path in runs.items():
        line = line.replace(name, path)
    assert main([runs.get(word, word) for word in arguments.split()]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


@pytest.mark.parametrize("command", ["predict", "evaluate --data in.txt", "generate --seed 1"])
def test_a_damaged_run_is_one_line(command, text_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat\n")
    shutil.copytree(text_run, "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    name, *rest = command.split()
    assert main([name, "run", *rest]) == 2
    line = "run/model.safetensors is corrupt: its checksum differs from run.json"
    line += "; to restore it, run regard train --out run"
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_bytes_that_are_no_text_are_named(text_run, monkeypatch, capsys):
    for command in ("predict", "evaluate"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na \xff\n")))
        assert main([command, str(text_run), "--source" if command == "predict" else "--data", "-"]) == 2
        line = "standard input, line 2: byte 3 (0xff) is not valid UTF-8; save the file as UTF-8"
        assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_what_of_a_prompt_is_unknown_is_said(text_run, capsys):
    assert main(["generate", str(text_run), "--prompt", "the zebra", "--greedy", "--max-tokens", "1"]) == 0
    assert capsys.readouterr().err == "1 of 2 prompt tokens are unknown to the model\n"
    assert main(["generate", str(text_run), "--prompt", "the zebra", "--greedy", "--max-tokens", "1", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_prompt_that_is_no_text_is_refused_before_anything_is_written(text_run, capsys):
    assert main(["generate", str(text_run), "--prompt", "ab\udcff", "--greedy"]) == 2
    assert capsys.readouterr() == ("", "regard: text: character 3 is U+DCFF, an unpaired surrogate\n")
