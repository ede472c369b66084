import io
import json
import re
import sys
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.metrics import paired_bootstrap
from regard.tasks.loading import load

ROWS = [("a b c d", "d c b a"), ("d a", "a d"), ("b c a", "b c a"), ("c d", "d c")]  # one of four is wrong


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with pairs, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").write_text("".join(f"{source}\n" for source, _ in ROWS))
    (tmp_path / "t").write_text("".join(f"{target}\n" for _, target in ROWS))
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in ROWS))
    return tmp_path


def output(capsys, *arguments: object) -> str:
    assert main(["evaluate", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def record(capsys, *arguments: object) -> dict[str, Any]:
    return json.loads(output(capsys, *arguments, "--json"))


def test_scores_come_with_their_conditions(here, reverse_run, capsys):
    lines = output(capsys, reverse_run, "--source", "s", "--target", "t").splitlines()
    assert lines[0] == "text"
    assert lines[1] == "  exact match 0.7500 (nrefs:1|case:mixed|sentences:4)"  # what the run was validated by
    assert re.fullmatch(r"  BLEU [\d.]+ \(nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:.*\)", lines[2])
    assert re.fullmatch(r"  chrF [\d.]+ \(nrefs:1\|case:mixed\|eff:yes\|nc:6\|nw:0\|space:no\|version:.*\)", lines[3])
    assert (
        lines[4] == "  word error rate (edits per word) 0.1818 (nrefs:1|case:mixed|sentences:4)"
    )  # a c b for b c a: 2 of 11 words
    assert lines[6] == "  exact match, sources of 0-10 words, 4 in total: 0.7500 (nrefs:1|case:mixed|sentences:4)"
    assert len(lines) == 7


def test_what_comes_first_can_be_chosen(here, reverse_run, capsys):
    lines = output(capsys, reverse_run, "--data", "pairs.tsv", "--against-length", "bleu").splitlines()
    assert lines[1].startswith("  BLEU ")
    assert lines[6].startswith("  BLEU, sources of 0-10 words, 4 in total: ")


def test_bleu_of_short_targets_says_nothing(here, reverse_run, capsys):
    (here / "pairs.tsv").write_text("d a\ta d\n")
    assert (
        "  BLEU: not meaningful, because no target has four words"
        in output(capsys, reverse_run, "--data", "pairs.tsv").splitlines()
    )


def test_unknown_tokens_are_mentioned(here, reverse_run, capsys):
    (here / "pairs.tsv").write_text("a b z\tb a\n")
    assert main(["evaluate", str(reverse_run), "--data", "pairs.tsv"]) == 0
    assert capsys.readouterr().err == "33% of the source tokens are unknown to the model\n"
    output(capsys, reverse_run, "--data", "pairs.tsv", "--quiet")


def test_one_file_two_files_and_stdin_are_the_same(here, reverse_run, monkeypatch, capsys):
    two = output(capsys, reverse_run, "--source", "s", "--target", "t")
    assert output(capsys, reverse_run, "--data", "pairs.tsv", "--quiet") == two
    (here / "pairs").write_text((here / "pairs.tsv").read_text())
    assert output(capsys, reverse_run, "--data", "pairs", "--format", "tsv", "--columns", "1,2") == two
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / "s").read_bytes())))
    assert output(capsys, reverse_run, "--source", "-", "--target", "t") == two


def test_the_corpus_of_the_run_is_the_default_and_its_attention_is_scored(reverse_run, capsys):
    report = record(capsys, reverse_run)
    assert report["text"]["exact_match"]["value"] > 0.7
    assert re.search(r"sentences:(\d+)", report["text"]["exact_match"]["signature"])[1] == "38"  # all there are
    alignment = report["alignment"]
    assert alignment["attention"]["layer"] == alignment["attention"]["head"] == 0
    assert alignment["searched"]
    assert alignment["error_rate"] < 0.3
    ten = record(capsys, reverse_run, "--count", 10, "--seed", 5, "--attention", "0.0", "--shift", 1)
    assert ten["alignment"]["attention"] == {"layer": 0, "head": 0, "shift": 1}
    assert (ten["alignment"]["sentences"], ten["alignment"]["searched"]) == (10, False)


