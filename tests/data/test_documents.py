"""Documents against text that is read whole."""

import gzip
import io
import tracemalloc
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import documents
from regard.data.documents import Chunk, find_last_gap, read_documents, split_chunks
from regard.errors import RegardError
from regard.text import KINDS, TextSteps
from regard.text.learn import learn_lm_tokenizer

TEXT = "Once upon a time,\n\n  there was\ta ΣΑΣ's cat. It cost 12 €, naïve\u3000Zoë!\n" * 3
TOKENIZERS = {kind: learn_lm_tokenizer(kind, [TEXT], vocab_size=None if kind == "bytes" else 300) for kind in KINDS}
LOWER = learn_lm_tokenizer("bpe", [TEXT], vocab_size=300, steps=TextSteps(lowercase=True))

PARTS = [*TEXT.split(), " ", "  ", "\n", "\n\n", " \n", "\t", "\x1c", "\u2028", "\u3000", "\x85", "'", "e\u0301", "Σ"]
any_text = st.text(max_size=60) | st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


def whole(path, what="file"):
    """All documents, each as one text."""
    texts, held = [], ""
    for text, last in read_documents(path, what):
        held += text
        if last:
            texts.append(held)
            held = ""
    assert held == ""
    return texts


def parted(text, sizes):
    """A text in parts of these sizes, and what is left of it."""
    for size in sizes:
        yield text[:size]
        text = text[size:]
    yield text


@pytest.mark.parametrize("kind", [*KINDS, "lower"])
@given(text=any_text, sizes=st.lists(st.integers(0, 9), max_size=12), most=st.integers(0, 9))
def test_no_tokenizer_sees_where_a_document_is_cut(kind, text, sizes, most):
    tokenizer = LOWER if kind == "lower" else TOKENIZERS[kind]
    with patch.object(documents, "CHUNK_CHARACTERS", most):
        chunks = list(split_chunks(parted(text, sizes)))
    assert "".join(chunk.text for chunk in chunks) == (text if text.strip() else "")
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True] * bool(chunks)
    if text.strip():
        assert [number for chunk in chunks for number in tokenizer.encode(chunk.text)] == tokenizer.encode(text)
    assert sum(len(chunk.text.split()) for chunk in chunks) == len(text.split())


@given(any_text)
def test_the_last_gap_by_looking_at_every_place(text):
    gaps = [n for n in range(1, len(text)) if text[n].isspace() and not text[n - 1].isspace()]
    assert find_last_gap(text) == max(gaps, default=0)


@given(st.lists(st.sampled_from(["a", " ", "\r", "\n", "\r\n", "é", "☃", "🚀"]), max_size=30), st.integers(2, 6))
def test_blocks_of_any_size_hold_the_same_text(parts, size):
    raw = "".join(parts).encode()
    with patch.object(documents, "CHUNK_CHARACTERS", size), patch.object(documents, "MAX_LINE_BYTES", size):
        blocks = list(documents.iter_text_blocks(io.BytesIO(b"\xef\xbb\xbf" + raw), "text"))
    expected = raw.decode().replace("\r\n", "\n").replace("\r", "\n")
    assert "".join(blocks) == expected
    assert list(documents.iter_lines(blocks, "text")) == expected.split("\n")


def test_what_a_document_is(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_bytes("\ufeffOne \r\n  two\r\rthree\n \nfour\n".encode())
    assert whole(path) == ["One \n  two\n\nthree\n \nfour\n"]
    assert whole(path, "line") == ["One", "two", "three", "four"]
    assert whole(path, "paragraph") == ["One \n  two", "three", "four"]


def test_gzip_and_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\nb"))
    assert list(read_documents(path)) == [Chunk("a\nb", True)]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n\nb")))
    assert whole("-", "paragraph") == ["a", "b"]


def test_a_folder_is_read_in_order(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/c/d", ".hidden", ".git/config", "a/.x", "empty", "blank"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text({"empty": "", "blank": " \n"}.get(name, f"{name}\nend"))
    assert whole(tmp_path) == ["a/c/d\nend", "a/z.txt\nend", "b.txt\nend"]
    assert whole(str(tmp_path), "line") == ["a/c/d", "end", "a/z.txt", "end", "b.txt", "end"]


def test_long_documents_come_in_chunks_and_take_little_memory(tmp_path):
    path = tmp_path / "long.txt"
    line = b"word " * 19 + b"word\n"
    with path.open("wb") as file:
        for _ in range(200):
            file.write(line * 1000)
    tracemalloc.start()
    sizes = [len(text) for text, _ in read_documents(path)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == 200_000 * len(line)
    assert max(sizes) < 2**16 + 2 * len(line)
    assert peak < 2 * 2**20


def test_what_has_no_gap_is_cut_anywhere():
    with patch.object(documents, "CHUNK_CHARACTERS", 4), patch.object(documents, "MAX_LINE_BYTES", 8):
        chunks = list(split_chunks(["abc", "def", "ghi", "jk l", "m"]))
    assert chunks == [Chunk("abcdefghi", False), Chunk("jk", False), Chunk(" lm", True)]


@pytest.mark.parametrize(
    ("content", "what", "message"),
    [
        (b"", "file", "{}: no text"),
        (b" \n\n", "line", "{}: no text"),
        (b"a\nb\xffc", "file", "{}, line 2: byte 2 (0xff) is not valid UTF-8; save the file as UTF-8"),
        (b"a\nb\xc3", "line", "{}, line 2: byte 2 (0xc3) is not valid UTF-8; save the file as UTF-8"),
        (
            b"a\n\nPK\0\0",
            "paragraph",
            "{}, line 3: byte 3 is 0x00, which is not text; save the file as UTF-8",
        ),
        (b"\xff\xfea\0", "file", "{}, line 1: looks like UTF-16; save the file as UTF-8"),
        (b"\x1f\x8b\x08", "file", "{} is gzipped; rename it to end in .gz, or decompress it"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_no_text(tmp_path, content, what, message, inside):
    path = tmp_path / "text"
    path.write_bytes(content)
    named = tmp_path if inside and "no text" in message else path
    with pytest.raises(RegardError) as caught:
        list(read_documents(tmp_path if inside else path, what))
    assert str(caught.value) == message.format(named)


def test_the_line_is_right_in_later_blocks():
    with patch.object(documents, "CHUNK_CHARACTERS", 4), pytest.raises(RegardError) as caught:
        list(documents.iter_text_blocks(io.BytesIO(b"aaaa\nbbbb\ncccc\nd\xffd\n"), "text"))
    assert str(caught.value) == "text, line 4: byte 2 (0xff) is not valid UTF-8; save the file as UTF-8"


def test_a_line_may_not_be_endless():
    with patch.object(documents, "MAX_LINE_BYTES", 8), pytest.raises(RegardError) as caught:
        list(documents.iter_lines(["a\nbbbbb", "bbbbb"], "text"))
    assert str(caught.value) == "text, line 2: line is longer than 8 characters"


def test_nothing_there(tmp_path):
    for path, message in (
        (tmp_path / "none", f"cannot read {tmp_path / 'none'}: not found"),
        (tmp_path, f"{tmp_path}: no text files in this folder"),
    ):
        with pytest.raises(RegardError) as caught:
            list(read_documents(path))
        assert str(caught.value) == message
