import json
import sys
from datetime import datetime
from unittest.mock import patch

from regard.serve.log import log, log_bug, write_line


def logged(function, *arguments, **fields):
    lines = []
    with patch("regard.serve.log.write_line", lines.append):
        function(*arguments, **fields)
    (line,) = lines
    assert "\n" not in line
    return json.loads(line)


def test_a_line_is_a_json_object():
    line = logged(log, "listening", models=["a\nb"], token=False)
    assert datetime.fromisoformat(line.pop("time")).utcoffset().total_seconds() == 0
    assert line == {"event": "listening", "models": ["a\nb"], "token": False}


def test_lines_go_to_stderr(capsys):
    write_line("a")
    assert capsys.readouterr() == ("", "a\n")


def test_a_bug_is_told_by_its_place_and_not_its_words():
    try:
        {}["what a user wrote"]
    except KeyError:
        line = logged(log_bug, sys.exception())
    assert (line["event"], line["error"]) == ("bug", "KeyError")
    assert line["traceback"][0].endswith(" test_a_bug_is_told_by_its_place_and_not_its_words")
    assert "user wrote" not in str(line)
