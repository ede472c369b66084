"""The commands on the run of a language model, and those of its options on a run of pairs."""

import io
import json
import re
import shutil
import sys

import pytest

from regard.cli import main
from regard.run import Run
from regard.tasks.loading import load, task_of_run
from regard.tasks.text.actions import PredictText
from regard.tasks.text.evaluation import evaluate_text_file
from regard.tasks.text.predictor import Reading


def answer(monkeypatch, capsys, text: str, *arguments: object) -> list[str]:
    """What a command writes to stdout, line by line, and nothing else."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main([*map(str, arguments), "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_which_runs_are_of_language_models(text_run, gpt_run, reverse_run):
    assert [task_of_run(run).name for run in (text_run, gpt_run, reverse_run)] == ["text", "text", "pairs"]


# predict


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_each_line_gets_its_log_probability(name, request, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    lines = ["the cat sees the dog", "", "a bird sings and sings and sings", "zzz"]
    wanted = [f"{reading.log_probability:.4f}" for reading in load(run).read(lines)]
    assert answer(monkeypatch, capsys, "\n".join(lines) + "\n", "predict", run, "--quiet") == wanted
    assert wanted[1] == "0.0000" if name == "gpt_run" else float(wanted[1]) < 0  # the end of a line counts


def test_a_file_is_answered_in_parts(text_run, tmp_path, monkeypatch, capsys):
    lines = ["a bird", "the cat", "the dog", "the dog sleeps", "a"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    whole = answer(monkeypatch, capsys, "", "predict", text_run, "--source", tmp_path / "in.txt")
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    assert answer(monkeypatch, capsys, "\n".join(lines), "predict", text_run, "--source", "-") == whole
    assert len(whole) == 5
    assert answer(monkeypatch, capsys, "", "predict", text_run) == []


def test_the_surprise_of_each_token(text_run, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "the  cat zzz", "predict", text_run, "--tokens", "--quiet")
    total, *found = line.split("\t")
    reading = load(text_run).read("the  cat zzz")
    assert [each.split(" ")[0] for each in found] == ["the", "cat", "zzz", "<eos>"]
    surprises = [float(each.split(" ")[1]) for each in found]
    assert surprises == pytest.approx([-value for value in reading.log_probabilities], abs=0.006)
    assert float(total) == pytest.approx(-sum(surprises), abs=0.03)


def test_what_the_model_does_not_know_is_told_once(text_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat zzz\nyyy cat\n")))
    assert main(["predict", str(text_run)]) == 0
    assert capsys.readouterr().err == "40 % of the tokens are unknown to this model\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat zzz\n")))
    assert main(["predict", str(text_run), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_certain_does_not_surprise():
    reading = Reading("a\tb", ("a", "\\t", "b"), (-1.5, 0.0, -0.001))
    assert reading.lines(PredictText(tokens=True)) == ["-1.5010\ta 1.50\t\\t 0.00\tb 0.00"]
    assert reading.lines(PredictText()) == ["-1.5010"]
    assert Reading("", (), ()).lines(PredictText(tokens=True)) == ["0.0000"]


def test_a_line_as_json(text_run, monkeypatch, capsys):
    texts = ["the çat", "", 'say "a"']
    found = answer(monkeypatch, capsys, "\n".join(texts) + "\n", "predict", text_run, "--jsonl", "--quiet")
    for line, text in zip(found, texts, strict=True):
        record = json.loads(line)
        assert list(record) == ["text", "log_probability", "tokens", "log_probabilities"]
        assert record["text"] == text
        assert record["tokens"] == [*text.split(), "<eos>"]
        assert record["log_probability"] == pytest.approx(sum(record["log_probabilities"]))
    assert "ç" in found[0]


# evaluate


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_a_text_is_scored(name, request, tmp_path, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    text = "the cat sees a bird\n\nthe dog sleeps\n"
    (tmp_path / "text.txt").write_text(text)
    report = evaluate_text_file(load(run), tmp_path / "text.txt")
    command = ("evaluate", run, "--text")
    assert answer(monkeypatch, capsys, "", *command, tmp_path / "text.txt") == report.lines()
    assert answer(monkeypatch, capsys, text, *command, "-") == report.lines()
    assert answer(monkeypatch, capsys, "", *command, tmp_path) == report.lines()  # a folder of one file
    (line,) = answer(monkeypatch, capsys, "", *command, tmp_path / "text.txt", "--json", "--quiet")
    assert json.loads(line) == report.to_json()


def test_conditions_can_be_set(gpt_run, monkeypatch, capsys):
    options = ["--documents", "blank", "--context", 9, "--stride", 2]
    found = answer(monkeypatch, capsys, "a cat\n\na dog", "evaluate", gpt_run, "--text", "-", *options)
    assert found[0].endswith(" (nats a token|context:9|stride:2|documents:blank)")
    assert found[1].endswith(" (tokens:12|context:9|stride:2|documents:blank)")  # five letters and <eos>, twice


# inspect and generate


def test_a_language_model_is_described_in_plain_words(text_run, capsys):
    assert main(["inspect", str(text_run)]) == 0
    parameters = sum(parameter.numel() for parameter in load(text_run).model.parameters())
    best = Run(text_run).read_card()["best"]
    book = re.escape(str(text_run.parent / "lines.txt"))
    expected = [
        rf"{re.escape(str(text_run))}: gru-lm, {parameters:,} parameters, made by regard 0\.1\.0",
        r"model: hidden 12, embedding 12, dropout 0\.0",
        rf"data: {book}; "
        r"\d+ tokens to train on, \d+ to validate with",
        r"tokens: \d+ \(words\)",
        r"training: up to 40 updates of 200 tokens, rate 0\.02, seed 0",
        r"trained: 40 updates, [\d,]+ target tokens, \d+ s",
        r"last validation: loss [\d.]+, perplexity [\d.]+",
        rf"best: loss {best['value']:.4g} at update {best['step']}",
        r"checkpoints: 20, 40",
        r"state: finished at update 40",
    ]
    lines = capsys.readouterr().out.splitlines()
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_a_text_is_written(name, request, monkeypatch, capsys):
    run = request.getfixturevalue(name)
    model = load(run)
    wanted = model.generate("the cat", tokens=30, seed=5)
    command = ("generate", run, "--prompt", "-", "--tokens", 30, "--seed", 5)
    assert answer(monkeypatch, capsys, "the cat\n", *command) == f"the cat{wanted.text}".split("\n")
    (line,) = answer(monkeypatch, capsys, "the cat\n", *command, "--jsonl")
    record = json.loads(line)
    assert (record["prompt"], record["text"], record["seed"]) == ("the cat", wanted.text, 5)
    assert record["log_probability"] == pytest.approx(wanted.log_probability)
    texts = [text.text for text in model.continuations("a", tokens=4, beam=3, nbest=2)]
    options = ["--prompt", "a", "--tokens", 4, "--beam", 3, "--nbest", 2]
    found = answer(monkeypatch, capsys, "", "generate", run, *options)
    assert found == f"a{texts[0]}\n---\na{texts[1]}".split("\n")


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
                "--longest 9",
                "--log-probabilities",
                "--weights",
                "--draw",
                "--picture map.png",
            )
        ),
        *(
            ("evaluate --text in.txt", option)
            for option in (
                "--source in.txt",
                "--target in.txt",
                "--data in.txt",
                "--format tsv",
                "--columns 1,2",
                "--empty skip",
                "--count 3",
                "--seed 0",
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
        rf"regard: {name}: {option.split()[0]} is for the task (.+); {text_run} goes on with texts\n", err
    )
    assert tasks
    assert "pairs" in tasks[1].split(" or ")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("predict PAIRS --tokens", "predict: --tokens is for the task text; PAIRS answers texts"),
        ("evaluate PAIRS --text in.txt", "evaluate: --text is for the task text; PAIRS answers texts"),
        ("evaluate PAIRS --documents line", "evaluate: --documents is for the task text; PAIRS answers texts"),
        ("evaluate PAIRS --context 3", "evaluate: --context is for the task text; PAIRS answers texts"),
        ("evaluate PAIRS --stride 3", "evaluate: --stride is for the task text; PAIRS answers texts"),
        (
            "generate PAIRS --prompt a",
            "generate: is for the task text; PAIRS answers texts",
        ),
        (
            "align TEXT --source in.txt --target in.txt",
            "align: is for the task pairs; TEXT goes on with texts",
        ),
        ("evaluate TEXT", "evaluate: nothing to evaluate on; give a file or folder of text by --text"),
        ("evaluate TEXT --text none.txt", "none.txt: there is no such file"),
        ("evaluate TEXT --text blank.txt", "blank.txt: there is no text in it; some is needed"),
        ("evaluate TEXT --text in.txt --context 0", "evaluate: context is 0; gru-lm reads 1 or more tokens"),
        ("evaluate GPT --text in.txt --context 17", "evaluate: context is 17; gpt reads 1 to 16 tokens"),
        (
            "evaluate GPT --text in.txt --stride 17",
            "evaluate: stride is 17; a number from 1 to the context, 16, is needed",
        ),
        (
            "evaluate TEXT in.txt",
            "nothing takes the argument in.txt; "
            "give the file by --data in.txt or --text in.txt, or two by --source and --target",
        ),
        ("predict TEXT --source none.txt", "none.txt: there is no such file"),
        ("predict TEXT --device meta", '--device: there is no "meta"; auto, cpu, cuda or cuda:1 would be right'),
        ("predict none", "none: there is no such folder; a run made by regard train is needed"),
        ("generate TEXT --tokens 0", "--tokens: 0 is too few; 1 is the least"),
        (
            "generate TEXT --tokens 1000001 --seed 1",
            "generate: tokens is 1000001; a number from 1 to 1000000 is needed",
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


@pytest.mark.parametrize("command", ["predict", "evaluate --text in.txt", "generate --seed 1"])
def test_a_damaged_run_is_one_line(command, text_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat\n")
    shutil.copytree(text_run, "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    name, *rest = command.split()
    assert main([name, "run", *rest]) == 2
    line = "run/model.safetensors: is not the file that was written (its checksum differs); restore it from a copy"
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_bytes_that_are_no_text_are_named(text_run, monkeypatch, capsys):
    for command in ("predict", "evaluate"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na \xff\n")))
        assert main([command, str(text_run), "--source" if command == "predict" else "--text", "-"]) == 2
        line = "standard input, line 2: byte 3 is 0xff, which is no UTF-8 there; save the file as UTF-8"
        assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_what_of_a_prompt_is_unknown_is_said(text_run, capsys):
    assert main(["generate", str(text_run), "--prompt", "the zebra", "--greedy", "--tokens", "1"]) == 0
    assert capsys.readouterr().err == "1 of 2 tokens of the prompt are unknown to the model\n"
    assert main(["generate", str(text_run), "--prompt", "the zebra", "--greedy", "--tokens", "1", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_prompt_that_is_no_text_is_refused_before_anything_is_written(text_run, capsys):
    assert main(["generate", str(text_run), "--prompt", "ab\udcff", "--greedy"]) == 2
    assert capsys.readouterr() == ("", "regard: text: character 3 is U+DCFF, half of a surrogate pair\n")
