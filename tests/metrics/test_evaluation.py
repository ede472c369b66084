import json

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.errors import RegardError
from regard.metrics import evaluate_text

SOURCES = ["katzen mögen hunde nicht", "ja"]
PREDICTIONS = ["cats do not like Dogs", "yes"]
REFERENCES = ["cats do not like dogs", "yes"]


def test_a_report_says_everything():
    report = evaluate_text(SOURCES, PREDICTIONS, REFERENCES, edges=(2,))
    bleu, chrf = BLEU(tokenize="13a"), CHRF()
    whole, character = bleu.corpus_score(PREDICTIONS, [REFERENCES]), chrf.corpus_score(PREDICTIONS, [REFERENCES])
    long = bleu.corpus_score(PREDICTIONS[:1], [REFERENCES[:1]])
    signature = bleu.get_signature()
    assert list(report.lines()) == [
        f"BLEU {whole.score:.2f} ({signature})",
        f"chrF {character.score:.2f} ({chrf.get_signature()})",
        "exact match 0.5000 (nrefs:1|case:mixed|sentences:2)",
        "word error rate (edits per word) 0.1667 (nrefs:1|case:mixed|sentences:2)",  # 1 of 6
        "character error rate 0.0417 (nrefs:1|case:mixed|sentences:2)",  # 1 of 24
        f"BLEU, sources of 0-2 words, 1 in total: 0.00 ({signature})",  # one word has no four in a row
        f"BLEU, sources of 3+ words, 1 in total: {long.score:.2f} ({signature})",
    ]


def test_where_targets_are_one_word_nothing_is_said_of_bleu():
    signature = "(nrefs:1|case:mixed|sentences:2)"
    report = evaluate_text(["drei", "sieben"], ["3", "6"], ["3", "7"], edges=(4,))
    lines = list(report.lines())
    assert lines[0] == f"exact match 0.5000 {signature}"
    assert lines[5] == "BLEU: not meaningful, because no target has four words"
    one = "(nrefs:1|case:mixed|sentences:1)"
    assert lines[-2:] == [
        f"exact match, sources of 0-4 characters, 1 in total: 1.0000 {one}",
        f"exact match, sources of 5+ characters, 1 in total: 0.0000 {one}",
    ]
    assert (report.unit, report.against_length) == ("character", "exact_match")
    bleu = report.to_json()["bleu"]
    assert (bleu["name"], bleu["value"]) == ("BLEU", None)
    four = evaluate_text(["eins zwei"], ["1"], [["1", "1 2 3 4"]])
    assert (four.unit, four.against_length) == ("word", "bleu")


def test_single_words_have_the_error_rates_of_words_and_of_phones():
    report = evaluate_text(["eau", "os", "oser"], ["o", "o s", "o z e"], ["o", "o s", "o s e"])
    assert [score.name for score in report.scores] == [
        "exact match", "word error rate (1 - exact match)", "token error rate (edits per token, such as a phone)",
        "character error rate", "chrF", "BLEU",
    ]  # fmt: skip
    record = report.to_json()
    assert record["whole_word_error_rate"]["value"] == pytest.approx(1 / 3)
    assert record["token_error_rate"]["value"] == 1 / 6
    assert "word_error_rate" not in record  # it would be mistaken for one of these two
    by_length = evaluate_text(["eau"], ["o"], ["o"], against_length="token_error_rate").by_length
    assert [row.score.name for row in by_length] == ["token error rate (edits per token, such as a phone)"]


def test_what_is_given_by_length_comes_first():
    report = evaluate_text(SOURCES, PREDICTIONS, REFERENCES, against_length="chrf")
    assert [score.name for score in report.scores] == [
        "chrF", "BLEU", "exact match", "word error rate (edits per word)", "character error rate",
    ]  # fmt: skip


def test_a_report_as_json():
    report = evaluate_text(SOURCES, PREDICTIONS, REFERENCES, lowercase=True, against_length="exact_match")
    record = json.loads(json.dumps(report.to_json()))
    names = [name for name in record if name != "by_length"]
    values = {name: record[name]["value"] for name in names}
    assert values == {
        "bleu": pytest.approx(100), "chrf": 100, "exact_match": 1, "word_error_rate": 0, "character_error_rate": 0
    }  # fmt: skip
    assert all("case:lc" in record[name]["signature"] for name in names)
    [row] = record["by_length"]["rows"]
    assert (record["by_length"]["unit"], row["least"], row["most"], row["sentences"]) == ("word", 0, 10, 2)
    assert row["score"]["name"] == "exact match"


def test_options_reach_bleu_and_the_lengths():
    report = evaluate_text(SOURCES, PREDICTIONS, REFERENCES, tokenize="char", unit="character", edges=(2, 10))
    assert "tok:char" in report.bleu.signature
    assert [row.lengths for row in report.by_length] == ["0-2", "11+"]
    assert all("tok:char" in row.score.signature for row in report.by_length)


def test_what_is_refused():
    with pytest.raises(RegardError, match=r'^evaluate_text: unknown against_length "blue"; did you mean "bleu"\?$'):
        evaluate_text(["a"], ["a"], ["a"], against_length="blue")
    with pytest.raises(RegardError, match=r"^by_length: expected at least one prediction, got none$"):
        evaluate_text([], [], [])
