"""Messages: nothing in them controls a terminal."""

from pathlib import Path

import pytest

from regard.messages import escape_controls, escape_lines, print_message

SOURCE = Path(__file__).parent.parent / "src" / "regard"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066"),
        ("\u2028\u2029\u200f", r"\u2028\u2029\u200f"),
        ("\udcff", r"\udcff"),
        ("größe 日本 \N{GRINNING FACE} \\x1b", "größe 日本 \N{GRINNING FACE} \\x1b"),
    ],
)
def test_what_controls_a_terminal_is_escaped(text, escaped):
    assert escape_controls(text) == escaped


def test_lines_stay_lines():
    assert escape_lines("a\x1b\nb\u202e\n") == "a\\x1b\nb\\u202e\n"


def test_a_message_is_one_line_on_stderr(capsys):
    print_message("a\nb\x1b[0m")
    assert capsys.readouterr() == ("", "a\\nb\\x1b[0m\n")


def test_all_messages_are_printed_here():
    printing = {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "file=sys.stderr" in path.read_text("utf-8")
    }
    assert printing == {"messages.py", "cli/__init__.py"}  # the command prints the traceback of a bug, escaped too