def test_no_example_of_the_corpus_was_trained_on(reverse_run):
    from regard.tasks.pairs.evaluate import EvaluatePairs
    from regard.tasks.pairs.load import load_pair_split

    model = load(reverse_run)
    examples = EvaluatePairs(seed=7).load_examples(model)
    trained = {example.source for example in load_pair_split(model.recipe.data, 0).train}
    assert len(examples) == len({example.source for example in examples}) == 38
    assert not trained & {example.source for example in examples}


def test_a_model_without_attention_is_scored_without_it(plain_run, capsys):
    assert list(record(capsys, plain_run, "--count", 5, "--beam", 1)) == ["text"]


def test_any_of_several_right_answers_will_do(here, reverse_run, capsys):
    (here / "pairs.tsv").write_text("a b\tb a\na b\ta b\nc d\tc d\n")
    assert record(capsys, reverse_run, "--data", "pairs.tsv")["text"]["exact_match"]["value"] == pytest.approx(1 / 3)
    exact_match = record(capsys, reverse_run, "--data", "pairs.tsv", "--variants")["text"]["exact_match"]
    assert exact_match["value"] == 0.5


def test_gold_links_score_the_attention(here, reverse_run, capsys):
    (here / "s").write_text("a b c d\nd a\n")
    (here / "t").write_text("d c b a\na d\n")
    (here / "gold").write_text("0-3 1-2 2-1 3-0\n0-1 1-0\n")
    both = ["--source", "s", "--target", "t", "--gold", "gold"]
    lines = output(capsys, reverse_run, *both).splitlines()
    assert lines[-2] == "attention as alignment of source words and target words"
    pattern = (
        r"  AER 0\.\d+ \(precision .*\|recall .*\|sentences:2\|links:6\|sure:6\) attention 0\.0(, shift 1)?, best on"
    )
    assert re.match(pattern, lines[-1])
    assert output(capsys, reverse_run, *both, "--attention", "mean").splitlines()[-1].endswith("mean, from --attention")


def test_gold_links_of_letters_score_the_attention(here, letters_run, capsys):
    (here / "pairs.tsv").write_text("abe\tA B E\ndeaf\tD E A F\n")
    (here / "gold").write_text("0-0 1-1 2-2\n0-0 1-1 2-2 3-3\n")
    options = [letters_run, "pairs.tsv", "--gold", "gold", "--attention", "mean"]
    alignment = record(capsys, *options)["alignment"]
    assert (alignment["units"], alignment["sure"]) == ("source characters and target words", 7)
    forced = load(letters_run).force(["abe", "deaf"], ["A B E", "D E A F"], return_weights=True)
    right = sum((p.weights.mean((0, 1))[:-1, :-1].argmax(1) == torch.arange(len(p.pair.target))).sum() for p in forced)
    assert alignment["error_rate"] == pytest.approx(1 - 2 * right.item() / 14)
    (here / "gold").write_text("0-0 0-1 0-2\n0-0 0-1 0-2 0-3\n")
    by_word = record(capsys, *options, "--gold-unit", "word")["alignment"]
    assert (by_word["units"], by_word["error_rate"]) == ("source words and target words", 0)


def test_a_run_is_compared_with_another_or_with_its_predictions(here, reverse_run, transformer_run, capsys):
    output(capsys, transformer_run, "pairs.tsv", "--out", "other.txt")
    run = output(capsys, reverse_run, "pairs.tsv", "--against", transformer_run).splitlines()
    file = output(capsys, reverse_run, "pairs.tsv", "--against", "other.txt").splitlines()
    assert [line.replace(str(transformer_run), "other.txt") for line in run] == file
    expected = paired_bootstrap(
        (here / "other.txt").read_text().splitlines(), ["d c b a", "a d", "a c b", "d c"], [t for _, t in ROWS],
        "exact_match",
    )  # fmt: skip
    assert file[-2:] == [
        f"other.txt and {reverse_run}, {expected}",
        expected.describe_verdict("other.txt", reverse_run),
    ]
    against = record(capsys, reverse_run, "pairs.tsv", "--against", "other.txt")["against"]
    assert against["second"]["value"] == 0.75
    assert against["verdict"] == file[-1]


