import io
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from regard import RegardError, __version__
from regard.cli import main
from regard.cli.command_name import get_command_name

COMMAND = "import sys; from regard.cli import main; sys.exit(main())"
WITHOUT_TORCH = """
import sys, regard
from regard.cli import main
assert main(sys.argv[1:]) == 0
assert not {"torch", "matplotlib"} & set(sys.modules), "imported for nothing"
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (["--help"], "Example: regard demo"),
        ([], "Example: regard demo"),
        (["demo", "--help"], "Example: regard demo"),
        (["predict", "--help"], "Example: regard predict runs/dates --beam 5 < in.txt > out.txt"),
        (["evaluate", "--help"], "Example: regard evaluate runs/mine --source t.en --target t.de"),
        (["align", "--help"], "Example: regard align runs/mine t.en t.de > links.txt"),
        (["look", "--help"], 'Example: regard look runs/dates "3 mars 2017"'),
        (["inspect", "--help"], "Example: regard inspect runs/dates"),
        (["bench", "--help"], "Example: regard bench attention --quick"),
        (["bench", "attention", "--help"], "Example: regard bench attention --scores additive,dot --jsonl rows.jsonl"),
        (["bench", "training", "--help"], "Example: regard bench training --quick"),
        (["bench", "watch", "--help"], "Example: regard bench watch --length 2048"),
        (["--install-completion", "--help"], "Example: regard --install-completion --shell bash"),
    ],
)
def test_help_needs_no_torch_and_ends_with_an_example(arguments, example):
    result = python(WITHOUT_TORCH, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.rstrip().splitlines()[-1] == example


@pytest.mark.parametrize("arguments", [["--version"], ["predict", "--version"]])
def test_version(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_the_command_is_a_module_too(tmp_path):
    def as_module(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "regard", *arguments], capture_output=True, text=True, cwd=tmp_path
        )

    version = as_module("--version")
    assert (version.returncode, version.stdout, version.stderr) == (0, f"{__version__}\n", "")
    missing = as_module("inspect", "runs")
    line = "regard: runs: not found; expected a run folder created by regard train\n"
    assert (missing.returncode, missing.stdout, missing.stderr) == (2, "", line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["dmeo"],
            'unknown command "dmeo"; did you mean "regard demo"?',
        ),
        (
            ["bench", "atention"],
            'unknown command "atention". Did you mean "attention"? '
            "Available commands: attention, gpu, training, cost, scaling, watch.",
        ),
        (["plot"], 'unknown command "plot"; did you mean "regard look"?'),
        (["xyzzy"], 'unknown command "xyzzy"; see regard --help'),
        (["demo", "--oot", "x"], "demo: unknown option --oot; did you mean --out?"),
        (["demo", "--out"], 'command "demo" parameter --out requires an argument.'),
        (["demo", "x"], "unexpected argument x; see regard --help"),
        (["bench", "attention", "--length", "x"], 'invalid value for --length: unable to convert "x" into int.'),
        (["bench", "attention", "--heads", "0"], "--heads must be at least 1, got 0"),
        (["bench", "attention", "--scores", "dott"], '--scores: unknown value "dott"; did you mean "dot"?'),
        (
            ["bench", "attention", "--device", "meta"],
            '--device: "meta" cannot be used here: Tensor.item() cannot be called on meta tensors',
        ),
        (["bench", "attention", "--scores", "dot dott"], '--scores: unknown value "dott"; did you mean "dot"?'),
        (
            ["bench", "attention", "--scores", ","],
            "--scores is empty; choose from dot, scaled_dot, bilinear, reduced_rank, gaussian, uniform, "
            "additive, concat, boxcar, epanechnikov, exact, hard, dropout, sparsemax, entmax15, weights",
        ),
        (["bench", "attention", "--scores", "dot", "--jsonl", "."], "cannot write .: is a directory"),
    ],
)
def test_what_a_user_can_put_right_is_one_line_and_status_2(arguments, line, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def raising(error: BaseException):
    def demo() -> None:
        raise error

    return demo


def test_an_error_of_several_lines_becomes_one(monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.demo.demo", raising(RegardError("first\nsecond")))
    assert main(["demo"]) == 2
    assert capsys.readouterr() == ("", "regard: first second\n")


def test_an_error_does_not_control_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.demo.demo", raising(RegardError("\x1b[2Ja\u202eb\tc: not found")))
    assert main(["demo"]) == 2
    assert main(["dem\x1b[2Jx"]) == 2
    assert main(["demo", "--\x1b[2Jx"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        r"regard: \x1b[2Ja\u202eb\tc: not found",
        r'regard: unknown command "dem\x1b[2Jx"; see regard --help',
        r"regard: demo: unknown option --\x1b[2Jx; see regard demo --help",
    ]
    monkeypatch.setattr("regard.cli.demo.demo", raising(ZeroDivisionError("\x1b[2J")))
    assert main(["demo"]) == 70
    assert capsys.readouterr().err.endswith("ZeroDivisionError: \\x1b[2J\n")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_is_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.demo.demo", raising(error))
    assert main(["demo"]) == 2
    line = "regard: out of memory; try smaller batches, shorter texts or a smaller model\n"
    assert capsys.readouterr() == ("", line)


def test_a_bug_of_ours_shows_its_traceback_and_status_70(monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.demo.demo", raising(ZeroDivisionError("app")))
    assert main(["demo"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("ZeroDivisionError: app\n")


def test_an_interrupt_is_quiet(monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.demo.demo", raising(KeyboardInterrupt()))
    assert main(["demo"]) == 130
    assert capsys.readouterr() == ("", "")


def test_every_command_is_listed(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^│ ([a-z]+) ", out, re.MULTILINE) == [
        "align", "bench", "compare", "demo", "evaluate", "explain", "generate", "heads", "inspect", "look", "predict",
        "serve", "train",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_a_closed_pipe_is_quiet(arguments):
    command = [sys.executable, "-c", COMMAND, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell in which $regard is the command."""
    regard = f"{shlex.quote(sys.executable)} -c {shlex.quote(COMMAND)}"
    line = line.replace("$regard", regard)
    return subprocess.run(["bash", "-c", line], capture_output=True, env={**os.environ, **environment})


