import json

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from regard.errors import RegardError
from regard.metrics import METRICS, compare_f1, paired_bootstrap
from regard.metrics.significance import BOOTSTRAP_METRICS, SEED, Conditions, resample_counts, score_samples

random = np.random.default_rng(0)
REFERENCES = [" ".join(random.choice(list("abcdefgh"), random.integers(3, 12))) for _ in range(60)]


def spoilt(share, seed):
    """The right answers, of which a share has a wrong word."""
    wrong = np.random.default_rng(seed).random(len(REFERENCES)) < share
    return [f"x {text[2:]}" if bad else text for text, bad in zip(REFERENCES, wrong, strict=True)]


def test_every_metric_can_be_compared():
    assert list(BOOTSTRAP_METRICS) == list(METRICS)


@pytest.mark.parametrize("metric", BOOTSTRAP_METRICS)
def test_counts_give_the_score_itself(metric):
    predictions = [text.upper() if index % 3 else text for index, text in enumerate(spoilt(0.5, seed=1))]
    several = [[text, "a b"] if index % 2 else text for index, text in enumerate(REFERENCES)]
    for lowercase in (False, True):
        counts, score = BOOTSTRAP_METRICS[metric](predictions, several, Conditions(lowercase=lowercase))
        assert score(counts.sum(axis=0)) == pytest.approx(
            METRICS[metric](predictions, several, lowercase=lowercase).value
        )


def test_the_tokenizer_of_bleu_is_heard():
    counts, score = BOOTSTRAP_METRICS["bleu"](["abcd ef"], ["abcd xf"], Conditions(tokenize="char"))
    assert score(counts.sum(axis=0)) == pytest.approx(METRICS["bleu"](["abcd ef"], ["abcd xf"], tokenize="char").value)
    assert paired_bootstrap(["ab cd"], ["AB CD"], ["ab cd"], "bleu", tokenize="char").first.value > 0


