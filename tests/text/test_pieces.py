import re
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.text.pieces import WHITESPACE, format_piece, list_byte_characters, map_pieces_to_words


def test_whitespace_is_where_split_parts():
    spaces = {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert set(re.findall(f"[{WHITESPACE}]", everything)) == spaces


def test_bytes_are_written_as_the_library_does():
    assert sorted(list_byte_characters()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "".join(map(chr, range(0x800))) + "\uffff\U0010ffff"  # UTF-8 of these has every byte it can have
    ((written, _),) = level.pre_tokenize_str(text)
    assert written == "".join(list_byte_characters()[byte] for byte in text.encode())


@pytest.mark.parametrize(
    ("piece", "looks"),
    [
        (b"word", "word"),
        (b" word", "▁word"),
        ("é☃".encode(), "é☃"),
        ("☃".encode()[:2], r"\xe2\x98"),
        (b"\x83!", r"\x83!"),
        (b"\n", r"\n"),
        ("\u200d".encode(), r"\u200d"),
        (b"", ""),
    ],
)
def test_every_piece_can_be_shown(piece, looks):
    assert format_piece(piece) == looks


def test_words_of_pieces_by_hand():
    pieces = [b" ", b"two", b" wo", b"rds", b"  ", b" \xe2", b"\x98\x83", b"a b"]
    assert map_pieces_to_words(pieces) == [None, 0, 1, 1, None, 2, 2, 2]


@given(st.binary(max_size=20), st.sets(st.integers(1, 19)))
def test_every_word_has_its_pieces(text, cuts):
    cuts = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    single = map_pieces_to_words([text[index : index + 1] for index in range(len(text))])
    words = text.decode("utf-8", "replace").split()
    assert sorted({word for word in single if word is not None}) == list(range(len(words)))
    expected = [min((w for w in single[start:stop] if w is not None), default=None) for start, stop in pairwise(cuts)]
    assert map_pieces_to_words([text[start:stop] for start, stop in pairwise(cuts)]) == expected