def test_output_may_be_closed_full_or_of_another_encoding():
    closed = shell("$regard --help >&- 2>&-")
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, b"", b"")
    full = shell("$regard --help > /dev/full")
    line = b"regard: cannot write standard output: no space left on device\n"
    assert (full.returncode, full.stderr) == (2, line)
    other = shell("$regard --help", PYTHONIOENCODING="ascii")
    assert (other.returncode, other.stderr) == (0, b"")
    assert "╭─ Commands ─" in other.stdout.decode()


@pytest.mark.parametrize(
    ("command", "option"),
    [("predict", []), ("look", []), ("explain", []), ("align", []), ("evaluate", ["--data", "-"])],
)
def test_a_hyphen_stands_for_stdin(command, option, reverse_run, monkeypatch, capsys):
    outputs = []
    for words in (option, ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b c\tc b a\n")))
        assert main([command, str(reverse_run), *words, "--quiet"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != ""


@pytest.mark.parametrize(
    ("path", "result", "name"),
    [
        ("-c", None, "regard"),
        ("/x/pytest/__main__.py", None, "regard"),
        ("/x/regard/__main__.py", "/x/bin/regard", "python3 -m regard"),
        ("/x/bin/regard", "/x/bin/regard", "regard"),
        ("bin/regard", None, "bin/regard"),
    ],
)
def test_the_command_is_called_as_it_can_be_typed(path, result, name, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: result)
    monkeypatch.setattr(sys, "argv", [path])
    monkeypatch.setattr(sys, "executable", "/x/bin/python3")
    assert get_command_name() == name


@pytest.mark.slow
def test_bench_attention_measures_and_keeps_its_rows(tmp_path):
    kept = tmp_path / "rows.jsonl"
    sizes = ["--length", "16", "--width", "8", "--heads", "2", "--repeats", "2"]
    options = [*sizes, "--quick", "--scores", "dot, additive,sparsemax ,weights", "--growth", "--jsonl", str(kept)]
    kept.write_text('{"group": "of another run"}\n')
    result = python(COMMAND, "bench", "attention", *options)
    assert (result.returncode, result.stderr) == (0, "")
    older, *rows = (json.loads(line) for line in kept.read_text().splitlines())
    assert older == {"group": "of another run"}
    assert [(row["group"], row["case"]) for row in rows if row["group"] == "additive"] == [
        ("additive", "plain torch"),
        ("additive", "attend"),
        ("additive", "attend, reference"),
    ]
    assert rows[0]["forward"]["ratios"] == {"SDPA": 1.0, "plain torch": rows[0]["forward"]["ratios"]["plain torch"]}
    assert rows[0]["settings"]["length"] == 16
    assert all(row["forward"]["seconds"] > 0 and row["forward"]["rounds"] == 2 for row in rows if "forward" in row)
    assert [row["length"] for row in rows if row["group"] == "growth"] == [16, 32, 64, 128]
    for words in ("weights.reduce(all three)", "length 16, 2 heads of width 8", "length 128:"):
        assert words in result.stdout
    assert "Targets" not in result.stdout  # which are for another length


def test_the_help_of_a_command_on_a_run_of_another_task_says_for_which_tasks_it_is(reverse_run, capsys):
    assert main(["generate", str(reverse_run), "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Generate text with a language model. generate is for the task text; " in out
    assert "--temperature" in out
    assert main(["generate", str(reverse_run)]) == 2
    assert capsys.readouterr().err == (f"regard: generate is for the task text; {reverse_run} is of the task pairs\n")
