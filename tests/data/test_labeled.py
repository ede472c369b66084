import gzip
import io
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.data.labeled import LabeledText, is_table, read_labeled, read_table_texts


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name: str, content: str) -> str:
        raw = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return name

    return put


def refused(*args, **kwargs) -> str:
    with pytest.raises(RegardError) as caught:
        list(read_labeled(*args, **kwargs))
    assert "\n" not in str(caught.value)
    return str(caught.value)


TWO = [LabeledText("who is it ?", ("HUM",)), LabeledText("is it, here ?", ("YN", "LOC"))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "who is it ?\tHUM\nis it, here ?\tYN|LOC\n"),
        ("a.tab", "Label\tText\nHUM\twho is it ?\n\nYN | LOC\tis it, here ?"),
        ("a.tsv.gz", "labels\tn\ttext\nHUM\t1\twho is it ?\nYN|LOC|YN\t2\t is it, here ? \n"),
        ("a.csv", 'who is it ?,HUM\n"is it, here ?",YN|LOC\n'),
        ("a.jsonl", '{"text": "who is it ?", "label": "HUM"}\n{"label": ["YN", "LOC"], "text": "is it, here ?"}\n'),
        ("a.ndjson", '{"text": "who is it ?", "labels": ["HUM"]}\n\n{"labels": "YN|LOC", "text": "is it, here ?"}\n'),
    ],
)
def test_every_format(write, name, content):
    assert list(read_labeled(write(name, content))) == TWO


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"who is it ?\tHUM\nis it, here ?\tYN|LOC\n")))
    assert list(read_labeled("-")) == TWO


def test_a_format_that_the_name_does_not_tell(write):
    path = write("a.txt", "who is it ?\tHUM\nis it, here ?\tYN|LOC\n")
    assert list(read_labeled(path, format="tsv")) == TWO
    assert refused(path) == (
        "a.txt: cannot infer the format from the file name; pass --data.format, "
        "or use one of .csv, .jsonl, .ndjson, .tab, .tsv"
    )
    assert refused(path, format="tsf") == 'unknown data.format "tsf"; did you mean "tsv"?'


@pytest.mark.parametrize("columns", [(3, 1), ("3", "1"), ("question", "coarse"), ("question", 1)])
def test_chosen_columns(write, columns):
    header = "" if all(str(each).isdigit() for each in columns) else "coarse\tfine\tquestion\n"
    path = write("a.tsv", f"{header}HUM\tHUM:ind\twho ?\nLOC\tLOC:city\twhere ?\n")
    assert list(read_labeled(path, columns=columns)) == [
        LabeledText("who ?", ("HUM",)),
        LabeledText("where ?", ("LOC",)),
    ]


def test_a_second_text(write):
    path = write("a.csv", "no,it rains,it is wet\n")
    assert list(read_labeled(path, columns=(2, 1, 3))) == [LabeledText("it rains", ("no",), "it is wet")]
    path = write("a.jsonl", '{"pair": {"a": "it rains", "b": "it is wet"}, "gold": 0}\n')
    assert list(read_labeled(path, columns=("pair.a", "gold", "pair.b"))) == [
        LabeledText("it rains", ("0",), "it is wet")
    ]


def test_labels_that_hold_the_separator(write):
    path = write("a.tsv", "x\ta|b c\n")
    assert [next(read_labeled(path, separator=each)).labels for each in ("|", " ", "")] == [
        ("a", "b c"), ("a|b", "c"), ("a|b c",)
    ]  # fmt: skip


def test_the_utterances_before_of_the_same_dialogue(write):
    path = write("a.tsv", "d1\tone\tA\nd2\tun\tA\nd1\ttwo\tB\nd1\tthree\tA\n\nd2\tdeux\tB\nd1\tfour\tA\n")
    examples = list(read_labeled(path, dialogue=1, context=2))
    assert [(each.text, each.context) for each in examples] == [
        ("one", ()),
        ("un", ()),
        ("two", ("one",)),
        ("three", ("one", "two")),
        ("deux", ("un",)),
        ("four", ("two", "three")),
    ]
    assert [each.dialogue for each in examples] == [0, 1, 0, 0, 1, 0]
    alone = list(read_labeled(path, columns=(2, 3), dialogue=1))
    assert all(each.context == () and each.dialogue is None for each in alone)


def test_without_names_a_blank_line_ends_a_dialogue(write):
    path = write("a.tsv", "one\tA\ntwo\tB\n\nun\tA\ndeux\tB\n")
    examples = list(read_labeled(path, context=1))
    assert [each.context for each in examples] == [(), ("one",), (), ("un",)]
    assert [each.dialogue for each in examples] == [0, 0, 1, 1]


def test_an_utterance_without_a_label_is_still_context(write):
    path = write("a.tsv", "one\tA\ntwo\t\n\tB\nthree\tB\n")
    examples = list(read_labeled(path, context=5, on_empty="skip"))
    assert examples == [LabeledText("one", ("A",)), LabeledText("three", ("B",), context=("one", "two"))]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9)), max_size=20), st.integers(0, 4))
