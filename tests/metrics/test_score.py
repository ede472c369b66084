import pytest

from regard.errors import RegardError
from regard.metrics import METRICS, MetricScore
from regard.metrics.score import collect_references


def test_a_score_prints_its_conditions():
    assert str(MetricScore("BLEU", 31.4159, "nrefs:1|tok:13a", decimals=2)) == "BLEU 31.42 (nrefs:1|tok:13a)"
    assert MetricScore("x", 0.25, "y").to_json() == {"name": "x", "value": 0.25, "signature": "y"}


def test_one_right_answer_or_several():
    assert collect_references("x", ["a", "b"], ["c", ["d", "e"]]) == [("c",), ("d", "e")]


@pytest.mark.parametrize(
    ("name", "called"),
    {
        "bleu": "BLEU",
        "chrf": "chrF",
        "exact_match": "exact match",
        "word_error_rate": "word error rate",
        "whole_word_error_rate": "exact match",
        "token_error_rate": "word error rate",
        "character_error_rate": "character error rate",
    }.items(),
)
def test_every_metric_refuses_what_does_not_belong_together(name, called):
    metric = METRICS[name]
    with pytest.raises(
        RegardError, match=f"^{called}: expected one reference per prediction, got 1 predictions and 2 references$"
    ):
        metric(["a"], ["a", "b"])
    with pytest.raises(RegardError, match=f"^{called}: expected at least one prediction, got none$"):
        metric([], [])
    with pytest.raises(RegardError, match=f"^{called}: reference 2 is an empty list$"):
        metric(["a", "b"], ["a", []])
