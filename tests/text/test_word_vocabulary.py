import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import UNKNOWN
from regard.errors import RegardError
from regard.text.word_vocabulary import MAX_PIECES, WordVocabulary, learn_word_vocabulary, split_words

TEXTS = [["the", "cat", "saw", "The", "dog"], ["the", "cat", "ran"]]
VOCABULARY = learn_word_vocabulary(TEXTS, ["x", "y"])


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
    assert split_words(text) == words


@given(st.text())
def test_nothing_of_a_text_is_lost_but_space(text):
    words = split_words(text)
    assert "".join(words) == "".join(text.split())
    assert all(words)


def test_the_most_frequent_words_come_first():
    assert VOCABULARY.words == ("the", "cat", "dog", "ran", "saw")  # equally frequent ones by name
    assert (VOCABULARY.size, VOCABULARY.labels) == (9, ("x", "y"))
    numbers = [word.word_id for word in VOCABULARY.encode(["the", "cat", "saw", "cow"])]
    assert numbers == [4, 5, 8, UNKNOWN]
    assert learn_word_vocabulary(TEXTS, ["x", "y"], vocab_size=1).words == ("the",)
    assert learn_word_vocabulary(TEXTS, ["x", "y"], min_frequency=2).words == ("the", "cat")
    letters = len(set("".join("".join(text) for text in TEXTS)))
    assert VOCABULARY.vocabulary == {"words": 9, "pieces": 4 + letters, "labels": 2}
    assert VOCABULARY.sizes() == {"words": 9, "pieces": 4 + letters, "labels": ("x", "y")}


def test_words_are_looked_up_in_lower_case_with_all_digits_alike():
    lexicon = learn_word_vocabulary([["Cat", "x86"]], ["x", "y"])
    assert lexicon.words == ("cat", "x00")
    cat, title, shouted = lexicon.encode(["cat", "Cat", "CAT"])
    assert cat.word_id == title.word_id == shouted.word_id == 4
    assert len({cat.pieces, title.pieces, shouted.pieces}) == 3  # the letters are those that are written
    assert [word.word_id for word in lexicon.encode(["X99", "x8"])] == [5, UNKNOWN]


def test_where_words_are_not_spelt_they_are_known_as_they_are_written():
    lexicon = learn_word_vocabulary(TEXTS, ["x", "y"], kind="words")
    assert sorted(lexicon.words) == ["The", "cat", "dog", "ran", "saw", "the"]
    the, title, shouted = lexicon.encode(["the", "The", "THE"])
    assert the.word_id != title.word_id
    assert shouted.word_id == UNKNOWN


def test_a_vector_is_that_of_the_word_as_it_is_written_or_of_its_lower_case_form():
    lexicon = replace(VOCABULARY, vectors=("The", "the", "paris", "USA"), vectors_width=3)
    words = lexicon.encode(["The", "the", "THE", "Paris", "USA", "usa", "cat", ""])
    assert [word.vector_id for word in words] == [1, 2, 2, 3, 4, 0, 0, 0]
    assert [word.word_id for word in words[:4]] == [4, 4, 4, UNKNOWN]  # the words that are learned are what they were
    assert lexicon.sizes() == {**VOCABULARY.sizes(), "vectors": 4, "vectors_width": 3}
    assert lexicon.vocabulary == {**VOCABULARY.vocabulary, "vectors": 4}


def test_a_file_has_the_words_of_vectors_again(tmp_path):
    lexicon = replace(VOCABULARY, vectors=("The", "ünë", "b"), vectors_width=3)
    (tmp_path / "tokenizer.json").write_text(lexicon.to_json(), encoding="utf-8")
    again = WordVocabulary.load(tmp_path / "tokenizer.json")
    assert (again.vectors, again.vectors_width) == (("The", "ünë", "b"), 3)
    assert again.to_json() == lexicon.to_json()


def test_words_of_unlabeled_text_come_behind_those_of_labeled_texts():
    further = {"cow": 2, "Cow": 1, "owl": 4, "the": 9, "x1": 1, "X2": 1, "once": 1, "eel": 2, "éé": 1}
    lexicon = learn_word_vocabulary(TEXTS, ["x", "y"], unlabeled=further, max_unlabeled=99)
    assert lexicon.words == (*VOCABULARY.words, "owl", "cow", "eel", "x0")  # as often as they are looked up
    assert lexicon.unlabeled == 4
    assert lexicon.encode(["é"])[0].pieces == (UNKNOWN,)  # nor are the letters of words that are seen once known
    assert UNKNOWN not in lexicon.encode(["owl"])[0].pieces
    assert UNKNOWN in VOCABULARY.encode(["owl"])[0].pieces
    assert lexicon.sizes()["unlabeled"] == lexicon.vocabulary["unlabeled"] == 4
    assert learn_word_vocabulary(TEXTS, ["x", "y"], unlabeled=further, max_unlabeled=1).words == (
        *VOCABULARY.words,
        "owl",
    )
    few = learn_word_vocabulary(TEXTS, ["x", "y"], vocab_size=1, unlabeled={"dog": 2}, max_unlabeled=9)
    assert (few.words, few.unlabeled) == (("the", "dog"), 1)
    once_each = learn_word_vocabulary(TEXTS, ["x", "y"], unlabeled={"Żo": 1, "żo": 1}, max_unlabeled=9)
    assert once_each.words[-1] == "żo"
    assert UNKNOWN not in once_each.encode(["żo"])[0].pieces


