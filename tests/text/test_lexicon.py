import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import UNKNOWN
from regard.errors import RegardError
from regard.text.lexicon import MOST_PIECES, Lexicon, learn_lexicon, words_of

TEXTS = [["the", "cat", "saw", "The", "dog"], ["the", "cat", "ran"]]
LEXICON = learn_lexicon(TEXTS, ["x", "y"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, it\u2019s 3.5-4!", ["Don't", "stop", ",", "it\u2019s", "3.5-4", "!"]),
        ("wait...what?!", ["wait", ".", ".", ".", "what", "?", "!"]),
        ("'tis the boys' cat", ["'", "tis", "the", "boys", "'", "cat"]),
        ("e.g. U.S. state-of-the-art", ["e.g", ".", "U.S", ".", "state-of-the-art"]),
        ("snake_case __init__ _", ["snake_case", "__", "init", "__", "_"]),
        ("我爱你。OK", ["我", "爱", "你", "。", "OK"]),
        ("全角　スペース", ["全", "角", "ス", "ペ", "ー", "ス"]),  # an ideographic space is no word
        ("한국어 문장", ["한국어", "문장"]),
        ("great 😀😀 👍", ["great", "😀", "😀", "👍"]),
        ("a ❤️ b", ["a", "❤️", "b"]),  # with the sign that asks for a picture
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs are no letters to Python, but no words either
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
        ("می\u200cشود", ["می\u200cشود"]),  # a joiner inside a word
        ("ดีใจ", ["ดี", "ใ", "จ"]),
        ("#tag @me http://x.y/z", ["#", "tag", "@", "me", "http", ":", "/", "/", "x.y", "/", "z"]),
        ("  \t\u00a0 ", []),
        ("", []),
    ],
)
def test_words_and_signs(text, words):
    assert words_of(text) == words


@given(st.text())
def test_nothing_of_a_text_is_lost_but_space(text):
    found = words_of(text)
    assert "".join(found) == "".join(text.split())
    assert all(found)


def test_the_most_frequent_words_come_first():
    assert LEXICON.words == ("the", "cat", "dog", "ran", "saw")  # equally frequent ones by name
    assert (LEXICON.size, LEXICON.labels) == (9, ("x", "y"))
    numbers = [word.number for word in LEXICON.encode(["the", "cat", "saw", "cow"])]
    assert numbers == [4, 5, 8, UNKNOWN]
    assert learn_lexicon(TEXTS, ["x", "y"], size=1).words == ("the",)
    assert learn_lexicon(TEXTS, ["x", "y"], least_count=2).words == ("the", "cat")
    letters = len(set("".join("".join(text) for text in TEXTS)))
    assert LEXICON.vocabulary == {"words": 9, "pieces": 4 + letters, "labels": 2}
    assert LEXICON.sizes() == {"words": 9, "pieces": 4 + letters, "labels": ("x", "y")}


def test_words_are_looked_up_in_lower_case_with_all_digits_alike():
    lexicon = learn_lexicon([["Cat", "x86"]], ["x", "y"])
    assert lexicon.words == ("cat", "x00")
    cat, title, shouted = lexicon.encode(["cat", "Cat", "CAT"])
    assert cat.number == title.number == shouted.number == 4
    assert len({cat.pieces, title.pieces, shouted.pieces}) == 3  # the letters are those that are written
    assert [word.number for word in lexicon.encode(["X99", "x8"])] == [5, UNKNOWN]


def test_where_words_are_not_spelt_they_are_known_as_they_are_written():
    lexicon = learn_lexicon(TEXTS, ["x", "y"], kind="words")
    assert sorted(lexicon.words) == ["The", "cat", "dog", "ran", "saw", "the"]
    the, title, shouted = lexicon.encode(["the", "The", "THE"])
    assert the.number != title.number
    assert shouted.number == UNKNOWN


def test_a_vector_is_that_of_the_word_as_it_is_written_or_of_its_lower_case_form():
    lexicon = replace(LEXICON, vectors=("The", "the", "paris", "USA"), vectors_width=3)
    words = lexicon.encode(["The", "the", "THE", "Paris", "USA", "usa", "cat", ""])
    assert [word.vector for word in words] == [1, 2, 2, 3, 4, 0, 0, 0]
    assert [word.number for word in words[:4]] == [4, 4, 4, UNKNOWN]  # the words that are learnt are what they were
    assert lexicon.sizes() == {**LEXICON.sizes(), "vectors": 4, "vectors_width": 3}
    assert lexicon.vocabulary == {**LEXICON.vocabulary, "vectors": 4}


def test_a_file_has_the_words_of_vectors_again(tmp_path):
    lexicon = replace(LEXICON, vectors=("The", "ünë", "b"), vectors_width=3)
    (tmp_path / "tokenizer.json").write_text(lexicon.to_json(), encoding="utf-8")
    again = Lexicon.load(tmp_path / "tokenizer.json")
    assert (again.vectors, again.vectors_width) == (("The", "ünë", "b"), 3)
    assert again.to_json() == lexicon.to_json()


