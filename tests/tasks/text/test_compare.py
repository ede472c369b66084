"""Two language models on one text, against sums over its lines that are made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.batch import BOS, EOS
from regard.errors import RegardError
from regard.metrics.significance import SEED
from regard.tasks.text.compare import compare_scored_files, find_lines, iter_part_lengths
from regard.tasks.text.evaluation import score_text_file
from regard.text.learn import learn_lm_tokenizer

from .test_evaluation import predictor

TEXT = "the cat sees the dog\na bird\n\nthe dog sleeps\ncats\na bird sings all day\n"
CHARACTERS, WORDS = (learn_lm_tokenizer(kind, [TEXT * 3]) for kind in ("characters", "words"))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def compute_line_nats(model, text: str) -> list[float]:
    """-log p of each line with its end, and of the end of the text."""
    ids = torch.tensor([[BOS, *CHARACTERS.encode(text), EOS]])
    with torch.no_grad():
        logits = model.model(ids[:, :-1])[0]
    nats = -logits[0].double().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    lengths = [len(line) for line in text.splitlines(keepends=True)]
    return [part.sum().item() for part in nats.split([*lengths, 1])]


def bootstrap(first: list[float], second: list[float], lengths: list[int], samples: int = 1000) -> np.ndarray:
    """Draw the differences of the rates, one sample at a time."""
    rows = np.array([first, second, lengths])
    draws = np.random.default_rng(SEED).choice(len(lengths), size=(samples, len(lengths)), replace=True)
    sums = np.array([rows[:, draw].sum(1) for draw in draws])
    return (sums[:, 1] - sums[:, 0]) / sums[:, 2]


def test_models_of_the_same_tokens_are_compared_by_loss(path):
    first, second = predictor("gru-lm", "file", CHARACTERS), predictor("lstm-lm", "file", CHARACTERS)
    comparison = compare_scored_files(
        (first, score_text_file(first, path)), (second, score_text_file(second, path)), path, "file"
    )
    nats = [compute_line_nats(model, TEXT) for model in (first, second)]
    tokens = [*(len(line) + 1 for line in TEXT.splitlines()), 1]  # the last is the end of the text
    assert [len(parts) for parts in nats] == [7, 7]
    differences = bootstrap(*nats, tokens)
    assert comparison.first.name == "loss"
    assert comparison.first.signature.startswith("nats per token|lines:7|")
    assert comparison.first.value == pytest.approx(sum(nats[0]) / sum(tokens), rel=1e-5)
    assert comparison.second.value == pytest.approx(sum(nats[1]) / sum(tokens), rel=1e-5)
    assert [comparison.low, comparison.high] == pytest.approx(np.quantile(differences, [0.025, 0.975]), rel=1e-4)
    extreme = np.abs(differences - differences.mean()) >= abs(comparison.difference)
    assert comparison.p_value == pytest.approx((extreme.sum() + 1) / 1001, abs=2e-3)
    assert comparison.lower_is_better


def test_models_of_different_tokens_are_compared_by_bits_per_character(path):
    first, second = predictor("gru-lm", "file", CHARACTERS), predictor("gru-lm", "file", WORDS)
    scored = score_text_file(first, path), score_text_file(second, path)
    comparison = compare_scored_files((first, scored[0]), (second, scored[1]), path, "file")
    assert comparison.first.name == "bits per character"
    assert comparison.first.signature.startswith("different tokens|lines:7|")
    for score, one in zip((comparison.first, comparison.second), scored, strict=True):
        assert score.value == pytest.approx(one.nats.sum() / math.log(2) / len(TEXT))
        assert score.value == pytest.approx({each.name: each.value for each in one.report.scores}[score.name])
    nats = [np.bincount(find_lines(*each), each[1].nats) for each in ((CHARACTERS, scored[0]), (WORDS, scored[1]))]
    differences = bootstrap(*nats, [*(len(line) + 1 for line in TEXT.splitlines()), 0]) / math.log(2)
    assert [comparison.low, comparison.high] == pytest.approx(np.quantile(differences, [0.025, 0.975]))


def test_many_documents_are_resampled_themselves(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a bird\nthe cat\n" * 15)
    first, second = predictor("gru-lm", "line", CHARACTERS), predictor("lstm-lm", "line", CHARACTERS)
    comparison = compare_scored_files(
        (first, score_text_file(first, path)), (second, score_text_file(second, path)), path, "line"
    )
    assert "|documents:30|" in comparison.first.signature
    same = compare_scored_files(
        (first, score_text_file(first, path)), (first, score_text_file(first, path)), path, "line"
    )
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_lengths_of_lines_and_documents(path):
    assert list(iter_part_lengths(path, "file", by_line=True)) == [21, 7, 1, 15, 5, 21, 0]
    assert list(iter_part_lengths(path, "file")) == [len(TEXT)]
    assert list(iter_part_lengths(path, "line")) == [20, 6, 14, 4, 20]


def test_one_line_cannot_be_resampled(tmp_path):
    path = tmp_path / "line.txt"
    path.write_text("a bird")
    model = predictor("gru-lm", "file", CHARACTERS)
    scored = score_text_file(model, path)
    with pytest.raises(RegardError) as error:
        compare_scored_files((model, scored), (model, replace(scored)), path, "file")
    assert str(error.value) == (
        "--against: expected a text of at least two lines or documents, to resample them, got one"
    )
