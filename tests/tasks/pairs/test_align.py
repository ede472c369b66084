import io
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.tasks.loading import load

ROWS = [("a b c d", "d c b a"), ("d a", "a d"), ("b c a", "a c b")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with sources and targets, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").write_text("".join(f"{source}\n" for source, _ in ROWS))
    (tmp_path / "t").write_text("".join(f"{target}\n" for _, target in ROWS))
    return tmp_path


def output(capsys, *arguments: object) -> tuple[list[str], str]:
    assert main(["align", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    return out.splitlines(), err


def links(line: str) -> set[tuple[int, int]]:
    return {(int(source), int(target)) for source, target in (link.split("-") for link in line.split())}


def true_links(source: str) -> set[tuple[int, int]]:
    """Of a text and its reverse."""
    last = len(source.split()) - 1
    return {(index, last - index) for index in range(last + 1)}


def agreement(lines: list[str]) -> float:
    right = sum(len(links(line) & true_links(source)) for line, (source, _) in zip(lines, ROWS, strict=True))
    return right / sum(len(true_links(source)) for source, _ in ROWS)


def test_a_model_that_reverses_looks_from_the_end(here, reverse_run, capsys):
    lines, err = output(capsys, reverse_run, "--source", "s", "--target", "t")
    assert err == ""
    assert agreement(lines) > 0.7


def test_links_are_those_of_the_greatest_weights(here, reverse_run, capsys):
    lines, _ = output(capsys, reverse_run, "--source", "s", "--target", "t")
    forced = load(reverse_run).force(
        [source for source, _ in ROWS], [target for _, target in ROWS], return_weights=True
    )
    for line, prediction in zip(lines, forced, strict=True):
        weights = prediction.weights[0, 0, :-1, :-1]  # each word is a token; without <eos>
        assert links(line) == {(row.argmax().item(), index) for index, row in enumerate(weights)}
    many, _ = output(capsys, reverse_run, "--source", "s", "--target", "t", "--method", "threshold", "--threshold", 0.1)
    for line, prediction in zip(many, forced, strict=True):
        weights = prediction.weights[0, 0, :-1, :-1]
        assert links(line) == {(s, t) for t, row in enumerate(weights) for s, weight in enumerate(row) if weight >= 0.1}


def test_without_targets_predictions_are_aligned_and_can_be_kept(here, reverse_run, capsys):
    lines, _ = output(capsys, reverse_run, "--source", "s", "--out", "predictions")
    assert (here / "predictions").read_text() == (here / "t").read_text()
    assert lines == output(capsys, reverse_run, "--source", "s", "--target", "t")[0]


def test_sources_come_from_stdin(here, reverse_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\n\n")))
    lines, _ = output(capsys, reverse_run)
    assert len(lines) == 2
    assert lines[1] == ""


def test_line_n_of_the_links_is_line_n_of_the_texts(here, reverse_run, monkeypatch, capsys):
    (here / "s").write_text("a b\n\nc\nc d\n")
    (here / "t").write_text("b a\nb\n\nd c\n")
    lines, _ = output(capsys, reverse_run, "--source", "s", "--target", "t")
    assert [bool(line) for line in lines] == [True, False, False, True]
    monkeypatch.setattr("regard.tasks.pairs.align.AT_ONCE", 1)
    assert output(capsys, reverse_run, "--source", "s", "--target", "t")[0] == lines


def test_gold_links_choose_the_attention(here, transformer_run, capsys):
    (here / "gold").write_text("0-3 1-2 2-1 3-0\n0-1 1-0\n")
    lines, err = output(capsys, transformer_run, "--source", "s", "--target", "t", "--gold", "gold")
    assert err.startswith("attention ")
    assert err.endswith(" on the gold links\n")
    name, _, shift = err.removeprefix("attention ").partition(":")[0].partition(", shift ")
    options = ["--attention", name, "--shift", shift or 0]
    assert lines == output(capsys, transformer_run, "--source", "s", "--target", "t", *options)[0]
    (here / "from-one").write_text("1-4 2-3 3-2 4-1\n1-2 2-1\n")
    again = output(capsys, transformer_run, "--source", "s", "--target", "t", "--gold", "from-one", "--gold-base", 1)
    assert again == (lines, err)


def compute_expected(run, rows) -> list[set[tuple[int, int]]]:
    """The letter with the most weight for each phone, from the weights themselves."""
    forced = load(run).force([source for source, _ in rows], [target for _, target in rows], return_weights=True)
    return [
        {(row.argmax().item(), index) for index, row in enumerate(prediction.weights.mean((0, 1))[:-1, :-1])}
        for prediction in forced
    ]


LETTERS = [("abe", "A B E"), ("deaf", "D E A F"), ("bad", "B A D")]


def test_letters_are_aligned_where_sources_are_single_words(here, letters_run, capsys):
    (here / "letters.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in LETTERS))
    lines, err = output(capsys, letters_run, "letters.tsv")
    assert err == "links connect source characters and target words (--unit)\n"
    assert [links(line) for line in lines] == compute_expected(letters_run, LETTERS)
    assert output(capsys, letters_run, "--data", "letters.tsv", "--unit", "token", "--quiet") == (lines, "")
    by_word, err = output(capsys, letters_run, "letters.tsv", "--unit", "word")
    assert by_word == ["0-0 0-1 0-2", "0-0 0-1 0-2 0-3", "0-0 0-1 0-2"]
    assert err == "links connect source words and target words (--unit)\n"


def test_sentences_of_characters_are_aligned_by_word(here, subword_run, capsys):
    (here / "s").write_text("the cats\ncats\nthe dogs\n")
    (here / "t").write_text("cats the\ncats\ndogs the\n")
    lines, err = output(capsys, subword_run, "s", "t")
    assert err == "links connect source words and target words (--unit)\n"
    assert max(max(link) for line in lines for link in links(line)) <= 1
    tokens, err = output(capsys, subword_run, "s", "t", "--unit", "token")
    assert err == "links connect source tokens and target tokens (--unit)\n"
    forced = load(subword_run).force(["the cats", "cats", "the dogs"], ["cats the", "cats", "dogs the"])
    for line, prediction in zip(tokens, forced, strict=True):
        assert {target for _, target in links(line)} == set(range(len(prediction.pair.target)))


def test_links_can_be_written_as_text(here, letters_run, capsys):
    (here / "letters.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in LETTERS))
    lines, _ = output(capsys, letters_run, "letters.tsv", "--text")
    for line, (source, target), expected in zip(lines, LETTERS, compute_expected(letters_run, LETTERS), strict=True):
        assert line.split() == [f"{source[s]}-{target.split()[t]}" for s, t in sorted(expected)]


def test_gold_links_of_letters_choose_the_attention(here, letters_run, capsys):
    (here / "letters.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in LETTERS))
    (here / "gold").write_text("0-0 1-1 2-2\n0-0 1-1 2-2 3-3\n")
    _, err = output(capsys, letters_run, "letters.tsv", "--gold", "gold")
    assert err.endswith("|sentences:2|links:7|sure:7) on the gold links\n")
    (here / "gold").write_text("0-0 3-1\n")
    assert main(["align", str(letters_run), "letters.tsv", "--gold", "gold", "--quiet"]) == 2
    assert capsys.readouterr().err == (
        "regard: gold, line 1: token 3 of the source is out of range (3 tokens, counted from 0); "
        "if the links count from 1, pass --gold-base 1\n"
    )


def test_two_directions_of_tokens_are_joined(here, subword_run, capsys):
    (here / "pairs.tsv").write_text("the cats\tcats the\n")
    (here / "turned.tsv").write_text("cats the\tthe cats\n")
    forward, backward = (
        links(output(capsys, subword_run, name, "--unit", "token")[0][0]) for name in ("pairs.tsv", "turned.tsv")
    )
    options = ["--unit", "token", "--backward", subword_run, "--symmetrize", "union"]
    line = output(capsys, subword_run, "pairs.tsv", *options)[0][0]
    assert links(line) == forward | {(s, t) for t, s in backward}


def test_two_directions_must_have_the_same_tokens(here, letters_run, capsys):
    (here / "letters.tsv").write_text("abe\tA B E\n")
    assert main(["align", str(letters_run), "letters.tsv", "--backward", str(letters_run), "--quiet"]) == 2
    line = '--backward: the two runs split "abe" into 3 and 1 parts; expected equal tokens, or pass --unit word'
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def test_line_n_of_the_links_is_pair_n_of_the_file(here, letters_run, capsys):
    (here / "letters.tsv").write_text("abe\tA B E\n\nbad\t\ndab\tD A B\n")
    lines, _ = output(capsys, letters_run, "letters.tsv")
    assert [bool(line) for line in lines] == [True, False, False, True]


def test_a_shift_is_tried_alone_if_asked_for(here, transformer_run, capsys):
    (here / "gold").write_text("0-3 1-2 2-1 3-0\n")
    for shift in (0, 1):
        _, err = output(capsys, transformer_run, "--source", "s", "--target", "t", "--gold", "gold", "--shift", shift)
        assert (", shift 1:" in err) == (shift == 1)


def test_two_directions_are_joined(here, reverse_run, transformer_run, capsys):
    forward = output(capsys, reverse_run, "--source", "s", "--target", "t")[0]
    backward = output(capsys, transformer_run, "--source", "t", "--target", "s")[0]
    turned = [{(s, t) for t, s in links(line)} for line in backward]
    options = ["--source", "s", "--target", "t", "--backward", transformer_run]
    union = output(capsys, reverse_run, *options, "--symmetrize", "union")[0]
    assert [links(line) for line in union] == [links(line) | other for line, other in zip(forward, turned, strict=True)]
    both = output(capsys, reverse_run, *options, "--symmetrize", "intersection")[0]
    assert [links(line) for line in both] == [links(line) & other for line, other in zip(forward, turned, strict=True)]
    for line, least, most in zip(output(capsys, reverse_run, *options)[0], both, union, strict=True):
        assert links(least) <= links(line) <= links(most)


def test_gold_links_choose_both_attentions(here, reverse_run, transformer_run, capsys):
    (here / "gold").write_text("0-3 1-2 2-1 3-0\n")
    options = ["--source", "s", "--target", "t", "--backward", transformer_run, "--gold", "gold"]
    _, err = output(capsys, reverse_run, *options)
    first, second = err.splitlines()
    assert first.startswith("attention 0.0")
    assert second.startswith("backward attention ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none"], "none: not found; expected a run folder created by regard train"),
        (["RUN", "--source", "none"], "cannot read none: not found"),
        (
            ["RUN", "--source", "s", "--target", "two"],
            "s has 3 lines, two 2; line n of one must translate line n of the other",
        ),
        (["RUN", "--backward", "RUN"], "--backward requires --target or --data"),
        (["RUN", "--gold", "two"], "--gold requires --target or --data"),
        (["BOTH", "--data", "pairs.tsv"], "--source cannot be combined with --data"),
        (["RUN", "--target", "t", "--data", "pairs.tsv"], "--target cannot be combined with --data"),
        (["RUN", "pairs.tsv", "--out", "x"], "--out cannot be combined with --data: it writes predictions"),
        (["RUN", "--data", "two"],
         "two: cannot infer the format from the file name; pass --format, or use one of .csv, .gmo, .jsonl, .mo, "
         ".ndjson, .po, .tab, .tmx, .tsv; "
         "for lemma, form and features, pass --format unimorph; "
         "for plain text, choose a language model (--model lstm-lm)"),
        (["RUN", "pairs.tsv", "--columns", "1"], "data.columns: expected 2 columns, source and target, got 1"),
        (["BOTH", "--symmetrize", "union"], "--symmetrize requires --backward"),
        (["BOTH", "--out", "x"], "--out cannot be combined with --target: it writes predictions"),
        (
            ["BOTH", "--gold", "two", "--attention", "mean"],
            "--attention cannot be combined with --gold: the gold links select the attention",
        ),
        (
            ["BOTH", "--attention", "x"],
            'alignment: unknown attention "x"; expected layer.head such as 2.3, a layer such as 2, or mean',
        ),
        (["BOTH", "--attention", "7"], "alignment: layer must be from 0 to 0, got 7"),
        (["BOTH", "--threshold", "2"], "--threshold must be above 0 and at most 1, got 2.0"),
        (["BOTH", "--gold", "none"], "cannot read none: not found"),
        (["BOTH", "--gold", "empty"], "empty is empty; expected at least one line of links"),
        (["BOTH", "--gold", "two"], 'two, line 1: expected a link such as 3-4 (sure) or 3p4 (possible), got "x"'),
        (["BOTH", "--gold", "five"], "five has 5 lines for 3 pairs; line n must align pair n"),
        (
            ["BOTH", "--gold", "far"],
            "far, line 1: word 4 of the source is out of range (4 words, counted from 0); "
            "if the links count from 1, pass --gold-base 1",
        ),
        (
            ["BOTH", "--gold", "five", "--gold-base", "1"],
            'five, line 1: words must be counted from 1, got "0-0"',
        ),
        (
            ["RUN", "--source", "--target", "t"],
            'invalid value "--target" for --source. Expected a file, or - for stdin.',
        ),
        (["RUN", "--source", "-", "--target", "-"],
         "--source and --target cannot both be stdin"),
        (
            ["BOTH", "--backward", "PLAIN"],
            "--backward PLAIN: seq2seq has no attention from target to source",
        ),
        (
            ["PLAIN", "--source", "s"],
            "seq2seq has no attention from target to source",
        ),
    ],
)  # fmt: skip
def test_what_a_user_can_put_right_is_one_line(arguments, line, here, reverse_run, plain_run, capsys):
    for name, text in {
        "two": "x\ny\n",
        "empty": "",
        "five": "0-0\n" * 5,
        "far": "4-4\n",
        "pairs.tsv": "a\ta\n",
    }.items():
        (here / name).write_text(text)
    run = [str(reverse_run)]
    known = {"RUN": run, "PLAIN": [str(plain_run)], "BOTH": [*run, "--source", "s", "--target", "t"]}
    assert main(["align", *(part for word in arguments for part in known.get(word, [word]))]) == 2
    assert capsys.readouterr() == ("", f"regard: {line.replace('PLAIN', str(plain_run))}\n")


OPTIONS = [
    "--source",
    "--target",
    "--data",
    "--unit",
    "--text",
    "--attention",
    "--shift",
    "--method",
    "--threshold",
    "--gold",
    "--backward",
    "--out",
]
WORDS = st.sampled_from(
    [*OPTIONS, "s", "t", "token", "pairs.tsv", "-", "0", "1", "0.5", "mean", "threshold", "run", "x", "--symmetrize"]
)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_line_is_a_bug(here, reverse_run, monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    status = main(["align", str(reverse_run), *(str(reverse_run) if word == "run" else word for word in words)])
    _, err = capsys.readouterr()
    assert status == 0 or (status == 2 and err.splitlines()[-1].startswith("regard: "))
