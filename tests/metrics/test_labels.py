import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.metrics.labels import best_threshold, label_report, multi_label_report

NAMES = ["a", "b", "c"]


def f1_of(predicted, reference):
    """F1 of two sets, from precision and recall."""
    if not predicted & reference:
        return 0.0
    precision, recall = len(predicted & reference) / len(predicted), len(predicted & reference) / len(reference)
    return 2 * precision * recall / (precision + recall)


# One label


def test_one_label_by_hand():
    report = label_report(list("aaabbc"), list("aabbba"))
    # a: 2 right of 3 predicted and 3 gold; b: 2 of 2 and 3; c: 0 of 1 and 0
    assert [str(score) for score in report.scores] == [
        "accuracy 0.6667 (right:4|texts:6)",
        "micro F1 0.6667 (right:4|predicted:6|gold:6)",
        "macro F1 0.4889 (texts:6|labels:3)",  # (2/3 + 4/5 + 0) / 3
        "weighted F1 0.7333 (texts:6|labels:3)",  # (3 * 2/3 + 3 * 4/5) / 6
    ]
    assert report.confusion == ((2, 0, 1), (1, 2, 0), (0, 0, 0))
    assert list(report.lines())[4:] == [
        "a: precision 0.6667, recall 0.6667, F1 0.6667 (right:2|predicted:3|gold:3)",
        "b: precision 1.0000, recall 0.6667, F1 0.8000 (right:2|predicted:2|gold:3)",
        "c: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:1|gold:0)",
        "c for a: 1 of 3",
        "a for b: 1 of 3",
    ]
    record = json.loads(json.dumps(report.to_json()))
    assert record["accuracy"]["value"] == 4 / 6
    assert record["confusion"] == {"labels": ["a", "b", "c"], "rows": [[2, 0, 1], [1, 2, 0], [0, 0, 0]]}
    assert record["by_label"]["b"]["recall"] == 2 / 3


def test_the_commonest_confusions_come_first():
    gold, predicted = list("aaaaab") + ["c"] * 6, list("bbbcab") + list("dbcbea")
    lines = list(label_report(predicted, gold).lines())
    assert lines[-5:] == ["b for a: 3 of 5", "b for c: 2 of 6", "c for a: 1 of 5", "a for c: 1 of 6", "d for c: 1 of 6"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=20))
def test_one_label_by_definition(pairs):
    predictions, gold = [ours for ours, _ in pairs], [reference for _, reference in pairs]
    report = label_report(predictions, gold)
    kinds = sorted({*predictions, *gold})
    f1 = {
        kind: f1_of(
            {n for n, each in enumerate(predictions) if each == kind},
            {n for n, each in enumerate(gold) if each == kind},
        )
        for kind in kinds
    }
    assert (
        report.accuracy.value
        == report.micro_f1.value
        == pytest.approx(sum(ours == reference for ours, reference in pairs) / len(pairs))
    )
    assert report.macro_f1.value == pytest.approx(sum(f1.values()) / len(kinds))
    assert report.weighted_f1.value == pytest.approx(sum(f1[each] for each in gold) / len(gold))
    for row, expected in enumerate(kinds):
        for column, predicted in enumerate(kinds):
            assert report.confusion[row][column] == pairs.count((predicted, expected))


# Several labels


def test_several_labels_by_hand():
    probabilities = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.3, 0.4], [0.6, 0.1, 0.7]])
    gold = [("a", "b"), ("b",), ("c", "new")]
    report = multi_label_report(probabilities, gold, NAMES, threshold=0.5, best=2)
    # predicted are a b, nothing, a c: three right of four; five gold. Among the two best: a b, c b, c a.
    assert [str(score) for score in report.scores] == [
        "micro F1 0.6667 (threshold:0.5|right:3|predicted:4|gold:5)",
        "precision 0.7500 (threshold:0.5|right:3|predicted:4|gold:5)",
        "recall 0.6000 (threshold:0.5|right:3|predicted:4|gold:5)",
        "macro F1 0.5833 (threshold:0.5|labels:4)",  # a 2/3, b 2/3, c 1, new 0
        "recall@2 0.8333 (best:2|texts:3)",  # (1 + 1 + 1/2) / 3
        "precision@2 0.6667 (best:2|texts:3)",  # (2 + 1 + 1) / 6
    ]
    assert list(report.lines())[6:] == [
        "a: precision 0.5000, recall 1.0000, F1 0.6667 (right:1|predicted:2|gold:1)",
        "b: precision 1.0000, recall 0.5000, F1 0.6667 (right:1|predicted:1|gold:2)",
        "c: precision 1.0000, recall 1.0000, F1 1.0000 (right:1|predicted:1|gold:1)",
        "new: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:0|gold:1)",
    ]
    record = json.loads(json.dumps(report.to_json()))
    assert record["best_recall"] == {"name": "recall@2", "value": 2.5 / 3, "signature": "best:2|texts:3"}
    assert record["by_label"]["new"]["gold"] == 1


