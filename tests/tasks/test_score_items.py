"""Scores item by item add up to what `regard evaluate` reports."""

import json
from typing import Any

import numpy as np
import pytest

from regard.api import load
from regard.cli import main
from regard.errors import RegardError
from regard.tasks import TASKS
from regard.tasks.text.evaluation import evaluate_text_file
from regard.tasks.text.score_items import cut_line
from tests.tasks.number import NumberTask


def evaluate(run, *options, capsys) -> dict[str, Any]:
    assert main(["evaluate", str(run), *map(str, options), "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def score(run, test=None):
    predictor = load(run)
    return predictor.task.score_items(predictor, None if test is None else str(test))


def test_pairs_of_a_built_in_corpus_are_new_examples(reverse_run, capsys):
    scores = score(reverse_run)
    report = evaluate(reverse_run, capsys=capsys)
    assert scores.items.metric == "exact_match"
    assert scores.items.value == report["text"]["exact_match"]["value"]
    assert scores.scores == {"alignment_error_rate": report["alignment"]["error_rate"]}
    assert scores.part == f"{len(scores.items)} new examples of the built-in corpus reverse"
    assert scores.items.lengths.tolist() == [len(text.split()) for text in scores.inputs]


def test_a_file_of_pairs_is_scored_by_bleu_and_knows_unknown_words(reverse_run, tmp_path, capsys):
    file = tmp_path / "test.tsv"
    file.write_text("a b c d\td c b a\na b z\tz b a\n")
    scores = score(reverse_run, file)
    assert scores.items.metric == "exact_match"  # what the run was validated with
    assert scores.items.value == evaluate(reverse_run, file, capsys=capsys)["text"]["exact_match"]["value"]
    assert scores.items.unknown.tolist() == [False, True]
    assert scores.output_tokens == sum(len(text.split()) for text in scores.outputs)


def test_the_validation_part_of_a_file_is_that_of_the_training(subword_run):
    scores = score(subword_run)
    assert scores.part == "the 1 validation pairs"
    assert len(scores.items) == 1


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_blocks_of_text_add_up_to_the_perplexity(name, request, tmp_path):
    run = request.getfixturevalue(name)
    file = tmp_path / "test.txt"
    file.write_text("the cat sees a bird\nthe dog sleeps\n" * 40)
    scores = score(run, file)
    expected = evaluate_text_file(load(run), file)
    assert scores.items.value == pytest.approx(expected.scores[1].value, rel=1e-6)
    nats, tokens, _ = scores.items.counts.sum(0)
    assert nats / tokens == pytest.approx(expected.scores[0].value, rel=1e-6)
    assert len(scores.items) > 1
    assert scores.inputs == ["the cat sees a bird", "the dog sleeps"] * 40
    loss = {band: scores.curve.counts[scores.curve.lengths == band].sum(0) for band in set(scores.curve.lengths)}
    by_distance = [nats / count for _, (nats, count) in sorted(loss.items())]
    assert by_distance == pytest.approx([distance.value for distance in expected.distances], rel=1e-6)


def test_the_validation_part_of_a_text_is_that_of_the_training(gpt_run):
    scores = score(gpt_run)
    card = json.loads((gpt_run / "run.json").read_text())
    assert scores.items.counts[:, 1].sum() == card["data"]["validation"]
    assert scores.part == "the validation part of the text"
    assert 0 < len(scores.inputs) <= scores.items.counts[:, 1].sum()


@pytest.mark.parametrize(
    ("line", "beginning"),
    [
        ("  a  cat\n", "a cat"),
        (f"{'four ' * 7}fifteen-letters", "four four four four four four four"),
        ("長" * 50, "長" * 40),
    ],
)
def test_a_line_is_cut_at_the_end_of_a_word(line, beginning):
    assert cut_line(line) == beginning


@pytest.mark.parametrize(
    ("name", "key"), [("one", "accuracy"), ("several", "micro_f1"), ("context", "accuracy"), ("crf", "micro_f1")]
)
def test_labels_and_spans_add_up_to_the_report(name, key, label_runs, capsys):
    run = label_runs[name]
    file = run.parent / {"one": "one.tsv", "several": "several.tsv", "context": "context.tsv", "crf": "names.bio"}[name]
    scores = score(run, file)
    assert scores.items.metric == key
    assert find_value(evaluate(run, "--data", file, capsys=capsys), scores.items.value)


@pytest.mark.parametrize(("name", "corpus"), [("one", "acts"), ("crf", "entities")])
def test_the_test_data_may_be_a_built_in_corpus(name, corpus, label_runs):
    scores = score(label_runs[name], corpus)
    assert scores.part == f"1,000 new examples of the built-in corpus {corpus}"
    assert len(scores.items) == 1000


def test_plain_tags_are_scored_word_by_word(label_runs, capsys):
    run = label_runs["plain"]
    scores = score(run, run.parent / "words.bio")
    assert find_value(evaluate(run, "--data", run.parent / "words.bio", capsys=capsys), scores.items.value)


@pytest.mark.parametrize("name", ["one", "crf"])
def test_the_validation_part_of_labels_is_that_of_the_training(name, label_runs):
    scores = score(label_runs[name])
    card = json.loads((label_runs[name] / "run.json").read_text())
    assert len(scores.items) == card["data"]["validation"]
    assert scores.items.lengths.tolist() == [len(text.split()) for text in scores.inputs]


def test_a_task_may_have_no_scores_of_items():
    assert "score_items" not in vars(NumberTask)
    with pytest.raises(RegardError, match="compare is not available for the task number"):
        NumberTask().score_items(None, None)
    assert all("score_items" in vars(type(task)) for task in TASKS.values())


def find_value(report: object, value: float) -> bool:
    """Whether a number occurs anywhere in a report."""
    if isinstance(report, dict):
        return any(find_value(part, value) for part in report.values())
    if isinstance(report, list):
        return any(find_value(part, value) for part in report)
    return isinstance(report, float) and bool(np.isclose(report, value, atol=1e-12))
