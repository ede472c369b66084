"""Files of word vectors: every form that is met, and what is wrong with others."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.formats import vectors as vectors_module
from regard.data.formats.vectors import read_vectors
from regard.errors import RegardError

ROWS = [[0, 0], [0.5, -1], [2, 0.25]]
"""Nothing, and the vectors of the two words that most files here have."""


@pytest.mark.parametrize(
    "content",
    [
        "the 0.5 -1\ncat 2 0.25\n",
        "2 2\nthe 0.5 -1\ncat 2 0.25\n",
        "the 0.5 -1 \ncat 2.0e0 25e-2 ",  # as word2vec writes it, and without an end
        "\ufeffthe\t0.5\t-1\r\n\r\ncat  2   .25\r\n\n",
        "the 0.5 -1\ncat 2 0.25\nthe 7 7\ncat 8 8\n",  # of a word twice the first
        "<unk> 9 9\nthe 0.5 -1\n<UNK> 9 9\ncat 2 0.25\n",
        "the 0.5 -1\n. . . 3 4\nat a@b.c 3 4\ncat 2 0.25\n",  # as in the GloVe of 840 billion words
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_words_and_their_vectors(content, zipped, tmp_path):
    path = tmp_path / ("v.txt.gz" if zipped else "v.txt")
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    found = read_vectors(path)
    assert found.words == ("the", "cat")
    assert found.table.tolist() == ROWS
    assert (found.width, found.announced) == (2, None)


def test_other_spaces_are_part_of_a_word(tmp_path):
    (tmp_path / "v.txt").write_text("a\u00a0b 1\n\u2028 2\n7 3\n", encoding="utf-8")
    found = read_vectors(tmp_path / "v.txt")
    assert (found.words, found.table[1:, 0].tolist()) == (("a\u00a0b", "\u2028", "7"), [1, 2, 3])


def test_a_file_that_was_cut_is_told_from_a_whole_one(tmp_path):
    (tmp_path / "v.txt").write_text("9 2\nthe 0.5 -1\ncat 2 0.25\n")
    found = read_vectors(tmp_path / "v.txt")
    assert (found.announced, found.table.tolist()) == (9, ROWS)


@given(st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3)))
def test_every_number_is_read_as_it_is(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("vectors") / "v.txt"
    path.write_text("x 1 2 3\n" + "".join(f"w{n} {' '.join(map(repr, row))}\n" for n, row in enumerate(rows)))
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "BLOCK", 2)
        found = read_vectors(path, counts.append)
    assert found.words == ("x", *(f"w{n}" for n in range(len(rows))))
    assert np.array_equal(found.table.numpy(), np.array([[0, 0, 0], [1, 2, 3], *rows], dtype=np.float32))
    assert counts[-1] == len(rows) + 1


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", ": is empty; lines of a word and its numbers are needed"),
        ("\n \n", ": is empty; lines of a word and its numbers are needed"),
        ("2 2\n", ": there is no word in it; lines of a word and its numbers are needed"),
        ("2 999999999999\n", ": there is no word in it; lines of a word and its numbers are needed"),
        ("<unk> 1 2\n", ": there is no word in it; lines of a word and its numbers are needed"),
        ("the\n", ', line 1: found "the"; a word and its numbers are needed, with spaces between'),
        ("3 0\n", ", line 1: says that a vector has 0 numbers; 1 is the least"),
        ("a 1 2\nb 1\n", ', line 2: "b" has 1 numbers; 2 are needed, as in the first line'),
        ("a 1 2\nb 1 2 3\n", ', line 2: "b" has 3 numbers; 2 are needed, as in the first line'),
        ("1 3\n\na 1 2\n", ', line 3: "a" has 2 numbers; 3 are needed, as in the first line'),
        ("a 1 2\nb\n", ', line 2: "b" has 0 numbers; 2 are needed, as in the first line'),
        ("a 1 2\nb 1 x\n", ', line 2: "b" has "x" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 2\nb 1 0,5\n", ', line 2: "b" has "0,5" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 1_0\n", ', line 1: "a" has "1_0" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 2\nb nan 2\n", ', line 2: "b" has "nan" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 -inf\n", ', line 1: "a" has "-inf" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 1e39\n", ', line 1: "a" has "1e39" among its numbers; finite numbers such as -0.25 are needed'),
        ("a 1 ½\n", ', line 1: "a" has "½" among its numbers; finite numbers such as -0.25 are needed'),
        (b"a 1\n\xff 2\n", ", line 2: byte 1 is 0xff, which is no UTF-8 there; save the file as UTF-8"),
        (b"1 1\na\0 2\n", ", line 2: byte 2 is 0x00, which text never holds; save the file as UTF-8"),
    ],
)
def test_what_is_no_file_of_vectors_is_one_line(content, line, tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RegardError) as caught:
        read_vectors(path)
    assert str(caught.value) == f"{path}{line}"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RegardError) as caught:
        read_vectors(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: there is no such file"
