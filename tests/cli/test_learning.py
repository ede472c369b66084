"""Every model and every score function learns to reverse through the real command, and looks at the letter it writes."""

import json

import pytest

from regard.cli import main

SMALL = ["--hidden", "64", "--embedding", "64", "--dropout", "0.1"]
PRESETS = {
    "simple-attention": [*SMALL, "--steps", "1000"],
    "parameterized-attention": SMALL,
    "bahdanau": SMALL,
    "luong-dot": SMALL,
    "luong-general": SMALL,
    "luong-concat": [*SMALL, "--bidirectional"],  # with one direction it may well look at the next letter's state
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
    "epanechnikov": ["--data.corpus.alphabet", "abcdefgh", "--data.corpus.longest", "6", "--training.tokens", "700"],
}
CASES = {name: ["--model", name, *more] for name, more in PRESETS.items()} | {
    f"bahdanau with {score}": ["--model", "bahdanau", "--score", score, *SMALL, *more]
    for score, more in SCORES.items()
}


@pytest.mark.parametrize("case", CASES)
def test_reverse_is_learnt_with_the_attention_on_the_right_letter(case, tmp_path, capsys):
    run = str(tmp_path / "run")
    settings = ["--count", "6000", "--steps", "500", "--training.tokens", "1000", "--rate", "4e-3"]
    pace = ["--validate-every", "250", "--validate-most", "100", "--patience", "0"]
    assert main(["train", "reverse", "--out", run, "--quiet", *settings, *pace, *CASES[case]]) == 0
    assert main(["evaluate", run, "--count", "200", "--beam", "1", "--as-json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"]["exact_match"]["value"] >= 0.8
    assert found["alignment"]["precision"] >= 0.9
    assert found["alignment"]["recall"] >= 0.9


def test_without_attention_there_is_a_bottleneck(tmp_path, capsys):
    """The plain seq2seq, as large and as long trained, is worse: all of the source has to pass through one state."""
    exact = {}
    for name in ("seq2seq", "parameterized-attention"):
        run = str(tmp_path / name)
        settings = ["--count", "6000", "--steps", "500", "--training.tokens", "1000", "--rate", "4e-3", "--quiet"]
        assert main(["train", "reverse", "--out", run, "--model", name, *SMALL, "--patience", "0", *settings]) == 0
        assert main(["evaluate", run, "--count", "200", "--beam", "1", "--as-json", "--quiet"]) == 0
        exact[name] = json.loads(capsys.readouterr().out)["text"]["exact_match"]["value"]
    assert exact["seq2seq"] < exact["parameterized-attention"] - 0.3
