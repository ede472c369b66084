import io
import sys

import pytest

from regard.errors import RegardError
from regard.run import Run
from regard.training.reporter import Reporter, format_metric

LINE = {"step": 40, "seconds": 12.4, "train_loss": 1.25, "valid_loss": 0.5, "valid_exact": 0.125, "valid_bleu": 31.26}
SAID = "step     40  12 s  train loss 1.250  valid loss 0.500  exact 12.5 %  BLEU 31.3  best so far"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def read_log(run: Run) -> list[str]:
    return [line[20:] for line in run.log_file.read_text().splitlines()]  # without date and time


def look(monkeypatch) -> Terminal:
    """Make stderr a terminal."""
    actual = Terminal()
    monkeypatch.setattr(sys, "stderr", actual)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return actual


def test_what_is_said_goes_to_stderr_and_to_the_log(tmp_path, capsys):
    run = Run(tmp_path)
    talk = Reporter(run)
    talk.info("one")
    talk.report_validation(LINE, better=True)
    talk.report_average(3, {"loss": 0.25, "exact": 1.0}, better=False)
    averaged = "average of the last 3 checkpoints: valid loss 0.250  exact 100.0 %  no improvement"
    assert read_log(run) == ["one", SAID, averaged]
    assert capsys.readouterr() == ("", f"one\n{SAID}\n{averaged}\n")


@pytest.mark.parametrize(("count", "words"), [(1, "1 update skipped"), (3, "3 updates skipped")])
def test_updates_that_were_left_out_are_told(count, words, capsys):
    Reporter().report_validation({**LINE, "skipped": count}, better=True)
    assert capsys.readouterr().err == SAID.replace("  best", f"  {words}  best") + "\n"


def test_quiet_is_quiet_but_in_the_log(tmp_path, monkeypatch):
    terminal = look(monkeypatch)
    run = Run(tmp_path)
    talk = Reporter(run, quiet=True)
    with talk.progress(10, 0):
        talk.info("one")
        talk.step(1, 2.0)
    assert (terminal.getvalue(), read_log(run)) == ("", ["one"])


def test_without_a_folder_nothing_is_logged(tmp_path, capsys):
    Reporter(Run(tmp_path / "none")).info("one")
    assert capsys.readouterr() == ("", "one\n")
    assert not (tmp_path / "none").exists()


def test_a_terminal_shows_a_bar_with_the_loss_and_lines_above_it(monkeypatch):
    terminal = look(monkeypatch)
    talk = Reporter()
    with talk.progress(steps=10, done=4):
        talk.step(5, 2.0)
        talk.step(6, 4.0)
        talk.info("one [bold]line[/bold]")
    shown = terminal.getvalue()
    assert "one [bold]line[/bold]" in shown  # not parsed as markup
    assert "/10" in shown
    assert "loss 2.100" in shown  # 2 + 0.05 * (4 - 2)


def test_no_bar_is_shown_in_a_file(capsys):
    with (talk := Reporter()).progress(10, 0):
        talk.step(5, 2.0)
    assert capsys.readouterr() == ("", "")


def test_no_bar_is_shown_for_a_run_that_is_done(monkeypatch):
    terminal = look(monkeypatch)
    with Reporter().progress(10, 10):
        pass
    assert terminal.getvalue() == ""


def test_findings_are_said_in_words():
    actual = [format_metric(f"valid_{name}", 0.5) for name in ("loss", "exact", "bleu", "chrf")]
    assert actual == ["valid loss 0.500", "exact 50.0 %", "BLEU 0.5", "chrf 0.5"]


def test_tensorboard_is_asked_for_only_if_wanted(tmp_path, monkeypatch):
    talk = Reporter()
    with talk.open_tensorboard(Run(tmp_path), enabled=False, step=0) as write:
        write(LINE)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with (
        pytest.raises(
            RegardError, match=r"^training.tensorboard requires the package tensorboard: pip install tensorboard$"
        ),
        talk.open_tensorboard(Run(tmp_path), enabled=True, step=0),
    ):
        pass


def test_what_is_read_is_counted_on_a_terminal(monkeypatch):
    terminal = look(monkeypatch)
    for quiet in (True, False):
        with Reporter(quiet=quiet).show_count("vectors read") as show:
            show(1234)
        assert ("1,234 vectors read" in terminal.getvalue()) is not quiet


def test_what_controls_a_terminal_is_escaped_on_it_and_in_the_log(tmp_path, monkeypatch):
    shown = look(monkeypatch)
    run = Run(tmp_path)
    talk = Reporter(run)
    talk.info("data: \x1b[2J\u202e.tsv\nb")
    with talk.progress(3, 0):
        talk.info("note: \x1b]0;title\x07 \udcff")
    lines = [r"data: \x1b[2J\u202e.tsv\nb", r"note: \x1b]0;title\x07 \udcff"]
    assert read_log(run) == lines
    assert all(line in shown.getvalue() for line in lines)
    assert "\x1b[2J\u202e" not in shown.getvalue()
    assert "\x1b]0;" not in shown.getvalue()