def test_words_of_unlabelled_text_come_behind_those_of_labelled_texts():
    further = {"cow": 2, "Cow": 1, "owl": 4, "the": 9, "x1": 1, "X2": 1, "once": 1, "eel": 2, "éé": 1}
    lexicon = learn_lexicon(TEXTS, ["x", "y"], unlabelled=further, more=99)
    assert lexicon.words == (*LEXICON.words, "owl", "cow", "eel", "x0")  # as often as they are looked up
    assert lexicon.unlabelled == 4
    assert lexicon.encode(["é"])[0].pieces == (UNKNOWN,)  # nor are the letters of words that are seen once known
    assert UNKNOWN not in lexicon.encode(["owl"])[0].pieces
    assert UNKNOWN in LEXICON.encode(["owl"])[0].pieces
    assert lexicon.sizes()["unlabelled"] == lexicon.vocabulary["unlabelled"] == 4
    assert learn_lexicon(TEXTS, ["x", "y"], unlabelled=further, more=1).words == (*LEXICON.words, "owl")
    few = learn_lexicon(TEXTS, ["x", "y"], size=1, unlabelled={"dog": 2}, more=9)
    assert (few.words, few.unlabelled) == (("the", "dog"), 1)
    once_each = learn_lexicon(TEXTS, ["x", "y"], unlabelled={"Żo": 1, "żo": 1}, more=9)
    assert once_each.words[-1] == "żo"
    assert UNKNOWN not in once_each.encode(["żo"])[0].pieces


def test_a_file_tells_which_words_only_unlabelled_text_has(tmp_path):
    lexicon = learn_lexicon(TEXTS, ["x", "y"], unlabelled={"owl": 2}, more=9)
    (tmp_path / "tokenizer.json").write_text(lexicon.to_json(), encoding="utf-8")
    again = Lexicon.load(tmp_path / "tokenizer.json")
    assert (again.words, again.unlabelled, again.to_json()) == (lexicon.words, 1, lexicon.to_json())


def test_a_word_is_spelt_with_its_letters():
    word, again = LEXICON.encode(["act", "tac"])
    assert word.pieces == again.pieces[1:] + again.pieces[:1]
    assert LEXICON.encode(["zq"])[0].pieces == (UNKNOWN, UNKNOWN)
    assert LEXICON.encode([""])[0] == (UNKNOWN, (UNKNOWN,), 0)


def test_of_a_long_word_beginning_and_end_are_read():
    word = "".join("abcdefghij"[place % 10] for place in range(100))
    lexicon = learn_lexicon([[word]], ["x", "y"])
    half = MOST_PIECES // 2
    assert len(lexicon.encode([word])[0].pieces) == MOST_PIECES
    assert lexicon.encode([word])[0].pieces == lexicon.encode([word[:half] + word[-half:]])[0].pieces
    short = word[:MOST_PIECES]
    assert lexicon.encode([short])[0].pieces == tuple(lexicon.pieces.encode(short))


def test_not_all_words_that_are_ever_looked_up_are_kept(monkeypatch):
    monkeypatch.setattr("regard.text.lexicon.MOST_KEPT", 3)
    lexicon = learn_lexicon([["a", "b"]], ["x", "y"])
    words = [*"abcdefgab"]
    assert lexicon.encode(words) == tuple(lexicon.encode([word])[0] for word in words)
    assert len(lexicon._known) <= 3


def test_pieces_can_be_subwords():
    lexicon = learn_lexicon([["low", "lower", "lowest"] * 9], ["x", "y"], kind="bpe")
    (word,) = lexicon.encode(["lower"])
    assert lexicon.pieces.kind == "bpe"
    assert 1 <= len(word.pieces) < 5
    assert lexicon.pieces.decode(list(word.pieces)) == "lower"


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=8),
    st.sampled_from(["characters", "bytes", "words"]),
)
def test_a_file_gives_the_same_lexicon_again(tmp_path_factory, words, kind):
    lexicon = learn_lexicon([words], ["Ünë", 'b"\n'], kind=kind)
    path = tmp_path_factory.mktemp("lexicon") / "tokenizer.json"
    path.write_text(lexicon.to_json(), encoding="utf-8")
    again = Lexicon.load(path)
    assert (again.words, again.labels, again.pieces.kind) == (lexicon.words, lexicon.labels, lexicon.pieces.kind)
    asked = [*words, "never seen", *map(str.lower, words)]
    assert again.encode(asked) == lexicon.encode(asked)
    assert again.to_json() == lexicon.to_json()


def changed(**change: object) -> bytes:
    return json.dumps({**json.loads(LEXICON.to_json()), **change}).encode()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff{}", "is no JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"[]", "has no version; this regard reads lexicons of version 1"),
        (changed(version=2), "has version 2; this regard reads lexicons of version 1"),
        (changed(pieces=None), "pieces: there is no tokenizer"),
        (changed(pieces={"kind": "letters"}),
         'pieces: kind: there is no "letters"; there are: bpe, bytes, characters, unigram, words'),
        (changed(words="cat"), "words is no list of texts; restore it from a copy"),
        (changed(labels=["x", 3]), "labels is no list of texts; restore it from a copy"),
        (changed(vectors=["x"]), "vectors has no width; restore it from a copy"),
        (changed(unlabelled=99), "unlabelled is not the number of some of its words; restore it from a copy"),
        (changed(unlabelled="1"), "unlabelled is not the number of some of its words; restore it from a copy"),
        (changed(vectors={"width": 2, "words": 3}), "words is no list of texts; restore it from a copy"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line(content, line, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(RegardError) as caught:
        Lexicon.load(path)
    assert str(caught.value) == f"{path}: {line}"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RegardError) as caught:
        Lexicon.load(tmp_path / "none.json")
    assert str(caught.value) == f"{tmp_path}/none.json: cannot be read: No such file or directory"
