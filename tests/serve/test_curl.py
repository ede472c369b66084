"""The curl examples of docs/serve.md, run against a server."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from regard import __version__
from tests.serve.running import running

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
ADDRESS = "http://127.0.0.1:8000"
EXAMPLE = re.compile(rf"^curl [^\n]*{ADDRESS}/(\S*)(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)


@pytest.fixture(scope="module")
def answers(models):
    """What each example prints, by its path."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    examples = {match[1]: match[0] for match in EXAMPLE.finditer(PAGE.read_text())}
    assert list(examples) == ["api/predict", "api/look", "api/stream", "health", "ready", "metrics"]
    answers = {}
    with running({"reverse": models["reverse"], "lines": replace(models["text"], name="lines")}) as client:
        for path, line in examples.items():
            command = line.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
            shell = ["sh", "-c", command.replace(ADDRESS, client.address)]
            result = subprocess.run(shell, capture_output=True, text=True, timeout=30)
            assert (result.returncode, result.stderr) == (0, ""), line
            answers[path] = result.stdout
    return answers


def test_predict(answers):
    answer = json.loads(answers["api/predict"])
    assert (answer["model"], answer["kind"], answer["source"]) == ("reverse", "pairs", "a b c d")
    assert (answer["text"], len(answer["alternatives"])) == ("d c b a", 2)


def test_look(answers):
    answer = json.loads(answers["api/look"])
    assert answer["rows"] == ["d", "c", "b", "a", "<eos>"]
    assert answer["columns"] == ["a", "b", "c", "d", "<eos>"]


def test_stream(answers, predictors):
    *parts, last = answers["api/stream"].rstrip("\n").split("\n\n")
    assert all(part.startswith('event: part\ndata: {"part": "') for part in parts)
    answer = json.loads(last.removeprefix("event: answer\ndata: "))
    assert (answer["model"], answer["prompt"]) == ("lines", "the cat")
    assert answer["text"] == predictors["text"].generate("the cat", max_tokens=20, seed=1).text


def test_health_readiness_and_metrics(answers):
    assert json.loads(answers["health"]) == {"status": "ok", "version": __version__}
    assert json.loads(answers["ready"]) == {"status": "ready", "models": ["reverse", "lines"]}
    shown = re.search(r"^```\n(# HELP .*?)\.\.\.\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert set(shown[1].splitlines()) <= set(answers["metrics"].splitlines())
