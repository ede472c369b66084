import json
import sys
from datetime import datetime
from unittest.mock import patch

from regard.serve.log import log, log_bug, write


def logged(function, *arguments, **fields):
    lines = []
    with patch("regard.serve.log.write", lines.append):
        function(*arguments, **fields)
    (line,) = lines
    assert "\n" not in line
    return json.loads(line)


def test_a_line_is_a_json_object():
    found = logged(log, "listening", models=["a\nb"], token=False)
    assert datetime.fromisoformat(found.pop("time")).utcoffset().total_seconds() == 0
    assert found == {"event": "listening", "models": ["a\nb"], "token": False}


def test_lines_go_to_stderr(capsys):
    write("a")
    assert capsys.readouterr() == ("", "a\n")


def test_a_bug_is_told_by_its_place_and_not_its_words():
    try:
        {}["what a user wrote"]
    except KeyError:
        found = logged(log_bug, sys.exception())
    assert (found["event"], found["error"]) == ("bug", "KeyError")
    assert found["places"][0].endswith(" test_a_bug_is_told_by_its_place_and_not_its_words")
    assert "user wrote" not in str(found)