@pytest.mark.parametrize(("metric", "judge"), [("bleu", BLEU), ("chrf", CHRF)])
def test_the_samples_are_those_of_sacrebleu(metric, judge, monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    first, second = spoilt(0.4, seed=1), spoilt(0.3, seed=2)
    test = PairedTest(
        [("Baseline: first", first), ("second", second)], {metric: judge()}, [REFERENCES], test_type="bs", n_samples=300
    )
    (_, results) = test()
    _, theirs = next(iter(item for item in results.items() if item[0] != "System"))
    (before, score), (after, _) = (
        BOOTSTRAP_METRICS[metric](texts, REFERENCES, Conditions()) for texts in (first, second)
    )
    before_scores, after_scores = (score_samples(counts, score, samples=300, seed=SEED) for counts in (before, after))
    size = np.abs(after_scores - before_scores)
    real = abs(METRICS[metric](second, REFERENCES).value - METRICS[metric](first, REFERENCES).value)
    assert (np.sum(size - size.mean() > real) + 1) / 301 == theirs[1].p_value
    scores = np.sort(after_scores)
    assert scores.mean() == pytest.approx(theirs[1].mean, abs=1e-3)
    assert (scores[300 - 300 // 40 - 1] - scores[300 // 40]) / 2 == pytest.approx(theirs[1].ci, abs=1e-3)


def test_a_bootstrap_sample_has_as_many_sentences_as_there_are():
    sample = resample_counts(np.random.default_rng(0), 7)
    assert (len(sample), sample.sum()) == (7, 7)
    assert sample.max() > 1


def test_a_p_value_by_hand():
    first, second, gold = ["x", "x", "c", "x"], ["a", "b", "x", "d"], ["a", "b", "c", "d"]
    wins = np.array([1, 1, -1, 1])  # the second is right, or the first
    draws = np.random.default_rng(7).choice(4, size=(50, 4), replace=True)
    differences = np.array([wins[draw].sum() / 4 for draw in draws])
    comparison = paired_bootstrap(first, second, gold, "exact_match", samples=50, seed=7)
    extreme = np.abs(differences - differences.mean()) >= 0.5
    assert 0 < extreme.sum() < 50
    assert comparison.p_value == (extreme.sum() + 1) / 51
    assert [comparison.low, comparison.high] == pytest.approx(np.quantile(differences, [0.025, 0.975]).tolist())


@pytest.mark.parametrize(("metric", "better"), [("exact_match", "new"), ("character_error_rate", "new")])
def test_a_verdict_names_the_better_one(metric, better):
    good, bad = spoilt(0.1, seed=1), spoilt(0.8, seed=2)
    comparison = paired_bootstrap(bad, good, REFERENCES, metric, samples=200)
    assert comparison.describe_verdict("old", "new") == f"{better} is significantly better than old (p 0.0050)"
    turned = paired_bootstrap(good, bad, REFERENCES, metric, samples=200)
    assert turned.describe_verdict("new", "old") == f"{better} is significantly better than old (p 0.0050)"
    same = paired_bootstrap(good, good, REFERENCES, metric, samples=50)
    assert same.describe_verdict("old", "new") == "no significant difference between old and new (p 1.0000)"


@pytest.mark.parametrize("metric", BOOTSTRAP_METRICS)
def test_a_clear_difference_is_sure_and_none_is_not(metric):
    good, bad = spoilt(0.1, seed=1), spoilt(0.8, seed=2)
    comparison = paired_bootstrap(bad, good, REFERENCES, metric, samples=200)
    assert comparison.p_value == pytest.approx(1 / 201)
    assert comparison.low < comparison.difference < comparison.high
    better = -1 if metric.endswith("error_rate") else 1
    assert comparison.low * better > 0
    assert comparison.high * better > 0
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
    comparison = paired_bootstrap(["b"] * 100, wins, ["a"] * 100, "exact_match", samples=4000)
    width = 1.96 * (0.8 * 0.2 / 100) ** 0.5  # of a share of 0.8 among 100
    assert (comparison.low, comparison.high) == (
        pytest.approx(0.8 - width, abs=0.02),
        pytest.approx(0.8 + width, abs=0.02),
    )


def test_a_comparison_prints_its_conditions_and_repeats():
    comparison = paired_bootstrap(["a", "b"], ["a", "c"], ["a", "c"], "exact_match", samples=10, seed=3)
    assert comparison == paired_bootstrap(["a", "b"], ["a", "c"], ["a", "c"], "exact_match", samples=10, seed=3)
    assert str(comparison) == (
        f"exact match 0.5000 and 1.0000: +0.5000 (95 %: {comparison.low:+.4f} to {comparison.high:+.4f}|"
        f"p {comparison.p_value:.4f}|paired bootstrap, 10 samples|nrefs:1|case:mixed|sentences:2)"
    )
    assert json.loads(json.dumps(comparison.to_json()))["second"]["value"] == 1


def test_what_is_refused():
    with pytest.raises(RegardError, match=r"^paired_bootstrap: samples must be at least 1, got 0$"):
        paired_bootstrap(["a"], ["a"], ["a"], samples=0)
    with pytest.raises(RegardError, match=r'^paired_bootstrap: unknown metric "loss"; choose from bleu, '):
        paired_bootstrap(["a"], ["a"], ["a"], "loss")
    with pytest.raises(
        RegardError, match=r"^exact match: expected one reference per prediction, got 2 predictions and 1 ref"
    ):
        paired_bootstrap(["a"], ["a", "b"], ["a"], "exact_match")


def test_what_is_found_is_compared_by_micro_f1():
    gold = [{"a", "b"}, {"c"}, {"a"}, set()]
    first, second = [{"a"}, {"c"}, {"b"}, set()], [{"a", "b"}, {"c"}, {"a"}, {"d"}]
    comparison = compare_f1(first, second, gold, samples=200)
    assert comparison.first.value == 2 * 2 / (3 + 4)  # two right of three found and four there are
    assert comparison.second.value == 2 * 4 / (5 + 4)
    assert comparison.first.name == "micro F1"
    assert comparison.samples == 200
    assert comparison.low <= comparison.difference <= comparison.high
    same = compare_f1(second, second, gold, samples=50)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_a_system_that_finds_far_more_is_surely_better():
    gold = [{number % 3} for number in range(300)]
    poor = [{number % 3 if number % 2 else 9} for number in range(300)]
    comparison = compare_f1(poor, gold, gold, samples=1000)
    assert comparison.difference == pytest.approx(0.5)
    assert comparison.p_value == 1 / 1001
    # each text is right with probability 1/2, so the difference varies by sqrt(0.25 / 300)
    assert comparison.high - comparison.low == pytest.approx(2 * 1.96 * (0.25 / 300) ** 0.5, rel=0.15)


def test_what_is_found_must_be_for_the_same_texts():
    line = "compare_f1: expected as many predictions as gold answers, got 1 and 2 predictions and 2 gold"
    with pytest.raises(RegardError, match=f"^{line}$"):
        compare_f1([{1}], [{1}, {2}], [{1}, {2}])
