import io
import json
import math
import sys

import pytest
import torch
from torch import nn

from regard.batch import EOS
from regard.cli import main
from regard.models.language_model import LanguageModel
from regard.tasks import TASKS
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.settings import TextRecipe
from regard.text import TokenizerPair, learn_tokenizer

BYTES = learn_tokenizer("bytes", [])
SCRIPT = [BYTES.encode("xy"), *([byte] for byte in BYTES.encode("é\n!")), [EOS]]
"""The tokens to write at each step, equally probable; the é is two bytes."""


class ScriptState:
    def __init__(self, rows):
        self.rows, self.number = rows, 0

    def select(self, rows):
        assert len(rows) == self.rows


class Parrot(LanguageModel):
    """A model that follows the script, whatever came before."""

    input_embedding = nn.Identity()  # it embeds nothing

    def __init__(self):
        super().__init__()
        self.steps = 0

    def start(self, tokens, capacity, copies=1):
        return ScriptState(len(tokens) * copies)

    def step(self, tokens, state):
        logits = torch.full((len(tokens), BYTES.size), -math.inf)
        logits[:, SCRIPT[min(state.number, len(SCRIPT) - 1)]] = 0
        state.number += 1
        self.steps += 1
        return logits, state

    def read(self, tokens, carried=None):
        raise NotImplementedError

    output = read


@pytest.fixture
def parrot(monkeypatch):
    predictor = TextPredictor(Parrot(), TokenizerPair(BYTES, BYTES), TextRecipe(model={"name": "lstm-lm"}), {})
    monkeypatch.setattr("regard.tasks.loading.load", lambda path, device: predictor)
    monkeypatch.setattr("regard.tasks.loading.get_run_task", lambda path: TASKS["text"])
    monkeypatch.setattr("regard.cli.runs.describe_unfinished", lambda folder: iter(()))
    return predictor


def written(capsys, *arguments):
    assert main(["generate", "runs/parrot", "--device", "cpu", *map(str, arguments)]) == 0
    return capsys.readouterr()


def test_prompt_and_text_are_written(parrot, capsys):
    assert written(capsys, "--prompt", "- say ", "--greedy") == ("- say xé\n!\n", "")
    assert written(capsys, "--greedy", "--max-tokens", 5) == ("xé\n!\n", "")
    assert written(capsys, "--greedy", "--max-tokens", 2) == ("x\N{REPLACEMENT CHARACTER}\n", "")


@pytest.mark.parametrize("words", [["--prompt", "-"], ["-"]])
def test_the_prompt_can_come_from_stdin(parrot, capsys, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("one\ntwö\n".encode())))
    assert written(capsys, *words, "--greedy").out == "one\ntwöxé\n!\n"


def test_each_piece_is_shown_when_it_is_there(parrot, monkeypatch):
    class Screen(io.StringIO):
        shown = []  # noqa: RUF012

        def flush(self):
            self.shown.append((parrot.model.steps, self.getvalue()))

    monkeypatch.setattr(sys, "stdout", Screen())
    assert main(["generate", "runs/parrot", "--prompt", "p", "--greedy"]) == 0
    states = list(dict.fromkeys(Screen.shown))
    assert states[:6] == [(0, "p"), (1, "px"), (2, "px"), (3, "pxé"), (4, "pxé\n"), (5, "pxé\n!")]  # no half of an é


def test_a_seed_repeats_its_text(parrot, capsys):
    texts = {seed: written(capsys, "--seed", seed, "--quiet").out for seed in range(20)}
    assert set(texts.values()) == {"xé\n!\n", "yé\n!\n"}
    assert written(capsys, "--seed", 3, "--count", 4).out == "---\n".join(texts[seed] for seed in range(3, 7))


def test_without_a_seed_it_is_said_which_was_taken(parrot, capsys):
    out, err = written(capsys, "--count", 3)
    note, seed = err.removesuffix("\n").rsplit(" ", 1)
    assert note == "sampled with --seed"
    assert written(capsys, "--count", 3, "--seed", seed) == (out, "")
    assert written(capsys, "--quiet").err == ""


def test_json_has_log_probability_and_seed(parrot, capsys):
    lines = written(capsys, "--prompt", "ü", "--count", 2, "--seed", 2**32 - 1, "--jsonl").out.splitlines()
    first, second = map(json.loads, lines)
    assert list(first) == ["prompt", "text", "log_probability", "ended", "tokens", "seed"]
    assert (first["seed"], second["seed"], first["prompt"]) == (2**32 - 1, 0, "ü")
    assert first["text"] in ("xé\n!", "yé\n!")
    assert first["log_probability"] == pytest.approx(-math.log(2), abs=1e-6)
    (only,) = map(json.loads, written(capsys, "--greedy", "--jsonl").out.splitlines())
    assert "seed" not in only


def test_a_beam_finds_the_most_probable(parrot, capsys):
    assert written(capsys, "--prompt", "p", "--beam", 3) == ("pxé\n!\n", "")
    assert written(capsys, "--prompt", "p", "--beam", 3, "--nbest", 2).out == "pxé\n!\n---\npyé\n!\n"
    lines = written(capsys, "--beam", 3, "--nbest", 2, "--jsonl").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["xé\n!", "yé\n!"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--max-tokens 0", "--max-tokens must be at least 1, got 0"),
        ("--top-k 0", "--top-k must be at least 1, got 0"),
        ("--beam 0", "--beam must be at least 1, got 0"),
        ("--beam 2 --nbest 0", "--nbest must be at least 1, got 0"),
        ("--count -1", "--count must be at least 1, got -1"),
        ("--temperature 0", "--temperature must be at least 0.001, got 0.0; use --greedy for the most probable text"),
        ("--temperature nan", "--temperature must be at least 0.001, got nan; use --greedy for the most probable text"),
        ("--top-p 1.5", "--top-p must be above 0 and at most 1, got 1.5"),
        ("--top-p 0", "--top-p must be above 0 and at most 1, got 0.0"),
        ("--seed -1", "--seed must be at least 0, got -1"),
        ("--greedy --temperature 0.5", "--greedy cannot be combined with --temperature: it does not sample"),
        ("--greedy --top-k 5 --seed 1", "--greedy cannot be combined with --top-k, --seed: it does not sample"),
        ("--beam 3 --top-p 0.5", "--beam cannot be combined with --top-p: it does not sample"),
        ("--beam 3 --greedy", "--greedy cannot be combined with --beam; --beam 1 is greedy"),
        ("--beam 3 --count 2", "--beam cannot be combined with --count: all texts would be the same"),
        ("--greedy --count 2", "--greedy cannot be combined with --count: all texts would be the same"),
        ("--nbest 3", "--nbest requires --beam; use --count to sample several texts"),
        ("--beam 2 --nbest 3", "--nbest must be at most --beam (2), got 3"),
        ("--device meta", '--device: unknown "meta"; choose from auto, cpu, cuda, cuda:1'),
        ("--max-tokns 3", "generate: unknown option --max-tokns; did you mean --max-tokens?"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(arguments, line, parrot, capsys):
    assert main(["generate", "runs/parrot", *arguments.split()]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")
