"""Text without labels, cut into sentences, as numbers."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.unlabeled import MAX_SENTENCE_WORDS, read_unlabeled, split_sentences, split_text_words
from regard.errors import RegardError


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("it rains . we stay ; they go", ["it rains .", "we stay ;", "they go"]),
        ("no end here", ["no end here"]),
        ("really ? ! . . . yes", ["really ? ! . . .", "yes"]),
        (". a", [".", "a"]),
        ("Mr. Poe left .", ["Mr. Poe left ."]),  # only a sign by itself ends a sentence
        ("", []),
    ],
)
def test_a_line_is_cut_behind_what_ends_a_sentence(line, sentences):
    assert [" ".join(words) for words in split_sentences(line.split())] == sentences


def test_a_long_sentence_is_cut_where_it_has_become_too_long():
    words = [*map(str, range(150)), ".", "a", "b"]
    sentences = list(split_sentences(words))
    assert [len(each) for each in sentences] == [70, 70, 11, 2]
    assert sentences[2] == [*map(str, range(140, 150)), "."]


@given(st.lists(st.sampled_from(["a", "b", ".", "!", ";"]), max_size=300))
def test_nothing_is_lost_by_cutting(words):
    sentences = list(split_sentences(words))
    assert [word for each in sentences for word in each] == words
    assert all(0 < len(each) <= MAX_SENTENCE_WORDS for each in sentences)


def test_words_are_numbers_in_the_order_of_their_first_places(tmp_path):
    (tmp_path / "a.txt").write_text("b a <unk> b .\n\n  lone\na c\n")
    shown: list[int] = []
    unlabeled = read_unlabeled(tmp_path / "a.txt", str.split, shown.append)
    assert unlabeled.vocabulary == ("b", "a", "<unk>", ".", "c")  # a sentence of one word has no neighbors
    assert unlabeled.word_indices.tolist() == [0, 1, 2, 0, 3, 1, 4]
    assert (unlabeled.word_indices.dtype, unlabeled.starts.tolist()) == (np.int32, [0, 5, 7])
    assert (len(unlabeled), unlabeled.lines, shown) == (2, 3, [0])
    assert unlabeled.count_words() == {"b": 2, "a": 2, ".": 1, "c": 1}


def test_a_folder_and_gzipped_files_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "one.txt").write_text("c d\ne f\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt.gz").write_bytes(gzip.compress(b"c d\n"))
    (tmp_path / "text/b.txt").write_text("e f")
    one, folder = (read_unlabeled(tmp_path / name, str.split) for name in ("one.txt", "text"))
    assert folder.vocabulary == one.vocabulary == ("c", "d", "e", "f")
    assert folder.sha256 == one.sha256
    (tmp_path / "text/b.txt").write_text("e  f")
    assert read_unlabeled(tmp_path / "text", str.split).sha256 != one.sha256


def test_texts_are_cut_as_those_to_label_are():
    assert split_text_words("Don't, <unk> <unk>!") == ["Don't", ",", "<unk>", "<unk>", "!"]
    assert split_text_words("<unk>") == ["<unk>"]
    assert split_text_words("") == []


def test_what_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "few.txt").write_text("one sentence .\nlone\n")
    (tmp_path / "odd.txt").write_bytes(b"a b\n\xff c\n")
    (tmp_path / "folder").mkdir()
    for name, line in (
        ("none.txt", "not found"),
        ("empty.txt", ": expected at least two sentences of two words"),
        ("few.txt", ": expected at least two sentences of two words"),
        ("odd.txt", ", line 2: byte 1 (0xff) is not valid UTF-8; save the file as UTF-8"),
        ("folder", ": no text files in this folder"),
    ):
        with pytest.raises(RegardError) as caught:
            read_unlabeled(tmp_path / name, str.split)
        assert str(caught.value) == (
            f"cannot read {tmp_path / name}: {line}" if line == "not found" else f"{tmp_path / name}{line}"
        )
    line = "standard input: unlabeled text may be read more than once; save it to a file"
    with pytest.raises(RegardError, match=f"^{line}$"):
        read_unlabeled("-", str.split)
