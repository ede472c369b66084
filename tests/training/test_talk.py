import io
import sys

import pytest

from regard.errors import RegardError
from regard.run import Run
from regard.training.talk import Talk, in_words

LINE = {"step": 40, "seconds": 12.4, "train_loss": 1.25, "valid_loss": 0.5, "valid_exact": 0.125, "valid_bleu": 31.26}
SAID = "step     40  12 s  train loss 1.250  valid loss 0.500  exact 12.5 %  BLEU 31.3  best so far"


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        return True


def logged(run: Run) -> list[str]:
    return [line[20:] for line in run.log_file.read_text().splitlines()]  # without date and time


def look(monkeypatch) -> Terminal:
    """From here on, stderr is a terminal."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return found


def test_what_is_said_goes_to_stderr_and_to_the_log(tmp_path, capsys):
    run = Run(tmp_path)
    talk = Talk(run)
    talk.say("one")
    talk.validated(LINE, better=True)
    talk.averaged(3, {"loss": 0.25, "exact": 1.0}, better=False)
    averaged = "mean of the last 3 checkpoints: valid loss 0.250  exact 100.0 %  not better, not kept"
    assert logged(run) == ["one", SAID, averaged]
    assert capsys.readouterr() == ("", f"one\n{SAID}\n{averaged}\n")


@pytest.mark.parametrize(("count", "words"), [(1, "1 update left out"), (3, "3 updates left out")])
def test_updates_that_were_left_out_are_told(count, words, capsys):
    Talk().validated({**LINE, "left_out": count}, better=True)
    assert capsys.readouterr().err == SAID.replace("  best", f"  {words}  best") + "\n"


def test_quiet_is_quiet_but_in_the_log(tmp_path, monkeypatch):
    terminal = look(monkeypatch)
    run = Run(tmp_path)
    talk = Talk(run, quiet=True)
    with talk.progress(10, 0):
        talk.say("one")
        talk.step(1, 2.0)
    assert (terminal.getvalue(), logged(run)) == ("", ["one"])


def test_without_a_folder_nothing_is_logged(tmp_path, capsys):
    Talk(Run(tmp_path / "none")).say("one")
    assert capsys.readouterr() == ("", "one\n")
    assert not (tmp_path / "none").exists()


def test_a_terminal_shows_a_bar_with_the_loss_and_lines_above_it(monkeypatch):
    terminal = look(monkeypatch)
    talk = Talk()
    with talk.progress(steps=10, done=4):
        talk.step(5, 2.0)
        talk.step(6, 4.0)
        talk.say("one [bold]line[/bold]")
    shown = terminal.getvalue()
    assert "one [bold]line[/bold]" in shown  # as it is, whatever looks like markup
    assert "/10" in shown
    assert "loss 2.100" in shown  # 2 + 0.05 * (4 - 2)


def test_no_bar_is_shown_in_a_file(capsys):
    with (talk := Talk()).progress(10, 0):
        talk.step(5, 2.0)
    assert capsys.readouterr() == ("", "")


def test_no_bar_is_shown_for_a_run_that_is_done(monkeypatch):
    terminal = look(monkeypatch)
    with Talk().progress(10, 10):
        pass
    assert terminal.getvalue() == ""


def test_findings_are_said_in_words():
    found = [in_words(f"valid_{name}", 0.5) for name in ("loss", "exact", "bleu", "chrf")]
    assert found == ["valid loss 0.500", "exact 50.0 %", "BLEU 0.5", "chrf 0.5"]


def test_tensorboard_is_asked_for_only_if_wanted(tmp_path, monkeypatch):
    talk = Talk()
    with talk.events(Run(tmp_path), wanted=False, step=0) as write:
        write(LINE)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with (
        pytest.raises(RegardError, match=r"^training.tensorboard needs the package tensorboard: pip install 'regard\["),
        talk.events(Run(tmp_path), wanted=True, step=0),
    ):
        pass


def test_what_is_read_is_counted_on_a_terminal(monkeypatch):
    terminal = look(monkeypatch)
    for quiet in (True, False):
        with Talk(quiet=quiet).counting("vectors read") as show:
            show(1234)
        assert ("1,234 vectors read" in terminal.getvalue()) is not quiet
