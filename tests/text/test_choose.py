import random

import pytest

from regard.text import choose_kind, choose_vocabulary_size
from regard.text.choose import choose_text_kind


def test_letters_are_spelt_and_phones_are_words():
    letters = ["abbett", "abided", "aboud"]
    assert choose_kind(letters) == ("characters", "characters: texts average 1.0 words and 6 characters")
    phones = ["AH B EH T AH", "AH B AY AH B"] * 3
    assert choose_kind(phones) == ("words", "words: only 5 distinct words, each seen 6 times on average")


def test_digits_are_spelt_unless_they_are_symbols():
    dates = [f"{day} March {year}" for day in range(1, 29) for year in (1999, 2024)]
    choice = choose_kind(dates)
    assert choice.kind == "characters"
    assert choice.reason.endswith("% of the characters are digits in multi-digit numbers")
    assert choose_kind(["3 1 4 1 5", "5 1 4 1 3"] * 20).kind == "words"
    assert choose_kind(["2024-03-01"] * 100).kind == "characters"


def test_sentences_are_cut_into_subwords():
    chosen = random.Random(0)
    names = [
        f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in ("nd", "rt", "ss", "lk", "mp", "st", "nt", "x", "z")
    ]
    assert len(names) == 315
    sentences = [" ".join(chosen.choices(names, k=8)) for _ in range(400)]
    kind, reason = choose_kind(sentences)
    assert kind == "bpe"
    assert reason.startswith("bpe: texts average 8.0 words and ")
    assert reason.endswith(", with 315 distinct words")
    few = [" ".join(chosen.choices(names[:300], k=8)) for _ in range(400)]
    assert choose_kind(few).kind == "words"


@pytest.mark.parametrize(
    ("words", "size"),
    [(0, 1000), (10_000, 1000), (90_000, 3000), (360_000, 6000), (3_000_000, 16_000)],
)
def test_sizes_follow_the_square_root(words, size):
    assert choose_vocabulary_size("bpe", ["a " * words]) == size
    assert choose_vocabulary_size("unigram", ["a " * words]) == size


def test_sizes_of_the_rest():
    assert choose_vocabulary_size("bpe", ["猫" * 2_160_000]) == 6000  # taken for 360,000 words
    assert choose_vocabulary_size("bytes", ["a"]) == 260
    assert choose_vocabulary_size("words", ["a"]) == choose_vocabulary_size("characters", ["a"]) == 30_000


def test_a_short_text_is_spelt():
    assert choose_text_kind(2_000_000) == (
        "characters",
        "characters: the text has 2,000,000 characters, too few to learn subwords",
    )
    assert choose_text_kind(2_000_001) == (
        "bpe",
        "bpe: the text has 2,000,001 characters, enough to learn subwords",
    )
