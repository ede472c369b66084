import json
from dataclasses import replace

import pytest

from regard import RegardError
from regard.data.formats import read_pairs
from regard.data.formats.columns import TABLE_FORMATS, parse_sides
from regard.data.inflection import detect_inflection
from regard.data.pair_check import summarize_pair_data
from regard.tasks.pairs.load import check_column_order, resolve_columns
from regard.tasks.pairs.settings import PairData

ROWS = [
    ("gehen", "gingst", "V;PST;2;SG"),
    ("gehen", "gehst", "V;PRS;2;SG"),
    ("sehen", "sahst", "V;PST;2;SG"),
    ("sehen", "siehst", "V;PRS;2;SG"),
]
FORM_SECOND, FORM_LAST = ("1:letters+3:tokens", "2:letters"), ("1:letters+2:tokens", "3:letters")


def test_the_columns_of_the_shared_tasks():  # one line of each year's files
    lines = {
        "sigmorphon2016": "streiken\tpos=V,tense=PST\tgestreikt",
        "sigmorphon2017": "plomber\tplombez\tV;IND;PRS;2;PL",
        "sigmorphon2018": "gallos\tgalles\tV;FIN;IMP;3;SG",
        "sigmorphon2019": "til\ttillerzer\tN;PL;ALL",
        "sigmorphon2020": "etsa\tetsaea\tV;NFIN",
        "sigmorphon2021": "na\tnang\tV;AC3S;PFV;SG;3;PST",
        "sigmorphon2022": "sato\tsatoɬ\tV.CVB;NFIN",
        "sigmorphon2023": "ხილვა\tN;NOM(SG)\tხილვა",
        "unimorph": "gehen\tgingst\tV;PST;2;SG",
    }
    assert {*lines, "g2p"} == {*TABLE_FORMATS}
    for name, line in lines.items():
        columns = TABLE_FORMATS[name].columns
        cells = line.split("\t")
        tags = [cell for cell in cells if ";" in cell or "," in cell]
        source = [cells[int(choice.column) - 1] for choice in parse_sides(columns).source]
        assert source == [cells[0], *tags], name
    assert TABLE_FORMATS["g2p"].columns == ("1:letters", "2:tokens")


def test_formats_are_read_by_name(tmp_path):
    path = tmp_path / "deu"  # UniMorph's files have no ending, and blank lines between paradigms
    path.write_text("gehen\tging\tV;PST\n\ngehen\tgehe\tV;PRS\n")
    examples = list(read_pairs(path, format="unimorph"))
    assert [(e.source, e.target) for e in examples] == [("gehen\tV;PST", "ging"), ("gehen\tV;PRS", "gehe")]
    (tmp_path / "fre").write_text("abby\ta b i\n")
    assert [(e.source, e.target) for e in read_pairs(tmp_path / "fre", format="g2p")] == [("abby", "a b i")]
    with pytest.raises(RegardError) as caught:
        list(read_pairs(path, format="sigmorphon2017", columns=("1+4", "2")))
    assert str(caught.value) == f"{path}, line 1: column 4 does not exist; the line has 3 columns"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.tsv", "lemma\tform\ttags\ngo\twent\tV;PST\n", ("lemma+tags", "form")),
        ("a.tsv", "go\twent\tV;PST\n", (" 1 + 3 ", 2)),
        ("a.csv", 'lemma,form,tags\ngo,went,"V;PST"\n', ("lemma:letters+tags:tokens", "form")),
        ("a.jsonl", '{"form": "went", "of": {"lemma": "go", "tags": "V;PST"}}\n', ("of.lemma+of.tags", "form")),
    ],
)
def test_columns_of_any_table_are_joined(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    (example,) = read_pairs(tmp_path / name, columns=columns)
    assert (example.source, example.target) == ("go\tV;PST", "went")


def test_columns_of_the_target_are_joined(tmp_path):
    (tmp_path / "a.tsv").write_text("went\tgo\tV;PST\nran\trun\tV;PST\n")
    examples = list(read_pairs(tmp_path / "a.tsv", columns=("1", "2+3")))
    assert [example.target for example in examples] == ["go\tV;PST", "run\tV;PST"]
    assert not summarize_pair_data(examples).train.suspicions  # the tab separates columns


def test_a_cell_that_is_empty_makes_its_side_empty(tmp_path):
    (tmp_path / "a.tsv").write_text("go\twent\t \nrun\tran\tV;PST\n")
    with pytest.raises(RegardError) as caught:
        list(read_pairs(tmp_path / "a.tsv", columns=("1+3", "2")))
    assert str(caught.value) == (
        f"{tmp_path / 'a.tsv'}, line 1: the source is empty; pass --data.on-empty skip to skip such pairs"
    )
    assert len(list(read_pairs(tmp_path / "a.tsv", columns=("1+3", "2"), on_empty="skip"))) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("1+", "2"), 'data.columns: "1+" has an empty column; expected names or numbers joined by +, '
         "such as lemma+features"),
        (("1:leters+2", "1"), 'FILE, line 1: unknown column "1:leters" '
         '("leters" is not a unit: letters, tokens, words, bpe, unigram, bytes); this line has "a, b"'),
        (("1+2", "2"), "data.columns: column 2 is used twice; join different columns, such as 1+3,2"),
        (("1+1", "2"), "data.columns: column 1 is used twice; join different columns, such as 1+3,2"),
        (("1",), "data.columns: expected 2 columns, source and target, got 1"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be(tmp_path, columns, message):
    (tmp_path / "a.tsv").write_text("a\tb\n")
    with pytest.raises(RegardError) as caught:
        list(read_pairs(tmp_path / "a.tsv", columns=columns))
    assert str(caught.value) == message.replace("FILE", str(tmp_path / "a.tsv"))


def test_only_tables_have_columns_to_join(tmp_path):
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr "b"\n')
    with pytest.raises(RegardError) as caught:
        list(read_pairs(tmp_path / "a.po", columns=("msgid+msgctxt", "msgstr")))
    assert str(caught.value) == (
        "data.columns: joined columns and units require a table (csv, jsonl, tsv), got the format po"
    )


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (ROWS, FORM_SECOND),
        ([(lemma, tags, form) for lemma, form, tags in ROWS], FORM_LAST),
        ([("walk", "walked", "PST"), ("cat", "cats", "PL")] * 5, FORM_SECOND),
        ([("gehen", form, tags) for _, form, tags in ROWS], FORM_SECOND),  # a paradigm: one lemma
        ([("Lemma", "Form", "Feats"), *ROWS], ("Lemma:letters+Feats:tokens", "Form:letters")),
        ([(tags, lemma, form) for lemma, form, tags in ROWS], ("2:letters+1:tokens", "3:letters")),
        ([(lemma, form, tags.replace(";", " ")) for lemma, form, tags in ROWS], FORM_SECOND),
        ([(lemma, tags.replace(";", " "), form) for lemma, form, tags in ROWS], FORM_LAST),
        ([("sehen", "Z EE @ N", "17"), ("gehen", "G EE @ N", "5")] * 5, None),  # phones and counts
        ([*ROWS * 9, ROWS[0][:2]], FORM_SECOND),  # one row of many is damaged
        ([*ROWS, *[row[:2] for row in ROWS]], None),
        ([("a", "b", "c")], None),
        ([row[:2] for row in ROWS], None),
        ([("the cat sees a dog", "die Katze sieht einen Hund", "news")] * 9, None),  # sentences, no words
        ([], None),
    ],
)
def test_lemma_form_and_features_are_recognized(rows, columns):
    found = detect_inflection(rows)
    assert (found and found.columns) == columns