def test_a_file_tells_which_words_only_unlabeled_text_has(tmp_path):
    lexicon = learn_word_vocabulary(TEXTS, ["x", "y"], unlabeled={"owl": 2}, max_unlabeled=9)
    (tmp_path / "tokenizer.json").write_text(lexicon.to_json(), encoding="utf-8")
    again = WordVocabulary.load(tmp_path / "tokenizer.json")
    assert (again.words, again.unlabeled, again.to_json()) == (lexicon.words, 1, lexicon.to_json())


def test_a_word_is_spelt_with_its_letters():
    word, again = VOCABULARY.encode(["act", "tac"])
    assert word.pieces == again.pieces[1:] + again.pieces[:1]
    assert VOCABULARY.encode(["zq"])[0].pieces == (UNKNOWN, UNKNOWN)
    assert VOCABULARY.encode([""])[0] == (UNKNOWN, (UNKNOWN,), 0)


def test_of_a_long_word_beginning_and_end_are_read():
    word = "".join("abcdefghij"[index % 10] for index in range(100))
    lexicon = learn_word_vocabulary([[word]], ["x", "y"])
    half = MAX_PIECES // 2
    assert len(lexicon.encode([word])[0].pieces) == MAX_PIECES
    assert lexicon.encode([word])[0].pieces == lexicon.encode([word[:half] + word[-half:]])[0].pieces
    short = word[:MAX_PIECES]
    assert lexicon.encode([short])[0].pieces == tuple(lexicon.pieces.encode(short))


def test_not_all_words_that_are_ever_looked_up_are_kept(monkeypatch):
    monkeypatch.setattr("regard.text.word_vocabulary.MAX_CACHED", 3)
    lexicon = learn_word_vocabulary([["a", "b"]], ["x", "y"])
    words = [*"abcdefgab"]
    assert lexicon.encode(words) == tuple(lexicon.encode([word])[0] for word in words)
    assert len(lexicon._cache) <= 3


def test_pieces_can_be_subwords():
    lexicon = learn_word_vocabulary([["low", "lower", "lowest"] * 9], ["x", "y"], kind="bpe")
    (word,) = lexicon.encode(["lower"])
    assert lexicon.pieces.kind == "bpe"
    assert 1 <= len(word.pieces) < 5
    assert lexicon.pieces.decode(list(word.pieces)) == "lower"


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=8),
    st.sampled_from(["characters", "bytes", "words"]),
)
def test_a_file_gives_the_same_lexicon_again(tmp_path_factory, words, kind):
    lexicon = learn_word_vocabulary([words], ["Ünë", 'b"\n'], kind=kind)
    path = tmp_path_factory.mktemp("lexicon") / "tokenizer.json"
    path.write_text(lexicon.to_json(), encoding="utf-8")
    again = WordVocabulary.load(path)
    assert (again.words, again.labels, again.pieces.kind) == (lexicon.words, lexicon.labels, lexicon.pieces.kind)
    asked = [*words, "never seen", *map(str.lower, words)]
    assert again.encode(asked) == lexicon.encode(asked)
    assert again.to_json() == lexicon.to_json()


def changed(**change: object) -> bytes:
    return json.dumps({**json.loads(VOCABULARY.to_json()), **change}).encode()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff{}", "is not valid JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"[]", "expected vocabularies of version 1, got none"),
        (changed(version=2), "expected vocabularies of version 1, got 2"),
        (changed(pieces=None), "pieces: missing tokenizer"),
        (changed(pieces={"kind": "letters"}),
         'pieces: unknown kind "letters"; choose from bpe, bytes, characters, unigram, words'),
        (changed(words="cat"), "is corrupt: words is not a list of strings"),
        (changed(labels=["x", 3]), "is corrupt: labels is not a list of strings"),
        (changed(labels=["x", "\ud800"]), "is corrupt: labels has an unpaired surrogate, \\ud800 to \\udfff"),
        (changed(vectors=["x"]), "is corrupt: vectors has no valid width"),
        (changed(unlabeled=99), "is corrupt: unlabeled must be from 0 to the number of words"),
        (changed(unlabeled="1"), "is corrupt: unlabeled must be from 0 to the number of words"),
        (changed(vectors={"width": 2, "words": 3}), "is corrupt: words is not a list of strings"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line(content, line, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(RegardError) as caught:
        WordVocabulary.load(path)
    assert str(caught.value) == f"{path}{' ' if line.startswith('is ') else ': '}{line}"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RegardError) as caught:
        WordVocabulary.load(tmp_path / "none.json")
    assert str(caught.value) == f"cannot read {tmp_path}/none.json: not found"