def test_runs_of_other_tokens_are_compared_with_a_note(here, reverse_run, letters_run, capsys):
    arguments = ["evaluate", str(reverse_run), "pairs.tsv", "--against", str(letters_run)]
    assert main(arguments) == 0
    assert capsys.readouterr().err == (
        f"note: the tokens of {letters_run} are characters -> words, those of {reverse_run} words -> words; "
        "their scores compare only if both were trained for this data\n"
    )
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("metric", ["bleu", "chrf", "word_error_rate", "character_error_rate"])
def test_runs_are_compared_by_the_score_that_comes_first(metric, here, reverse_run, capsys):
    (here / "right.txt").write_text("".join(f"{target.upper()}\n" for _, target in ROWS))
    options = ["pairs.tsv", "--against", "right.txt", "--against-length", metric, "--lowercase"]
    against = record(capsys, reverse_run, *options)["against"]
    assert against["first"]["value"] == pytest.approx(0 if metric.endswith("error_rate") else 100)
    assert against["lower_is_better"] == metric.endswith("error_rate")


def test_predictions_can_be_kept(here, reverse_run, capsys):
    output(capsys, reverse_run, "--source", "s", "--target", "t", "--out", "new/out.txt")
    assert (here / "new/out.txt").read_text() == "d c b a\na d\na c b\nd c\n"


def test_mistakes_can_be_listed(here, reverse_run, capsys):
    output(capsys, reverse_run, "pairs.tsv", "--mistakes", "wrong.tsv")
    assert (here / "wrong.tsv").read_text() == "b c a\ta c b\tb c a\n"
    (here / "pairs.tsv").write_text("a b\tb a\na b\ta b\nc d\tC D\nc d\tx\n")
    output(capsys, reverse_run, "pairs.tsv", "--mistakes", "wrong.tsv", "--variants")
    assert (here / "wrong.tsv").read_text() == "c d\td c\tC D\tx\n"


def test_prepared_text_is_scored_as_well(here, subword_run, capsys):
    (here / "pairs.tsv").write_text("The cats\tCATS the\n")
    report = record(capsys, subword_run, "--data", "pairs.tsv", "--beam", 1)
    assert list(report) == ["text", "text as prepared for the model"]
    assert "tok:none" in report["text as prepared for the model"]["bleu"]["signature"]


def test_conditions_are_heard(here, reverse_run, capsys):
    (here / "pairs.tsv").write_text("a b\tB A\n")
    options = ["--data", "pairs.tsv", "--tokenize", "char", "--against-length", "exact_match", "--unit", "character"]
    plain, lower = record(capsys, reverse_run, *options), record(capsys, reverse_run, *options, "--lowercase")
    assert [report["text"]["exact_match"]["value"] for report in (plain, lower)] == [0.0, 1.0]
    assert "case:lc|eff:no|tok:char" in lower["text"]["bleu"]["signature"]
    assert lower["text"]["by_length"]["unit"] == "character"
    assert lower["text"]["by_length"]["rows"][0]["score"]["name"] == "exact match"


def test_empty_pairs_are_refused_or_left_out(here, reverse_run, capsys):
    (here / "pairs.tsv").write_text("a b\tb a\nc\t\n")
    assert main(["evaluate", str(reverse_run), "--data", "pairs.tsv"]) == 2
    line = "pairs.tsv, line 2: the target is empty; pass --on-empty skip to skip such pairs"
    assert capsys.readouterr().err == f"regard: {line}\n"
    report = record(capsys, reverse_run, "--data", "pairs.tsv", "--on-empty", "skip")
    assert report["text"]["exact_match"] == {
        "name": "exact match", "value": 1.0, "signature": "nrefs:1|case:mixed|sentences:1",
    }  # fmt: skip