def test_keys_of_json_lines_are_recognized(tmp_path):
    path = tmp_path / "a.jsonl"
    for keys, columns in (
        (("lemma", "msd", "form"), ("lemma:letters+msd:tokens", "form:letters")),
        (("source", "target", "id"), ()),
    ):
        path.write_text("\n" + json.dumps(dict.fromkeys(keys, "a")) + "\n")
        assert resolve_columns(PairData(train=str(path)))[0].columns == columns


def test_a_format_of_another_order_is_refused(tmp_path):
    path = tmp_path / "a.trn"
    path.write_text("".join("\t".join(row) + "\n" for row in ROWS))
    data = PairData(train=str(path), format="sigmorphon2023")
    with pytest.raises(RegardError) as caught:
        resolve_columns(data)
    assert str(caught.value) == (
        f"{path}: column 3 looks like features, but sigmorphon2023 is lemma, features, form; "
        "select the columns with --columns 1:letters+3:tokens,2:letters"
    )
    assert resolve_columns(replace(data, format="unimorph"))[0].columns == FORM_SECOND
    assert resolve_columns(replace(data, columns=("2", "1")))[0].columns == ("2", "1")


def write_rows(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return str(path)


def test_validation_data_in_another_order_are_refused(tmp_path):
    train = write_rows(tmp_path / "train.tsv", ROWS)
    other = write_rows(tmp_path / "valid.tsv", [(lemma, tags, form) for lemma, form, tags in ROWS])
    with pytest.raises(RegardError) as caught:
        resolve_columns(PairData(train=train, validation=other))
    assert str(caught.value) == (
        f"{other}: column 2 looks like features, but the training data is lemma, form, features; "
        "select the columns with --columns 1:letters+2:tokens,3:letters"
    )
    assert resolve_columns(PairData(train=train, validation=train))[0].columns == FORM_SECOND


def test_only_another_order_of_features_is_refused(tmp_path):
    path = write_rows(tmp_path / "a.tsv", ROWS)
    for columns in (("1+3", "2"), ("2", "1+3"), ("1", "2"), ("lemma+features", "form")):
        check_column_order(path, None, columns)
    with pytest.raises(RegardError, match="column 3 looks like features"):
        check_column_order(path, None, ("1+2", "3"))
    write_rows(tmp_path / "a.tsv", [*ROWS * 9, ("one",)])
    with pytest.raises(RegardError, match="column 3 looks like features"):
        check_column_order(path, None, ("1+2", "3"))
    check_column_order("-", None, ("1+2", "3"))  # read once
    paradigm = [("be", chr(97 + number), f"V;{number};{number % 3}A") for number in range(6)]
    check_column_order(write_rows(tmp_path / "b.tsv", paradigm), None, ("1+3", "2"))  # the lemma repeats


def test_the_columns_that_are_recognized_have_names():
    found = detect_inflection(ROWS)
    assert found is not None
    assert found.labels == {"1": "lemma", "2": "form", "3": "features"}