def test_texts_without_a_label_have_no_recall():
    report = multi_label_report(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), [("a",), ()], NAMES[:2], threshold=0.5, best=1)
    assert str(report.best_recall) == "recall@1 1.0000 (best:1|texts:1)"
    assert str(report.best_precision) == "precision@1 0.5000 (best:1|texts:2)"


def test_of_equally_probable_labels_the_first_is_best():
    report = multi_label_report(torch.full((1, 3), 0.5), [("a",)], NAMES, threshold=0.6, best=1)
    assert (report.best_precision.value, report.micro_f1.value) == (1, 0)


tables = st.integers(1, 5).flatmap(
    lambda texts: st.tuples(
        st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])] * 3), min_size=texts, max_size=texts),
        st.lists(st.frozensets(st.sampled_from([*NAMES, "new"])), min_size=texts, max_size=texts).filter(any),
        st.floats(0, 1),
        st.integers(1, 3),
    )
)


@given(tables)
def test_several_labels_by_definition(drawn):
    rows, gold, threshold, best = drawn
    report = multi_label_report(torch.tensor(rows).double(), gold, NAMES, threshold=threshold, best=best)
    predicted = {(n, name) for n, row in enumerate(rows) for name, p in zip(NAMES, row, strict=True) if p >= threshold}
    reference = {(n, name) for n, names in enumerate(gold) for name in names}
    assert report.micro_f1.value == pytest.approx(f1_of(predicted, reference))
    kinds = {name for _, name in predicted | reference}
    f1 = [
        f1_of({each for each in predicted if each[1] == kind}, {each for each in reference if each[1] == kind})
        for kind in kinds
    ]
    assert report.macro_f1.value == pytest.approx(sum(f1) / len(f1))
    top = [{name for _, name in sorted(zip([-p for p in row], NAMES, strict=True))[:best]} for row in rows]
    hits = [len(each & names) for each, names in zip(top, gold, strict=True)]
    recalls = [hit_count / len(names) for hit_count, names in zip(hits, gold, strict=True) if names]
    assert report.best_precision.value == pytest.approx(sum(hits) / best / len(rows))
    assert report.best_recall.value == pytest.approx(sum(recalls) / len(recalls))


@given(tables)
def test_the_best_threshold_by_trying_all(drawn):
    rows, gold, _, _ = drawn
    probabilities = torch.tensor(rows)
    tuned = best_threshold(probabilities, gold, NAMES)
    tried = {
        value: multi_label_report(probabilities, gold, NAMES, threshold=value, best=1)
        for value in probabilities.flatten().tolist()
    }
    best = max(report.micro_f1.value for report in tried.values())
    assert tuned.f1.value == pytest.approx(best)
    assert (
        multi_label_report(probabilities, gold, NAMES, threshold=tuned.threshold, best=1).micro_f1.value
        == tuned.f1.value
    )
    highest = max(value for value, report in tried.items() if report.micro_f1.value == best)
    below = max((value for value in tried if value < highest), default=0.0)
    assert tuned.threshold == pytest.approx((highest + below) / 2)


def test_the_best_threshold_by_hand():
    probabilities = torch.tensor([[0.9, 0.5], [0.75, 0.25]])
    threshold, f1 = best_threshold(probabilities, [("a",), ("a",)], ["a", "b"])
    assert (threshold, str(f1)) == (0.625, "micro F1 1.0000 (right:2|predicted:2|gold:2)")
    threshold, f1 = best_threshold(probabilities, [("a", "b"), ("b", "new")], ["a", "b"])
    assert (threshold, str(f1)) == (0.125, "micro F1 0.7500 (right:3|predicted:4|gold:4)")


def test_a_threshold_between_neighboring_numbers():
    upper = torch.tensor(0.5, dtype=torch.float64)
    lower = torch.nextafter(upper, torch.zeros((), dtype=torch.float64))
    assert best_threshold(torch.stack((upper, lower))[None], [("a",)], ["a", "b"]).threshold == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: label_report(["a"], []),
            "label_report: expected one gold answer per prediction, got 1 predictions and 0 gold",
        ),
        (lambda: label_report([], []), "label_report: expected at least one prediction, got none"),
        (
            lambda: multi_label_report(torch.rand(2, 3), [("a",)], NAMES, threshold=0.5),
            "multi_label_report: expected one gold answer per prediction, got 2 predictions and 1 gold",
        ),
        (
            lambda: multi_label_report(torch.rand(1, 3), [("a",)], NAMES, threshold=0.5, best=4),
            "multi_label_report: best must be from 1 to 3, the number of labels, got 4",
        ),
        (
            lambda: best_threshold(torch.rand(1, 3), [()], NAMES),
            "best_threshold: expected at least one text with a label",
        ),
    ],
)
def test_what_cannot_be_scored(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message
