"""Every model and score learns to reverse through the real command, and looks at the letter it writes."""

import json
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest

from regard.cli import main

SHORT = ["--data.corpus.alphabet", "abcdefgh", "--data.corpus.max-length", "6"]
LONG = [
    "--data.corpus.alphabet",
    "abcdefghijkl",
    "--data.corpus.max-length",
    "8",
]  # where what is short is learned unseen
LONGEST = ["--data.corpus.alphabet", "abcdefghijklmnop", "--data.corpus.max-length", "9"]
SMALL = ["--hidden", "32", "--embedding", "32", "--dropout", "0.2", "--learning-rate", "8e-3"]
BARE = [*LONGEST, *SMALL, "--dropout", "0", "--steps", "600"]
PRESETS = {
    "simple-attention": [*BARE, "--hidden", "48", "--embedding", "48", "--steps", "800"],
    "parameterized-attention": BARE,
    "bahdanau": [*SHORT, *SMALL],
    "luong-dot": [*SHORT, *SMALL, "--bidirectional"],  # forward states of the letter before serve as well
    "luong-general": [*SHORT, *SMALL, "--bidirectional"],
    "luong-concat": [*SHORT, *SMALL, "--bidirectional"],
    "transformer": [
        *(*SHORT, "--width", "32", "--dropout", "0.05", "--encoder-layers", "2", "--decoder-layers", "2"),
        *("--learning-rate", "5e-3", "--steps", "500"),
    ],
}
SCORES = {
    "dot": SHORT,
    "scaled_dot": SHORT,
    "bilinear": SHORT,
    "reduced_rank": SHORT,
    "concat": SHORT,
    "gaussian": [*LONG, "--steps", "500"],
    "epanechnikov": [*SHORT, "--steps", "700"],  # what is out of its reach has no gradient, so it takes longer
}
CASES = {name: ["--model", name, *more] for name, more in PRESETS.items()} | {
    f"bahdanau with {score}": ["--model", "bahdanau", "--score", score, *SMALL, *more] for score, more in SCORES.items()
}


@pytest.fixture
def learn_to_reverse(tmp_path, capsys, monkeypatch) -> Callable[[list[str]], dict[str, Any]]:
    """What trains by the command, as a user runs it, without the checks of types, and gives what evaluation finds."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    usual = ["--corpus-size", "3000", "--steps", "300", "--training.batch-tokens", "700", "--validate-every", "1000"]

    def learn(settings: list[str]) -> dict[str, Any]:
        run = str(tmp_path / settings[1])
        assert main(["train", "reverse", "--out", run, "--quiet", *usual, *settings]) == 0
        assert main(["evaluate", run, "--count", "200", "--beam", "1", "--json", "--quiet"]) == 0
        return json.loads(capsys.readouterr().out)

    return learn


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_reverse_is_learned_with_the_attention_on_the_right_letter(case, learn_to_reverse):
    result = learn_to_reverse(CASES[case])
    assert result["text"]["exact_match"]["value"] >= 0.8
    assert result["alignment"]["precision"] >= 0.9
    assert result["alignment"]["recall"] >= 0.9


@pytest.mark.slow
def test_without_attention_there_is_a_bottleneck(learn_to_reverse):
    """The plain seq2seq, as large and as long trained, is worse: all of the source has to pass through one state."""
    names = ("seq2seq", "parameterized-attention")
    without, with_attention = (learn_to_reverse(["--model", name, *BARE, "--cell", "gru"]) for name in names)
    assert without["text"]["exact_match"]["value"] < with_attention["text"]["exact_match"]["value"] - 0.3
