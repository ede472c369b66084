import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.metrics.spans import span_report

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC"))]


def conlleval_spans(tags):
    """The reading of conlleval and seqeval, as the table of pairs of tags that these programs hold."""
    ends = {"BB", "BS", "BO", "IB", "IS", "IO"} | {f"{last}{next_}" for last in "ES" for next_ in "BIESO"}
    starts = {f"{last}{next_}" for last in "BIESO" for next_ in "BS"} | {"EE", "EI", "SE", "SI", "OE", "OI"}
    spans, begin, last, last_type = set(), None, "O", None
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        changed = kind != last_type
        if last != "O" and (last + prefix in ends or changed):
            spans.add((last_type, begin, index - 1))
        if prefix != "O" and (last + prefix in starts or changed):
            begin = index
        last, last_type = prefix, kind
    return spans


def whole_spans(tags, endings):
    """Every stretch of words that reads as one span from its first to its last tag, found by trying them all."""
    spans = set()
    for first in range(len(tags)):
        for last in range(first, len(tags)):
            kinds = {tag[2:] for tag in tags[first : last + 1]}
            prefixes = "".join(tag[0] for tag in tags[first : last + 1])
            after = tags[last + 1] if last + 1 < len(tags) else "O"
            if len(kinds) > 1 or "O" in prefixes:
                continue
            if endings:
                whole = prefixes == "S" or (prefixes[0] + prefixes[-1] == "BE" and set(prefixes[1:-1]) <= {"I"})
            else:
                whole = prefixes == "B" + "I" * (last - first) and after != f"I-{tags[first][2:]}"
            if whole and (not endings or prefixes == "S" or last > first):
                spans.add((tags[first][2:], first, last))
    return spans


def numbers(predicted, reference):
    """Precision, recall and F1 of two sets, from their definitions."""
    precision = len(predicted & reference) / len(predicted) if predicted else 0
    recall = len(predicted & reference) / len(reference) if reference else 0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0


def expected(predictions, gold, read):
    """The numbers of all spans, the mean over types, and those by type."""
    predicted = {(index, *span) for index, tags in enumerate(predictions) for span in read(tags)}
    reference = {(index, *span) for index, tags in enumerate(gold) for span in read(tags)}
    kinds = sorted({span[1] for span in predicted | reference})
    by_type = {
        kind: numbers({span for span in predicted if span[1] == kind}, {span for span in reference if span[1] == kind})
        for kind in kinds
    }
    columns = zip(*by_type.values(), strict=True)
    means = tuple(sum(column) / len(kinds) for column in columns) if kinds else (0, 0, 0)
    return numbers(predicted, reference), means, by_type


def assert_equal(report, expected):
    together, means, by_type = expected
    scores = [report.precision, report.recall, report.f1, report.macro_precision, report.macro_recall, report.macro_f1]
    assert [score.value for score in scores] == pytest.approx([*together, *means])
    assert list(report.by_type) == list(by_type)
    for kind, counts in report.by_type.items():
        assert (counts.precision, counts.recall, counts.f1) == pytest.approx(by_type[kind])


def pairs_of(tags):
    """Sentences of predicted and gold tags of the same lengths, consistent or not."""
    pair = st.tuples(st.sampled_from(tags), st.sampled_from(tags))
    return st.lists(st.lists(pair, max_size=8), min_size=1, max_size=4)


def both(pairs):
    return [[predicted for predicted, _ in each] for each in pairs], [
        [reference for _, reference in each] for each in pairs
    ]


@given(pairs_of(TAGS))
def test_by_default_as_conlleval(pairs):
    predictions, gold = both(pairs)
    assert_equal(span_report(predictions, gold), expected(predictions, gold, conlleval_spans))


@given(pairs_of([tag for tag in TAGS if tag[0] in "BIO"]))
def test_strictly_bio(pairs):
    predictions, gold = both(pairs)
    wanted = expected(predictions, gold, lambda tags: whole_spans(tags, endings=False))
    assert_equal(span_report(predictions, gold, strict="BIO"), wanted)


@given(pairs_of(TAGS))
def test_strictly_bioes_and_bilou(pairs):
    predictions, gold = both(pairs)
    wanted = expected(predictions, gold, lambda tags: whole_spans(tags, endings=True))
    assert_equal(span_report(predictions, gold, strict="BIOES"), wanted)
    names = {"E": "L", "S": "U"}
    renamed = [[[names.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in each] for each in (predictions, gold)]
    assert_equal(span_report(*renamed, strict="BILOU"), wanted)


def test_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["B-LOC", "I-LOC", "O"]]
    # one of three predicted, of four gold, is right: PER; the others are all wrong
    report = span_report(predicted, gold)
    assert [str(score) for score in report.scores] == [
        "F1 0.2857 (mode:default|right:1|predicted:3|gold:4|sentences:2)",
        "precision 0.3333 (mode:default|right:1|predicted:3|gold:4|sentences:2)",
        "recall 0.2500 (mode:default|right:1|predicted:3|gold:4|sentences:2)",
        "macro F1 0.3333 (mode:default|types:3|sentences:2)",
        "macro precision 0.3333 (mode:default|types:3|sentences:2)",
        "macro recall 0.3333 (mode:default|types:3|sentences:2)",
    ]
    assert list(report.lines())[6:] == [
        "LOC: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:1|gold:2)",
        "ORG: precision 0.0000, recall 0.0000, F1 0.0000 (right:0|predicted:1|gold:1)",
        "PER: precision 1.0000, recall 1.0000, F1 1.0000 (right:1|predicted:1|gold:1)",
    ]
    record = json.loads(json.dumps(report.to_json()))
    assert record["f1"] == {"name": "F1", "value": 2 / 7, "signature": report.f1.signature}
    assert record["macro_recall"]["name"] == "macro recall"
    assert record["by_type"]["PER"] == {
        "precision": 1.0, "recall": 1.0, "f1": 1.0, "right": 1, "predicted": 1, "gold": 1
    }  # fmt: skip


def test_the_mode_is_in_the_signature():
    report = span_report([["I-X", "B-X"]], [["B-X", "B-X"]], strict="BIO")
    assert str(report.f1) == "F1 0.6667 (mode:strict|scheme:BIO|right:1|predicted:1|gold:2|sentences:1)"


def test_nothing_to_find():
    report = span_report([["O"], []], [["O"], []])
    assert [score.value for score in report.scores] == [0] * 6
    assert report.by_type == {}


@pytest.mark.parametrize(
    ("predicted", "gold", "message"),
    [
        ([["O"]], [], "span_report: expected one gold answer per prediction, got 1 predictions and 0 gold"),
        ([], [], "span_report: expected at least one prediction, got none"),
        (
            [["O"], ["O"]],
            [["O"], ["O", "O"]],
            "span_report: sentence 2: expected 2 predicted tags, as in gold, got 1",
        ),
    ],
)
def test_what_does_not_belong_together(predicted, gold, message):
    with pytest.raises(RegardError) as caught:
        span_report(predicted, gold)
    assert str(caught.value) == message
