import io
import json
import sys
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.errors import RegardError
from regard.tasks.actions.predict import to_single_line
from regard.tasks.loading import load
from regard.tasks.pairs.actions import PredictPairs
from regard.tasks.progress import offset_progress, show_counter


def answer(monkeypatch, capsys, text: str, *arguments: object) -> list[str]:
    """What the command writes to stdout, line by line, and nothing else."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["predict", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_each_line_gets_its_target(reverse_run, monkeypatch, capsys):
    assert answer(monkeypatch, capsys, "a b c\n\nd c\n", reverse_run) == ["c b a", "", "c d"]


def test_a_file_and_options(reverse_run, tmp_path, monkeypatch, capsys):
    (tmp_path / "in.txt").write_text("a b c d\n")
    options = [
        "--source",
        tmp_path / "in.txt",
        "--beam",
        1,
        "--max-length",
        2,
        "--length-penalty",
        0,
        "--device",
        "cpu",
    ]
    assert answer(monkeypatch, capsys, "", reverse_run, *options) == ["d c"]


def test_each_line_of_an_n_best_list_has_its_source_and_the_score_that_ranks_it(reverse_run, monkeypatch, capsys):
    lines = answer(monkeypatch, capsys, "a b\n\nd\n", reverse_run, "--nbest", 3, "--quiet")
    best = load(reverse_run).predict("a b", nbest=3).alternatives
    assert [line.split("\t") for line in lines[:3]] == [
        ["1", f"{prediction.ranking_score:.4f}", f"{prediction.log_probability:.4f}", prediction.text]
        for prediction in best
    ]
    assert lines[3] == "2\t0.0000\t0.0000\t"  # there is only one empty target
    assert [line.split("\t")[0] for line in lines] == ["1", "1", "1", "2", "3", "3", "3"]


def test_lines_that_are_longer_than_those_of_training_are_noted_before_they_are_answered(
    reverse_run, tmp_path, monkeypatch, capsys
):
    limit = load(reverse_run).recipe.data.max_tokens
    lines = ["a b", " ".join("a" * limit), " ".join("a" * (limit + 1)), "b", *[" ".join("b" * (limit + 2))] * 2]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    words = ["predict", str(reverse_run), "--source", str(tmp_path / "in.txt"), "--max-length", "2", "--device", "cpu"]
    head = f"note: line 3 has {limit + 1:,} tokens, training had at most {limit:,}"
    for size, more in ((2, ""), (6, " (3 such lines so far)")):
        monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", size)
        assert main(words) == 0
        assert capsys.readouterr().err == f"{head}{more}; the prediction may be slow and poor\n"
    monkeypatch.setattr(PredictPairs, "compute_answers", Mock(side_effect=RegardError("answered")))
    assert main(words) == 2
    assert capsys.readouterr().err.endswith("; the prediction may be slow and poor\nregard: answered\n")
    assert main([*words, "--quiet"]) == 2
    assert capsys.readouterr().err == "regard: answered\n"


def test_the_columns_of_an_n_best_list_are_named(reverse_run, capsys):
    assert main(["predict", str(reverse_run), "a b", "--nbest", "2"]) == 0
    line = "columns: source number, score (log-probability / length penalty), log-probability, target\n"
    assert capsys.readouterr().err == line
    assert main(["predict", str(reverse_run), "a b", "--nbest", "2", "--jsonl"]) == 0
    assert capsys.readouterr().err == ""


def test_one_target_can_have_its_log_probability(reverse_run, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "a b\n", reverse_run, "--log-probabilities")
    prediction = load(reverse_run).predict("a b")
    assert line == f"{prediction.log_probability:.4f}\t{prediction.text}"


def test_json_has_tokens_alternatives_and_weights(reverse_run, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "a ü\n", reverse_run, "--jsonl", "--weights", "--nbest", 2, "--quiet")
    record = json.loads(line)
    assert list(record) == [
        "source", "text", "log_probability", "ranking_score", "source_tokens", "target_tokens", "weights",
        "alternatives",
    ]  # fmt: skip
    assert (record["source"], record["source_tokens"]) == ("a ü", ["a", "ü", "<eos>"])
    (layer,) = record["weights"]
    (head,) = layer
    assert [len(row) for row in head] == [3] * len(record["target_tokens"])
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in head)
    best, other = record["alternatives"]
    assert best == {name: value for name, value in record.items() if name not in ("source", "alternatives")}
    assert best["ranking_score"] >= other["ranking_score"]


def test_attention_is_drawn_beneath_each_target(reverse_run, monkeypatch, capsys):
    monkeypatch.setenv("NO_COLOR", "1")
    lines = answer(monkeypatch, capsys, "a b\nd c\n", reverse_run, "--draw")
    assert [line for line in lines if line in ("b a", "c d")] == ["b a", "c d"]
    assert [line[:6] for line in lines if "|" in line] == ["    b ", "    a ", "<eos> ", "    c ", "    d ", "<eos> "]


def test_attention_is_drawn_into_a_file(reverse_run, tmp_path, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "a b\n", reverse_run, "--picture", tmp_path / "map.png", "--jsonl")
    assert (tmp_path / "map.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "weights" not in json.loads(line)


@pytest.mark.parametrize(("text", "sources"), [(b"", "none"), (b"a\nb\n", "more")])
def test_a_picture_shows_one_source(reverse_run, tmp_path, monkeypatch, capsys, text, sources):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["predict", str(reverse_run), "--picture", str(tmp_path / "map.png")]) == 2
    assert capsys.readouterr() == ("", f"regard: --picture: expected one source line, got {sources}\n")


def test_what_is_odd_about_sources_is_said_once(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    text = b"a b c\nb z\nc d\tc\nd z\ta\n"  # 2 of 11 are unknown
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["predict", str(reverse_run)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "line 3 contains a tab; expected one source per line",
        "18% of the source tokens are unknown to the model",
    ]
    answer(monkeypatch, capsys, text.decode(), reverse_run, "--quiet")
    answer(monkeypatch, capsys, "a b c d\n" * 4 + "z\n", reverse_run)  # 1 of 17 is not worth a line


def test_a_stream_is_answered_in_parts(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    lines = ["a b", "b c d", "c", "d a", "a"]
    expected = [" ".join(reversed(line.split())) for line in lines]
    targets = answer(monkeypatch, capsys, "\n".join(lines), reverse_run)
    assert targets[:2] + targets[3:4] == expected[:2] + expected[3:4]
    assert len(targets) == 5


def test_what_a_model_writes_stays_on_its_line(reverse_run):
    assert to_single_line("a\nb\r\nc") == "a b  c"
    prediction = load(reverse_run).predict("a b")
    assert prediction.lines(PredictPairs()) == ["b a"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_count_that_goes_on_from_part_to_part(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    with show_counter(quiet=False) as show:
        assert show is not None
        offset_progress(2000, show)(7)
    assert "2007 sources" in terminal.getvalue()
    with show_counter(quiet=True) as show:
        assert show is None
        assert offset_progress(2000, show) is None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none"], "none: not found; expected a run folder created by regard train"),
        (["."], ". is not a run folder: run.json is missing"),
        ([], 'command "predict" parameter RUN requires an argument.'),
        (["in.txt"], "in.txt: expected a run folder, got a file"),
        (["RUN", "x", "y"], "unexpected argument y; put quotes around the text"),
        (["RUN", "--beam"], 'command "predict" parameter --beam requires an argument.'),
        (["RUN", "--beam", "x"], 'invalid value for --beam: unable to convert "x" into int.'),
        (["RUN", "--beam", "0"], "--beam must be at least 1, got 0"),
        (["RUN", "--nbest", "0"], "--nbest must be at least 1, got 0"),
        (
            ["RUN", "--beam", "2", "--nbest", "3"],
            "predict: nbest must be at most beam (2), got 3",
        ),
        (
            ["RUN", "--length-penalty", "-1"],
            "--length-penalty must be at least 0, got -1.0",
        ),
        (["RUN", "--max-length", "0"], "--max-length must be at least 1, got 0"),
        (["RUN", "--weights"], "--weights requires --jsonl"),
        (["RUN", "--draw", "--jsonl"], "--draw cannot be combined with --jsonl; use --weights instead"),
        (["RUN", "--picture", "map.txt"], 'map.txt: expected .png, .svg or .pdf, got ".txt"'),
        (["PLAIN", "--draw"], "seq2seq has no attention from target to source"),
        (["RUN", "--source", "none.txt"], "cannot read none.txt: not found"),
        (["RUN", "--source", "."], "cannot read .: expected a file, got a folder"),
        (["RUN", "--device", "meta"], '--device: unknown "meta"; choose from auto, cpu, cuda, cuda:1'),
        (["RUN", "--device", "cuda:9999"], "--device: cuda:9999 is not available; this machine has 0 GPUs"),
        (["RUN", "--bem", "3"], "predict: unknown option --bem; did you mean --beam?"),
        (
            ["PLAIN", "--jsonl", "--weights"],
            "seq2seq has no attention from target to source",
        ),
    ],
)
def test_what_a_user_can_put_right_is_one_line(
    arguments, line, reverse_run, plain_run, tmp_path, monkeypatch, capsys
):  # before any source is read
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a b\n")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    known = {"RUN": str(reverse_run), "PLAIN": str(plain_run)}
    assert main(["predict", *(known.get(word, word) for word in arguments)]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_closed_input_is_empty(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(reverse_run)]) == 0
    assert sys.stdin is not None
    sys.stdin.close()
    assert capsys.readouterr() == ("", "")


def test_bytes_that_are_no_text_are_named(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\nb \xff\n")))
    assert main(["predict", str(reverse_run)]) == 2
    line = "standard input, line 2: byte 3 (0xff) is not valid UTF-8; save the file as UTF-8"
    assert capsys.readouterr() == ("", f"regard: {line}\n")


OPTIONS = [
    "--beam",
    "--nbest",
    "--length-penalty",
    "--max-length",
    "--jsonl",
    "--weights",
    "--draw",
    "--picture",
    "--log-probabilities",
    "--quiet",
]
WORDS = st.sampled_from(
    [*OPTIONS, "--source", "-", "0", "1", "3", "-1", "x", "1e9", "nan", "in.txt", "--device", "cpu"]
)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=6))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_line_is_a_bug(reverse_run, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a b\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    status = main(["predict", str(reverse_run), *words])
    out, err = capsys.readouterr()
    assert (status == 0 and err in ("", "100% of the source tokens are unknown to the model\n")) or (
        status == 2 and out == "" and err.startswith("regard: ") and err.count("\n") == 1
    )
