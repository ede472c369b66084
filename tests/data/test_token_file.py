"""Token files against tokens that are made at once."""

import hashlib
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.batch import BOS, EOS, UNKNOWN
from regard.data.documents import Chunk
from regard.data.token_file import TokenFile, compute_checksums, compute_text_checksum, write_tokens
from regard.errors import RegardError
from regard.text import KINDS
from regard.text.learn import learn_lm_tokenizer

WORDS = learn_lm_tokenizer("words", ["a b c\n"])  # \n: 4, a: 5, b: 6, c: 7
TEXT = "Once upon a time\nthere was  a cat.\n"
TOKENIZERS = {kind: learn_lm_tokenizer(kind, [TEXT] * 2, vocab_size=None if kind == "bytes" else 280) for kind in KINDS}


def spans(*rows):
    return np.array(rows, np.int64)


def test_documents_by_hand(tmp_path):
    chunks = [Chunk("a b", False), Chunk("\n  d", True), Chunk("cat", True), Chunk("c", True)]
    file = write_tokens(tmp_path / "new" / "text.tokens", chunks, WORDS)
    assert file.tokens.tolist() == [BOS, 5, 6, 4, UNKNOWN, EOS, BOS, UNKNOWN, EOS, BOS, 7, EOS]
    assert file.tokens.dtype == np.uint16
    assert (file.starts.tolist(), file.stops.tolist()) == ([0, 6, 9], [6, 9, 12])
    assert (len(file), file.words, file.characters, file.totals.unknown) == (3, 5, 11, 2)
    assert file.totals.sha256 == hashlib.sha256(b"a b\n  d\0cat\0c\0").hexdigest()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["text.documents", "text.json", "text.tokens"]
    again = TokenFile.open(str(tmp_path / "new" / "text.tokens"))
    assert again.tokens.tolist() == file.tokens.tolist()
    assert again.stops.tolist() == file.stops.tolist()
    assert again.totals == file.totals


def test_the_text_decides_the_checksum_and_not_its_chunks(tmp_path):
    checksums = {
        write_tokens(tmp_path / "text", chunks, WORDS).totals.sha256
        for chunks in (
            [Chunk("a b", True)],
            [Chunk("a", False), Chunk(" b", True)],
        )
    }
    assert len(checksums) == 1
    assert write_tokens(tmp_path / "text", [Chunk("a", True), Chunk(" b", True)], WORDS).totals.sha256 not in checksums


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text("aé\n ", max_size=5), st.booleans()), max_size=6))
def test_the_checksum_without_tokens_is_that_of_the_text(tmp_path_factory, parts):
    chunks = [*(Chunk(text, last) for text, last in parts), Chunk("end", True)]
    checksum = compute_text_checksum(iter(chunks))
    assert checksum == hashlib.sha256("".join(text + "\0" * last for text, last in chunks).encode()).hexdigest()
    assert checksum == write_tokens(tmp_path_factory.mktemp("sums") / "text", chunks, WORDS).totals.sha256
    assert compute_text_checksum([]) == hashlib.sha256().hexdigest()


def test_large_vocabularies_take_four_bytes(tmp_path):
    many = learn_lm_tokenizer("words", [" ".join(map(str, range(70_000)))], vocab_size=70_000)
    file = write_tokens(tmp_path / "text", [Chunk("69990 a", True)], many)
    assert file.tokens.dtype == np.uint32
    assert file.tokens.tolist() == [BOS, *many.encode("69990 a"), EOS]
    assert max(many.encode("9999 99 69")) > 2**16


@pytest.mark.slow
def test_memory_stays_flat(tmp_path):
    text = "abcdefghijklmnopqrstuvwxyz12345 " * 2**15  # a mebibyte
    tokenizer = learn_lm_tokenizer("words", [text])
    tracemalloc.start()
    file = write_tokens(tmp_path / "text", (Chunk(text, number == 19) for number in range(20)), tokenizer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(file.tokens) == 20 * 2**15 + 2
    assert file.characters == 20 * len(text)
    assert peak < 16 * 2**20  # the words of one chunk, twice


def test_nothing_is_left_of_what_fails(tmp_path):
    def failing():
        yield Chunk("a", True)
        raise RegardError("text, line 2: is bad")

    path = tmp_path / "text"
    write_tokens(path, [Chunk("a", True)], WORDS)
    with pytest.raises(RegardError, match=r"^text, line 2: is bad$"):
        write_tokens(path, failing(), WORDS)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["text", "text.documents"]
    with pytest.raises(RegardError) as caught:
        TokenFile.open(path)
    assert str(caught.value) == f"cannot read {tmp_path / 'text.json'}: not found"
    with pytest.raises(RegardError, match=r"^text is empty: expected at least one document$"):
        write_tokens(path, [], WORDS)
    (tmp_path / "file").touch()
    with pytest.raises(RegardError) as caught:
        write_tokens(tmp_path / "file" / "text", [Chunk("a", True)], WORDS)
    assert str(caught.value) == f"cannot write {tmp_path / 'file' / 'text'}: not a directory"


def test_damage_is_seen(tmp_path):
    path = tmp_path / "text.tokens"
    write_tokens(path, [Chunk("a b", True)], WORDS)
    card = tmp_path / "text.json"
    for file in (path, tmp_path / "text.documents"):
        content = file.read_bytes()
        file.write_bytes(content[:2] + bytes([content[2] ^ 1]) + content[3:])
        with pytest.raises(RegardError) as caught:
            TokenFile.open(path)
        assert str(caught.value) == (
            f"{path} is corrupt: its checksum differs from text.json; delete {card} to tokenize the text again"
        )
        file.write_bytes(content)
    path.write_bytes(path.read_bytes()[:-1])
    for content, message in (
        (None, f"{path} is corrupt: expected 8 bytes, got 7; delete {card} to tokenize the text again"),
        ("{", f"{card} is corrupt: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); "),
        ("[" * 100_000, f"{card} is corrupt: maximum recursion depth exceeded "),
        (json.dumps({"version": 9}), f"{card}: expected tokens of version 1, got 9"),
        (json.dumps([]), f"{card}: expected tokens of version 1, got none"),
    ):
        if content is not None:
            card.write_text(content)
        with pytest.raises(RegardError) as caught:
            TokenFile.open(path)
        assert str(caught.value).startswith(message)


def sign(path):
    """Put the checksums of changed files on their card, so that something else is at fault."""
    card = path.with_suffix(".json")
    card.write_text(json.dumps({**json.loads(card.read_text()), "sha256": compute_checksums(path)}))


def test_tokens_that_no_tokenizer_wrote_are_seen(tmp_path):
    path = tmp_path / "text.tokens"
    write_tokens(path, [Chunk("a b", True)], WORDS)
    ending = f"; delete {tmp_path}/text.json to tokenize the text again"
    path.write_bytes(b"\xff\xff" * 4)
    sign(path)
    with pytest.raises(RegardError) as caught:
        TokenFile.open(path, WORDS.size)
    assert str(caught.value) == f"{path} is corrupt: expected token ids below {WORDS.size}, got 65535{ending}"
    (tmp_path / "text.documents").write_bytes(b"\xff" * 8)
    sign(path)
    with pytest.raises(RegardError) as caught:
        TokenFile.open(path)
    message = f"{tmp_path}/text.documents is corrupt: expected documents of 4 tokens in all{ending}"
    assert str(caught.value) == message
