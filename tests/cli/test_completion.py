import os
import subprocess
from pathlib import Path

import pytest

from regard.cli import main

SHELLS = {
    "bash": ".local/share/bash-completion/completions/regard",
    "zsh": ".zsh/completions/_cyclopts_regard",
    "fish": ".config/fish/completions/regard.fish",
}
START_UP = {"bash": ".bashrc", "zsh": ".zshrc"}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM", "ZSH_VERSION", "BASH_VERSION", "FISH_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_finds_its_script(shell, home, capsys):
    script = home / SHELLS[shell]
    for _ in range(2):  # the second time nothing is added
        assert main(["--install-completion", "--shell", shell]) == 0
        assert capsys.readouterr() == ("", f"wrote {script}; start a new {shell} to use it\n")
    assert "evaluate" in script.read_text()
    if shell in START_UP:
        start_up = (home / START_UP[shell]).read_text()
        assert start_up.count("\n") == 2
        assert str(script if shell == "bash" else script.parent) in start_up


def complete(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of some words."""
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _regard; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    bash = subprocess.run(["bash", "-c", f". {script}; {line}"], capture_output=True, text=True, check=True)
    return bash.stdout.splitlines()


def test_bash_completes_commands_and_options(home):
    script = home / "completion.bash"
    assert main(["--install-completion", "--shell", "bash", "--output", str(script)]) == 0
    assert complete(script, "regard", "e") == ["evaluate", "explain"]
    assert complete(script, "regard", "bench", "w") == ["watch"]
    assert complete(script, "regard", "inspect", "--j") == ["--json"]
    assert complete(script, "regard", "--i") == ["--install-completion"]


def test_the_shell_in_use_is_found(home, monkeypatch, capsys):
    monkeypatch.setenv("FISH_VERSION", "4.0")
    assert main(["--install-completion"]) == 0
    assert capsys.readouterr().err == f"wrote {home / SHELLS['fish']}; start a new fish to use it\n"


def test_what_a_user_can_put_right_is_one_line(home, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")  # ps, which knows what started us, is not found
    monkeypatch.setenv("SHELL", "/bin/ed")
    assert main(["--install-completion"]) == 2
    line = "regard: cannot detect your shell; pass --shell bash, zsh, fish or powershell\n"
    assert capsys.readouterr() == ("", line)
    (home / "file").write_text("")
    script = os.path.join(home, "file", "regard.fish")
    assert main(["--install-completion", "--shell", "fish", "--output", script]) == 2
    assert capsys.readouterr() == ("", f"regard: {home}/file: cannot be written: File exists\n")