def test_context_by_brute_force(tmp_path_factory, utterances, context):
    path = tmp_path_factory.mktemp("dialogues") / "a.csv"
    path.write_text("".join(f"{name},text {n},label\n" for name, n in utterances))
    examples = list(read_labeled(path, dialogue=1, context=context))
    for index, (name, n) in enumerate(utterances):
        before = [f"text {m}" for other, m in utterances[:index] if other == name]
        assert examples[index] == LabeledText(
            f"text {n}", ("label",), context=tuple(before[max(len(before) - context, 0) :])
        )


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "a.tsv",
            "x\tA\ny\n",
            {},
            "a.tsv, line 2: expected 2 columns, as in line 1, got 1 column (0 tabs); "
            "a tab between text and label is missing",
        ),
        ("a.csv", "x,A\ny,A,B\n", {}, "a.csv, line 2: expected 2 columns, as in line 1, got 3 columns"),
        (
            "a.tsv",
            "A\tx\ty\n",
            {},
            'a.tsv, line 1: expected 2 columns, text and label, got 3 columns (2 tabs): 1 "A", 2 "x", 3 "y"; '
            "pass the numbers of text and label: --data.columns TEXT,LABEL",
        ),
        (
            "a.csv",
            "1,2,3,4,5,6,7,8\n",
            {},
            "a.csv, line 1: expected 2 columns, text and label, got 8 columns: "
            '1 "1", 2 "2", 3 "3", 4 "4", 5 "5", 6 "6" and 2 more; '
            "pass the numbers of text and label: --data.columns TEXT,LABEL",
        ),
        (
            "a.tsv",
            "x\tA\ny\t \n",
            {},
            "a.tsv, line 2: the label is empty; pass --data.on-empty skip to skip such examples",
        ),
        (
            "a.tsv",
            "\tA\n",
            {},
            "a.tsv, line 1: the text is empty; pass --data.on-empty skip to skip such examples",
        ),
        (
            "a.jsonl",
            '{"text": "x", "labels": []}\n',
            {},
            "a.jsonl, line 1: the label is empty; pass --data.on-empty skip to skip such examples",
        ),
        ("a.tsv", "x\tA||B\n", {}, 'a.tsv, line 1: empty label in "A||B"'),
        (
            "a.tsv",
            "x\tA\n",
            {"columns": ("txt", 2)},
            'a.tsv, line 1: unknown column "txt"; this line has "x, A"'
            "; names need a header; without one, choose columns by number",
        ),
        ("a.tsv", "x\tA\n", {"columns": (1, 3)}, "a.tsv, line 1: column 3 does not exist; the line has 2 columns"),
        (
            "a.tsv",
            "x\tA\n",
            {"columns": (1,)},
            "data.columns: expected 2 or 3 columns (text, label, second text), got 1",
        ),
        ("a.tsv", "x\tA\n", {"context": -1}, "data.context must be at least 0, got -1"),
        ("a.tsv", "x\tA\n", {"on_empty": "skp"}, 'unknown data.on_empty "skp"; did you mean "skip"?'),
        (
            "a.jsonl",
            '["x", "A"]\n',
            {},
            'a.jsonl, line 1: expected an object, {"text": "…", "label": "…"}, got "["x", "A"]"',
        ),
        (
            "a.jsonl",
            '{"text": "x", "label": ["A", null]}\n',
            {},
            'a.jsonl, line 1: expected a list of strings in "label", got "["A", null]"',
        ),
        (
            "a.jsonl",
            '{"text": "x", "label": "A"}\n',
            {"columns": (1, 2)},
            "a.jsonl: JSON lines need column names, got 1; as in --data.columns text,label",
        ),
        (
            "a.jsonl",
            '{"text": "x"}\n',
            {},
            'a.jsonl, line 1: missing key "label"; this line has the keys "text"; '
            "to read other keys, pass them as --data.columns",
        ),
        ("none.tsv", None, {}, "cannot read none.tsv: not found"),
    ],
)
def test_what_cannot_be_read(write, name, content, options, message):
    if content is not None:
        write(name, content)
    assert refused(name, **options) == message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "who ?\tHUM\nhere ?\tLOC\n"),
        ("a.tsv", "who ?\nhere ?\n"),
        ("a.tsv", "text\nwho ?\nhere ?\n"),
        ("a.csv.gz", "label,text\nHUM,who ?\nLOC,here ?\n"),
        ("a.jsonl", '{"text": "who ?"}\n{"text": "here ?", "label": 3}\n'),
    ],
)
def test_texts_are_read_with_or_without_labels(write, name, content):
    assert is_table(name)
    assert [row["text"] for row in read_table_texts(write(name, content))] == ["who ?", "here ?"]


def test_texts_are_in_the_columns_of_the_training_data(write):
    table = write("a.tsv", "id\tgold\tfirst\tsecond\n1\tA\tx y\tz\n\n")
    columns = ("first", "gold", "second")
    assert list(read_table_texts(table, columns)) == [{"text": "x y"}, {}]
    assert list(read_table_texts(table, columns, text_pairs=True)) == [{"text": "x y", "second": "z"}, {}]
    pairs = write("b.tsv", "x y\tz\n")
    assert list(read_table_texts(pairs, columns, text_pairs=True)) == [{"text": "x y", "second": "z"}]
    with pytest.raises(RegardError, match=r"^a.tsv, line 1: expected two texts, got 4 columns \(3 tabs\)$"):
        list(read_table_texts(table, text_pairs=True))
    assert not is_table("a.txt")
    assert not is_table("-")
