import json

import numpy as np
import pytest

from regard.errors import RegardError
from regard.metrics import METRICS, compare_found, paired_bootstrap
from regard.metrics.significance import COUNTED

random = np.random.default_rng(0)
REFERENCES = [" ".join(random.choice(list("abcdefgh"), random.integers(3, 12))) for _ in range(60)]


def spoilt(share, seed):
    """The right answers, of which a share has a wrong word."""
    wrong = np.random.default_rng(seed).random(len(REFERENCES)) < share
    return [f"x {text[2:]}" if bad else text for text, bad in zip(REFERENCES, wrong, strict=True)]


@pytest.mark.parametrize("metric", COUNTED)
def test_counts_give_the_score_itself(metric):
    predictions = spoilt(0.5, seed=1)
    count, score = COUNTED[metric]
    assert score(count(predictions, REFERENCES).sum(axis=0)) == pytest.approx(
        METRICS[metric](predictions, REFERENCES).value
    )


@pytest.mark.parametrize("metric", COUNTED)
def test_a_clear_difference_is_sure_and_none_is_not(metric):
    good, bad = spoilt(0.1, seed=1), spoilt(0.8, seed=2)
    found = paired_bootstrap(bad, good, REFERENCES, metric, samples=200)
    assert found.p_value == pytest.approx(1 / 201)
    assert found.low < found.difference < found.high
    better = -1 if metric.endswith("error_rate") else 1
    assert found.low * better > 0
    assert found.high * better > 0
    same = paired_bootstrap(good, good, REFERENCES, metric, samples=50)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_chance_is_found_significant_as_often_as_it_should():
    values = [
        paired_bootstrap(spoilt(0.5, 2 * i + 1), spoilt(0.5, 2 * i), REFERENCES, "exact_match", samples=100).p_value
        for i in range(100)
    ]
    assert 0 <= sum(value < 0.05 for value in values) <= 12  # 5 are expected


def test_the_interval_is_that_of_theory():
    wins = ["a"] * 80 + ["b"] * 20
    found = paired_bootstrap(["b"] * 100, wins, ["a"] * 100, "exact_match", samples=4000)
    width = 1.96 * (0.8 * 0.2 / 100) ** 0.5  # of a share of 0.8 among 100
    assert (found.low, found.high) == (pytest.approx(0.8 - width, abs=0.02), pytest.approx(0.8 + width, abs=0.02))


def test_a_comparison_prints_its_conditions_and_repeats():
    found = paired_bootstrap(["a", "b"], ["a", "c"], ["a", "c"], "exact_match", samples=10, seed=3)
    assert found == paired_bootstrap(["a", "b"], ["a", "c"], ["a", "c"], "exact_match", samples=10, seed=3)
    assert str(found) == (
        f"exact match 0.5000 and 1.0000: +0.5000 (95 %: {found.low:+.4f} to {found.high:+.4f}|p {found.p_value:.4f}|"
        "paired bootstrap, 10 samples|nrefs:1|case:mixed|sentences:2)"
    )
    assert json.loads(json.dumps(found.to_json()))["second"]["value"] == 1


def test_what_is_refused():
    with pytest.raises(RegardError, match=r"^paired_bootstrap: 0 samples are too few; 1 is the least$"):
        paired_bootstrap(["a"], ["a"], ["a"], samples=0)
    with pytest.raises(RegardError, match=r'^paired_bootstrap: metric: there is no "chrf"; there are: bleu, '):
        paired_bootstrap(["a"], ["a"], ["a"], "chrf")
    with pytest.raises(RegardError, match=r"^exact match: 2 predictions, 1 references; reference n must answer pred"):
        paired_bootstrap(["a"], ["a", "b"], ["a"], "exact_match")


def test_what_is_found_is_compared_by_micro_f1():
    gold = [{"a", "b"}, {"c"}, {"a"}, set()]
    first, second = [{"a"}, {"c"}, {"b"}, set()], [{"a", "b"}, {"c"}, {"a"}, {"d"}]
    found = compare_found(first, second, gold, samples=200)
    assert found.first.value == 2 * 2 / (3 + 4)  # two right of three found and four there are
    assert found.second.value == 2 * 4 / (5 + 4)
    assert found.first.name == "micro F1"
    assert found.samples == 200
    assert found.low <= found.difference <= found.high
    same = compare_found(second, second, gold, samples=50)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_a_system_that_finds_far_more_is_surely_better():
    gold = [{number % 3} for number in range(300)]
    poor = [{number % 3 if number % 2 else 9} for number in range(300)]
    found = compare_found(poor, gold, gold, samples=1000)
    assert found.difference == pytest.approx(0.5)
    assert found.p_value == 1 / 1001
    # each text is right with probability 1/2, so the difference varies by sqrt(0.25 / 300)
    assert found.high - found.low == pytest.approx(2 * 1.96 * (0.25 / 300) ** 0.5, rel=0.15)


def test_what_is_found_must_be_for_the_same_texts():
    with pytest.raises(RegardError, match=r"^compare_found: 1 and 2 predictions, 2 gold; as many are needed$"):
        compare_found([{1}], [{1}, {2}], [{1}, {2}])
