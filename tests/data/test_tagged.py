import gzip
import io
import sys
from types import SimpleNamespace

import pytest

from regard import RegardError
from regard.data.tagged import TaggedSentence, read_tagged

TWO = [TaggedSentence(("Ada", "Lovelace", "wrote"), ("B-PER", "I-PER", "O")), TaggedSentence(("London",), ("B-LOC",))]


def refused(path, columns=None) -> str:
    with pytest.raises(RegardError) as caught:
        list(read_tagged(path, columns))
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "Ada\tB-PER\nLovelace\tI-PER\nwrote\tO\n\nLondon\tB-LOC\n",
        "\n\nAda B-PER\nLovelace  I-PER \nwrote O\r\n\n \nLondon B-LOC",
        "# text = Ada Lovelace wrote\nAda\tB-PER\nLovelace\tI-PER\n# inside\nwrote\tO\n\n# id\nLondon\tB-LOC\n\n",
        "-DOCSTART- -X- O O\n\nAda NNP I-NP B-PER\nLovelace NNP I-NP I-PER\nwrote VBD I-VP O\n"
        "-DOCSTART- -X- O O\nLondon NNP I-NP B-LOC\n",
        "-DOCSTART-\nAda\tB-PER\nLovelace\tI-PER\nwrote\tO\n-DOCSTART-\tO\nLondon\tB-LOC\n",
    ],
)
@pytest.mark.parametrize("name", ["a.bio", "a.conll.gz"])
def test_columns_of_many_kinds(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    assert list(read_tagged(path)) == TWO


def test_standard_input(monkeypatch):
    content = b"Ada\tB-PER\nLovelace\tI-PER\nwrote\tO\n\nLondon\tB-LOC\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert list(read_tagged("-")) == TWO


def test_chosen_columns(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("# sent_id = 1\n1\tdogs\tdog\tNOUN\t0\n2\tbark\tbark\tVERB\t1\n")
    for columns in ((2, 4), ("2", "4")):
        assert list(read_tagged(path, columns)) == [TaggedSentence(("dogs", "bark"), ("NOUN", "VERB"))]


@pytest.mark.parametrize("between", ["\t", " "])
def test_a_word_may_begin_like_a_comment(tmp_path, between):
    path = tmp_path / "a.bio"
    path.write_text(f"# one comment here\n#{between}O\n#fun{between}B-TAG\n# another one\nyes{between}O\n")
    assert list(read_tagged(path)) == [TaggedSentence(("#", "#fun", "yes"), ("O", "B-TAG", "O"))]


def test_a_word_may_have_spaces_between_tabs(tmp_path):
    path = tmp_path / "a.bio"
    path.write_text("10 000\tO\n10\N{NO-BREAK SPACE}000\tO\n", encoding="utf-8")
    assert list(read_tagged(path)) == [TaggedSentence(("10 000", "10\N{NO-BREAK SPACE}000"), ("O", "O"))]


def test_nothing_there(tmp_path):
    path = tmp_path / "a.bio"
    path.write_text("# only this\n\n")
    assert list(read_tagged(path)) == []


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("a\tO\nb\n", None, '{}, line 2: expected 2 columns, as in line 1, got 1: "b"'),
        ("# say\na O\nb c O\n", None, '{}, line 3: expected 2 columns, as in line 2, got 3: "b c O"'),
        ("a\nb\n", None, '{}, line 1: expected at least 2 columns, a word and its tag, got 1: "a"'),
        ("a\tO\n\tO\n", None, "{}, line 2: the word is empty"),
        ("a\tO\nb\t\n", None, "{}, line 2: the tag is empty"),
        ("a\tO\n", (1, 3), "{}, line 1: column 3 does not exist; the line has 2 columns"),
        ("a\tO\n", (0, 1), "data.columns: expected the column numbers of word and tag, as in 1,4, got 0, 1"),
        (
            "a\tO\n",
            ("word", "tag"),
            "data.columns: expected the column numbers of word and tag, as in 1,4, got word, tag",
        ),
        ("a\tO\n", (1,), "data.columns: expected the column numbers of word and tag, as in 1,4, got 1"),
    ],
)
def test_what_cannot_be_read(tmp_path, content, columns, message):
    path = tmp_path / "a.bio"
    path.write_text(content)
    assert refused(path, columns) == message.format(path)


def test_each_word_has_one_tag():
    with pytest.raises(RegardError) as caught:
        TaggedSentence(("a", "b"), ("O",))
    assert str(caught.value) == "expected one tag per word, got 2 words and 1 tags"
