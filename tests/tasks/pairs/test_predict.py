import io
import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.tasks.actions.predict import in_line
from regard.tasks.loading import load
from regard.tasks.pairs.actions import PredictPairs
from regard.tasks.progress import after, counted


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
    options = ["--source", tmp_path / "in.txt", "--beam", 1, "--longest", 2, "--length-penalty", 0, "--device", "cpu"]
    assert answer(monkeypatch, capsys, "", reverse_run, *options) == ["d c"]


def test_the_n_best_of_every_source_take_n_lines(reverse_run, monkeypatch, capsys):
    found = answer(monkeypatch, capsys, "a b\n\nd\n", reverse_run, "--nbest", 3, "--log-probabilities")
    values, texts = zip(*(line.split("\t") for line in found), strict=True)
    best = load(reverse_run).predict("a b", nbest=3)
    assert list(texts[:3]) == [each.text for each in best.alternatives]
    assert values[:3] == tuple(f"{each.log_probability:.4f}" for each in best.alternatives)
    assert (texts[3:6], values[3:6]) == (("", "", ""), ("0.0000", "-inf", "-inf"))  # nothing says nothing, in one way
    assert len(found) == 9


def test_json_has_tokens_alternatives_and_weights(reverse_run, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "a ü\n", reverse_run, "--jsonl", "--weights", "--nbest", 2, "--quiet")
    found = json.loads(line)
    assert list(found) == [
        "source", "text", "log_probability", "source_tokens", "target_tokens", "weights", "alternatives",
    ]  # fmt: skip
    assert (found["source"], found["source_tokens"]) == ("a ü", ["a", "ü", "<eos>"])
    (layer,) = found["weights"]
    (head,) = layer
    assert [len(row) for row in head] == [3] * len(found["target_tokens"])
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in head)
    best, other = found["alternatives"]
    assert best == {name: value for name, value in found.items() if name not in ("source", "alternatives")}
    assert best["log_probability"] >= other["log_probability"]


def test_attention_is_drawn_beneath_each_target(reverse_run, monkeypatch, capsys):
    monkeypatch.setenv("NO_COLOR", "1")
    found = answer(monkeypatch, capsys, "a b\nd c\n", reverse_run, "--draw")
    assert [line for line in found if line in ("b a", "c d")] == ["b a", "c d"]
    assert [line[:6] for line in found if "|" in line] == ["    b ", "    a ", "<eos> ", "    c ", "    d ", "<eos> "]


def test_attention_is_drawn_into_a_file(reverse_run, tmp_path, monkeypatch, capsys):
    (line,) = answer(monkeypatch, capsys, "a b\n", reverse_run, "--picture", tmp_path / "map.png", "--jsonl")
    assert (tmp_path / "map.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "weights" not in json.loads(line)


@pytest.mark.parametrize(("text", "found"), [(b"", "no source"), (b"a\nb\n", "more than one source")])
def test_a_picture_shows_one_source(reverse_run, tmp_path, monkeypatch, capsys, text, found):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["predict", str(reverse_run), "--picture", str(tmp_path / "map.png")]) == 2
    assert capsys.readouterr() == ("", f"regard: --picture: there is {found}; give one line\n")


def test_what_is_odd_about_sources_is_said_once(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    text = b"a b c\nb z\nc d\tc\nd z\ta\n"  # 2 of 11 are unknown
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["predict", str(reverse_run)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "line 3 holds a tab; one source a line is expected",
        "18 % of the source tokens are unknown to this model",
    ]
    answer(monkeypatch, capsys, text.decode(), reverse_run, "--quiet")
    answer(monkeypatch, capsys, "a b c d\n" * 4 + "z\n", reverse_run)  # 1 of 17 is not worth a line


def test_a_stream_is_answered_in_parts(reverse_run, monkeypatch, capsys):
    monkeypatch.setattr("regard.tasks.actions.predict.AT_ONCE", 2)
    lines = ["a b", "b c d", "c", "d a", "a"]
    expected = [" ".join(reversed(line.split())) for line in lines]
    found = answer(monkeypatch, capsys, "\n".join(lines), reverse_run)
    assert found[:2] + found[3:4] == expected[:2] + expected[3:4]
    assert len(found) == 5


def test_what_a_model_writes_stays_on_its_line(reverse_run):
    assert in_line("a\nb\r\nc") == "a b  c"
    prediction = load(reverse_run).predict("a b")
    assert prediction.lines(PredictPairs(nbest=2)) == ["b a", ""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_count_that_goes_on_from_part_to_part(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    with counted(quiet=False) as show:
        assert show is not None
        after(2000, show)(7)
    assert "2007 sources" in terminal.getvalue()
    with counted(quiet=True) as show:
        assert show is None
        assert after(2000, show) is None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none"], "none: there is no such folder; a run made by regard train is needed"),
        (["."], ".: is no run; there is no run.json in it"),
        ([], 'command "predict" parameter RUN requires an argument.'),
        (["in.txt"], "in.txt: is a file; a run folder is needed"),
        (["RUN", "x"], "nothing takes the argument x; give the file by --source x, or < x"),
        (["RUN", "--beam"], 'command "predict" parameter --beam requires an argument.'),
        (["RUN", "--beam", "x"], 'invalid value for --beam: unable to convert "x" into int.'),
        (["RUN", "--beam", "0"], "predict: beam is 0; a number from 1 to 1000 is needed"),
        (["RUN", "--nbest", "0"], "predict: nbest is 0; a number from 1 to 1000 is needed"),
        (
            ["RUN", "--beam", "2", "--nbest", "3"],
            "predict: 3 best of a beam of 2 are too many; set beam to 3 or more",
        ),
        (
            ["RUN", "--length-penalty", "-1"],
            "beam_search: length_penalty is -1.0; 0 is none, a number above it favours length",
        ),
        (["RUN", "--longest", "0"], "predict: longest is 0; a number from 1 to 100000 is needed"),
        (["RUN", "--weights"], "--weights: needs --jsonl; a line of text has no room for them"),
        (["RUN", "--draw", "--jsonl"], "--draw: does not go with --jsonl; ask for --weights there"),
        (["RUN", "--picture", "map.txt"], 'map.txt: pictures are written as .png, .svg, .pdf; found ".txt"'),
        (["PLAIN", "--draw"], "seq2seq: this model has no attention from target to source, so no weights to show"),
        (["RUN", "--source", "none.txt"], "none.txt: there is no such file"),
        (["RUN", "--source", "."], ".: is a folder; a file is needed"),
        (["RUN", "--device", "meta"], '--device: there is no "meta"; auto, cpu, cuda or cuda:1 would be right'),
        (["RUN", "--device", "cuda:9999"], "--device: cuda:9999 is not here; this machine has 0 GPUs"),
        (["RUN", "--bem", "3"], "unknown option: --bem. Did you mean --beam?"),
        (
            ["PLAIN", "--jsonl", "--weights"],
            "seq2seq: this model has no attention from target to source, so no weights to show",
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
    line = "standard input, line 2: byte 3 is 0xff, which is no UTF-8 there; save the file as UTF-8"
    assert capsys.readouterr() == ("", f"regard: {line}\n")


OPTIONS = [
    "--beam",
    "--nbest",
    "--length-penalty",
    "--longest",
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
    assert (status, err) == (0, "") or (
        status == 2 and out == "" and err.startswith("regard: ") and err.count("\n") == 1
    )
