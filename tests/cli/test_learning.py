"""Every model and score learns to reverse through the real command, and looks at the letter it writes."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = "import sys; from regard.cli import main; sys.exit(main())"
SMALL = ["--hidden", "64", "--embedding", "64", "--dropout", "0.1"]
PRESETS = {
    "simple-attention": [*SMALL, "--steps", "1000"],
    "parameterized-attention": SMALL,
    "bahdanau": SMALL,
    "luong-dot": SMALL,
    "luong-general": SMALL,
    "luong-concat": SMALL,
    "transformer": [
        *("--width", "64", "--dropout", "0.1", "--encoder-layers", "2", "--decoder-layers", "2"),
        *("--rate", "2e-3", "--steps", "700"),
    ],
}
SCORES = {
    "dot": [],
    "scaled_dot": [],
    "bilinear": [],
    "reduced_rank": [],
    "concat": [],
    "gaussian": ["--steps", "1000"],
    "epanechnikov": [  # what is out of its reach has no gradient, so it learns from fewer letters
        *("--data.corpus.alphabet", "abcdefgh", "--data.corpus.longest", "6", "--training.tokens", "700"),
        *("--steps", "800"),
    ],
}
CASES = {name: ["--model", name, *more] for name, more in PRESETS.items()} | {
    f"bahdanau with {score}": ["--model", "bahdanau", "--score", score, *SMALL, *more] for score, more in SCORES.items()
}


def regard(*words: str) -> str:
    """What the command prints, run as a user runs it: without the checks of types that tests have; on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def learn_to_reverse(run: str, *settings: str) -> dict[str, dict[str, float]]:
    """Train on the built-in corpus and give what evaluation finds."""
    usual = ["--count", "6000", "--steps", "500", "--training.tokens", "1000", "--rate", "4e-3", "--patience", "0"]
    regard("train", "reverse", "--out", run, "--quiet", "--validate-every", "500", *usual, *settings)
    return json.loads(regard("evaluate", run, "--count", "200", "--beam", "1", "--json", "--quiet"))


@pytest.mark.parametrize("case", CASES)
def test_reverse_is_learnt_with_the_attention_on_the_right_letter(case, tmp_path):
    found = learn_to_reverse(str(tmp_path / "run"), *CASES[case])
    assert found["text"]["exact_match"]["value"] >= 0.8
    assert found["alignment"]["precision"] >= 0.9
    assert found["alignment"]["recall"] >= 0.9


def test_without_attention_there_is_a_bottleneck(tmp_path):
    """The plain seq2seq, as large and as long trained, is worse: all of the source has to pass through one state."""
    names = ("seq2seq", "parameterized-attention")
    without, with_attention = (learn_to_reverse(str(tmp_path / name), "--model", name, *SMALL) for name in names)
    assert without["text"]["exact_match"]["value"] < with_attention["text"]["exact_match"]["value"] - 0.3
