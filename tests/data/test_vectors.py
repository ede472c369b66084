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
    vectors = read_vectors(path)
    assert vectors.words == ("the", "cat")
    assert vectors.table.tolist() == ROWS
    assert (vectors.width, vectors.announced) == (2, None)


def test_other_spaces_are_part_of_a_word(tmp_path):
    (tmp_path / "v.txt").write_text("a\u00a0b 1\n\u2028 2\n7 3\n", encoding="utf-8")
    vectors = read_vectors(tmp_path / "v.txt")
    assert (vectors.words, vectors.table[1:, 0].tolist()) == (("a\u00a0b", "\u2028", "7"), [1, 2, 3])


def test_a_file_that_was_cut_is_told_from_a_whole_one(tmp_path):
    (tmp_path / "v.txt").write_text("9 2\nthe 0.5 -1\ncat 2 0.25\n")
    vectors = read_vectors(tmp_path / "v.txt")
    assert (vectors.announced, vectors.table.tolist()) == (9, ROWS)


@given(st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3)))
def test_every_number_is_read_as_it_is(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("vectors") / "v.txt"
    path.write_text("x 1 2 3\n" + "".join(f"w{n} {' '.join(map(repr, row))}\n" for n, row in enumerate(rows)))
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "BLOCK", 2)
        vectors = read_vectors(path, counts.append)
    assert vectors.words == ("x", *(f"w{n}" for n in range(len(rows))))
    assert np.array_equal(vectors.table.numpy(), np.array([[0, 0, 0], [1, 2, 3], *rows], dtype=np.float32))
    assert counts[-1] == len(rows) + 1


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", " is empty: expected lines of a word and its values"),
        ("\n \n", " is empty: expected lines of a word and its values"),
        ("2 2\n", ": no words; expected lines of a word and its values"),
        ("2 999999999999\n", ": no words; expected lines of a word and its values"),
        ("<unk> 1 2\n", ": no words; expected lines of a word and its values"),
        ("the\n", ', line 1: expected a word and its values, separated by spaces, got "the"'),
        ("3 0\n", ", line 1: the vector dimension must be at least 1, got 0"),
        ("a 1 2\nb 1\n", ', line 2: expected 2 values, as in the first line, got 1 for "b"'),
        ("a 1 2\nb 1 2 3\n", ', line 2: expected 2 values, as in the first line, got 3 for "b"'),
        ("1 3\n\na 1 2\n", ', line 3: expected 3 values, as in the first line, got 2 for "a"'),
        ("a 1 2\nb\n", ', line 2: expected 2 values, as in the first line, got 0 for "b"'),
        ("a 1 2\nb 1 x\n", ', line 2: expected a finite number for "b", got "x"'),
        ("a 1 2\nb 1 0,5\n", ', line 2: expected a finite number for "b", got "0,5"'),
        ("a 1 1_0\n", ', line 1: expected a finite number for "a", got "1_0"'),
        ("a 1 2\nb nan 2\n", ', line 2: expected a finite number for "b", got "nan"'),
        ("a 1 -inf\n", ', line 1: expected a finite number for "a", got "-inf"'),
        ("a 1 1e39\n", ', line 1: expected a finite number for "a", got "1e39"'),
        ("a 1 ½\n", ', line 1: expected a finite number for "a", got "½"'),
        (b"a 1\n\xff 2\n", ", line 2: byte 1 (0xff) is not valid UTF-8; save the file as UTF-8"),
        (b"1 1\na\0 2\n", ", line 2: byte 2 is 0x00, which is not text; save the file as UTF-8"),
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
    assert str(caught.value) == f"cannot read {tmp_path}/none: not found"