BOTH = ["--source", "s", "--target", "t"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none"], "none: not found; expected a run folder created by regard train"),
        (["RUN", "pairs.tsv", "x"], "unexpected argument x; pass two files with --source and --target"),
        (["RUN", "pairs.tsv", "--data", "pairs.tsv"], "DATA cannot be combined with --data"),
        (["s", *BOTH], "s: expected a run folder, got a file"),
        (["RUN", "--source", "s"], "--source requires --target"),
        (["RUN", "--target", "t"], "--target requires --source"),
        (["RUN", *BOTH, "--data", "dates"], "--source cannot be combined with --data"),
        (["SUBWORDS"], "--data is required: a file of pairs or a built-in corpus; or pass --source and --target"),
        (["RUN", "--count", "0"], "--count must be at least 1, got 0"),
        (["RUN", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["RUN", "--data", "empty.tsv"], "empty.tsv is empty; expected at least one pair"),
        (["RUN", "--data", "none.tsv"], "cannot read none.tsv: not found"),
        (["RUN", "--source", "s", "--target", "."], "cannot read .: expected a file, got a folder"),
        (["RUN", *BOTH, "--beam", "0"], "--beam must be at least 1, got 0"),
        (["RUN", *BOTH, "--tokenize", "14a"], 'BLEU: unknown tokenize "14a"; did you mean "13a"?'),
        (
            ["RUN", *BOTH, "--against-length", "blue"],
            'evaluate_text: unknown against_length "blue"; did you mean "bleu"?',
        ),
        (["RUN", *BOTH, "--against", "one"],
         "one has 1 line for 4 sources; line n must be the prediction for source n"),
        (["RUN", *BOTH, "--against", "none"], "none: not found; expected a run folder or a file of predictions"),
        (["RUN", *BOTH, "--against", "."], ". is not a run folder: run.json is missing"),
        (["RUN", *BOTH, "--gold", "one"], "one has 1 line for 4 pairs; line n must align pair n"),
        (["RUN", *BOTH, "--gold", "far"],
         "far, line 1: word 4 of the source is out of range (4 words, counted from 0); "
         "if the links count from 1, pass --gold-base 1"),
        (["RUN", *BOTH, "--gold", "none"], "cannot read none: not found"),
        (["RUN", *BOTH, "--gold", "bare"], "alignment_error: the gold alignment must have at least one sure link"),
        (["RUN", *BOTH, "--attention", "x"],
         'alignment: unknown attention "x"; expected layer.head such as 2.3, a layer such as 2, or mean'),
        (["RUN", "--attention", "0.5"], "alignment: head must be from 0 to 0, got 5"),
        (["RUN", *BOTH, "--out", "s/x"], "cannot write s/x: not a directory"),
        (["PLAIN", *BOTH, "--gold", "one"],
         "seq2seq has no attention from target to source"),
        (["RUN", *BOTH, "--shift", "2"], 'invalid value "2" for --shift. Choose from: 0, 1.'),
    ],
)  # fmt: skip
def test_what_a_user_can_put_right_is_one_line(arguments, line, here, reverse_run, plain_run, subword_run, capsys):
    for name, text in {"empty.tsv": "", "one": "0-0\n", "far": "4-4\n" * 4, "bare": "\n" * 4}.items():
        (here / name).write_text(text)
    known = {"RUN": str(reverse_run), "PLAIN": str(plain_run), "SUBWORDS": str(subword_run)}
    assert main(["evaluate", *(known.get(word, word) for word in arguments)]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


OPTIONS = [
    "--source",
    "--target",
    "--data",
    "--count",
    "--variants",
    "--beam",
    "--tokenize",
    "--unit",
    "--gold",
    "--against",
    "--out",
]
WORDS = st.sampled_from(
    [*OPTIONS, "--attention", "--shift", "--json", "s", "t", "pairs.tsv", "0", "1", "3", "char", "x"]
)


@pytest.fixture
def few(monkeypatch):
    """Few examples, where the corpus is not cut short by an option."""
    monkeypatch.setattr("regard.tasks.built_in.COUNT", 20)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_line_is_a_bug(here, reverse_run, capsys, few, words):
    status = main(["evaluate", str(reverse_run), *words])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "") or (status, out, err[:8], err.count("\n")) == (2, "", "regard: ", 1)
