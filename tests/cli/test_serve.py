import subprocess
import sys

import pytest

from regard import RegardError
from regard.cli import main
from regard.cli.serve import read_token

WITHOUT = """
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
missing = ("fastapi", "uvicorn", "starlette", "pydantic")
def found(name, *rest):
    return None if name.split(".")[0] in missing else find(name, *rest)
importlib.machinery.PathFinder.find_spec = found
from regard.cli import main
sys.exit(main(sys.argv[1:]))
"""


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_without_fastapi_it_says_what_to_install():
    result = python(WITHOUT, "serve", "runs/none")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "regard: regard serve requires FastAPI and uvicorn: pip install fastapi uvicorn\n"


@pytest.mark.slow
def test_all_else_works_without_fastapi():
    result = python(WITHOUT, "inspect", "runs/none")
    assert result.stderr == "regard: runs/none: not found; expected a run folder created by regard train\n"
    program = "import sys, regard.cli, regard.api; assert not {'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)"
    assert python(program).returncode == 0


def test_the_help_ends_with_an_example():
    result = python(WITHOUT, "serve", "--help")
    for option in ("--header-timeout", "--body-timeout", "--send-timeout", "--max-connections"):
        assert option in result.stdout
    assert result.stdout.rstrip().splitlines()[-1] == "Example: regard serve runs/dates runs/plain --port 8000"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["runs/none"], "runs/none: not found; expected a run folder created by regard train"),
        (["runs/none", "--port", "-1"], "--port must be at least 0, got -1"),
        (["runs/none", "--token-file", "none"], "--token-file none: cannot be read: No such file or directory"),
        (["runs/none", "--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid, port 8000: "),
        (["a", "./a"], "a is listed twice"),
        ([], 'command "serve" parameter RUN requires an argument.'),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, line, capsys):
    assert main(["serve", *arguments, "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"regard: {line}") if line.endswith(" ") else err == f"regard: {line}\n"


def test_the_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("REGARD_TOKEN", "from-outside")
    assert read_token(None) == "from-outside"
    (tmp_path / "token").write_text("from-a-file\n")
    assert read_token(tmp_path / "token") == "from-a-file"


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", "é".encode(), b"a\x00b", b"\xff"])
def test_what_is_no_token_is_refused(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    what = "cannot be read: it is not text" if content == b"\xff" else (
        "expected a token of printable ASCII characters without spaces"
    )  # fmt: skip
    with pytest.raises(RegardError) as caught:
        read_token(tmp_path / "token")
    assert str(caught.value) == f"--token-file {tmp_path / 'token'}: {what}"
