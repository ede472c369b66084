"""Parts of a text against the whole, which the tokenizer writes at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import KINDS, learn_tokenizer
from regard.text.decode_stream import decode_stream
from regard.text.learn import learn_lm_tokenizer

TEXTS = ["a cat\nsees the é ☃", "the cat  sees a\tdog\n"] * 2
TOKENIZERS = {
    (kind, make.__name__): make(kind, TEXTS, vocab_size=None if kind == "bytes" else 290)
    for kind in KINDS
    for make in (learn_tokenizer, learn_lm_tokenizer)
}
RUNNING = {kind: TOKENIZERS[kind, "learn_lm_tokenizer"] for kind in KINDS}


def tokens(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), max_size=12)


@pytest.mark.parametrize(("kind", "made"), TOKENIZERS)
@given(st.data())
def test_parts_joined_are_the_text_of_all_tokens(kind, made, data):
    tokenizer = TOKENIZERS[kind, made]
    ids = data.draw(tokens(tokenizer.size))
    parts = list(decode_stream(tokenizer, ids))
    assert "".join(parts) == tokenizer.decode_raw(ids)
    assert len(parts) == len(ids) + 1


@pytest.mark.parametrize("kind", KINDS)
@given(prompt=st.text("act he\nsé☃", max_size=12), data=st.data())
def test_behind_a_prompt_they_are_what_the_whole_has_more(kind, prompt, data):
    tokenizer = RUNNING[kind]
    before = tokenizer.encode(prompt)
    prompt = tokenizer.decode_raw(before)  # spaces between words as they are written, <unk> for the unknown
    ids = data.draw(tokens(tokenizer.size))
    decoded = "".join(decode_stream(tokenizer, ids, prompt))
    assert prompt + decoded == tokenizer.decode_raw([*before, *ids])


def test_half_a_character_waits_for_the_rest():
    tokenizer = RUNNING["bytes"]
    first, second, third = tokenizer.encode("☃")
    (a,) = tokenizer.encode("a")
    assert list(decode_stream(tokenizer, [first, second, third, a])) == ["", "", "☃", "a", ""]
    assert list(decode_stream(tokenizer, [first, second])) == ["", "", "\N{REPLACEMENT CHARACTER}"]
    assert list(decode_stream(tokenizer, [first, a])) == ["", "\N{REPLACEMENT CHARACTER}a", ""]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("", "the cat"), ("a", " the cat"), ("a ", "the cat"), ("a\n", "the cat"), ("a\t", "the cat"), (" ", "the cat")],
)
def test_a_word_has_one_space_before_it(prompt, text):
    tokenizer = RUNNING["words"]
    assert "".join(decode_stream(tokenizer, tokenizer.encode("the cat"), prompt)) == text


def test_lines_of_words_begin_without_a_space():
    tokenizer = RUNNING["words"]
    ids = tokenizer.encode("a\nthe\n\ncat sees")
    assert list(decode_stream(tokenizer, ids, "dog")) == [" a", "\n", "the", "\n", "\n", "cat", " sees", ""]


def test_parts_come_one_by_one():
    tokenizer = RUNNING["characters"]
    given_so_far = []

    def drawn():
        for number in tokenizer.encode("cat"):
            given_so_far.append(number)
            yield number

    parts = decode_stream(tokenizer, drawn())
    assert (next(parts), len(given_so_far)) == ("c", 1)
    assert (next(parts), len(given_so_far)) == ("a", 2)
