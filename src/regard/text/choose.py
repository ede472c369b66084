"""Choose the kind of tokenizer and the vocabulary size for a corpus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from regard.text.tokenizer import Kind

FEW_SYMBOLS = 300  # up to this many distinct words, seen SEEN_OFTEN times on average, are symbols, not a language
SEEN_OFTEN = 5
FEW_WORDS = 3.0  # up to this many words per text, use characters
SHORT_CHARACTERS = 60.0  # up to this many characters per text, characters are an option
FEW_CHARACTERS = 2_000_000  # up to this much running text, use characters; with more, learn subwords
TEXT_WORDS = 50_000  # default vocabulary size for words of running text
MIN_DIGIT_SHARE = 0.1  # share of digits in multi-digit numbers from which to use characters (dates, amounts)


class KindChoice(NamedTuple):
    """A kind of tokenizer and the reason for choosing it."""

    kind: Kind
    reason: str


@dataclass(frozen=True)
class TextStatistics:
    """Statistics that the choice depends on."""

    texts: Sequence[str]

    @cached_property
    def words(self) -> Counter[str]:
        """Count of each word."""
        return Counter(word for text in self.texts for word in text.split())

    @cached_property
    def running_words(self) -> int:
        """Total number of words."""
        return self.words.total()

    @cached_property
    def characters(self) -> int:
        """Total number of characters."""
        return sum(map(len, self.texts))

    @cached_property
    def digits(self) -> int:
        """Number of digits in words with at least two digits."""
        digit_counts = {word: sum(map(str.isdigit, word)) for word in self.words}
        return sum(self.words[word] * digits for word, digits in digit_counts.items() if digits > 1)


def choose_kind(texts: Sequence[str]) -> KindChoice:
    """Choose the kind of tokenizer for one side of a corpus.

    The first rule that applies decides: `characters` for short texts with many digits (dates, amounts); `words` for a
    small set of frequent symbols (phones, letters separated by spaces, toy languages); `characters` for texts of a
    few short words (spelling, inflection, names); otherwise `bpe`.

    Args:
        texts: All texts of the side.

    Returns:
        The kind, and the reason in one line.
    """
    counts = TextStatistics(texts)
    text_count = max(len(texts), 1)
    words, length = counts.running_words / text_count, counts.characters / text_count
    if length <= SHORT_CHARACTERS and counts.digits > MIN_DIGIT_SHARE * counts.characters:
        share = counts.digits / counts.characters
        return KindChoice("characters", f"characters: {share:.0%} of the characters are digits in multi-digit numbers")
    if 0 < len(counts.words) <= FEW_SYMBOLS and counts.running_words >= SEEN_OFTEN * len(counts.words):
        often = counts.running_words / len(counts.words)
        return KindChoice(
            "words", f"words: only {len(counts.words)} distinct words, each seen {often:.0f} times on average"
        )
    averages = f"texts average {words:.1f} words and {length:.0f} characters"
    if words <= FEW_WORDS and length <= SHORT_CHARACTERS:
        return KindChoice("characters", f"characters: {averages}")
    return KindChoice("bpe", f"bpe: {averages}, with {len(counts.words)} distinct words")


def choose_text_kind(characters: int) -> KindChoice:
    """Choose the kind of tokenizer for running text: `characters` for up to two million characters, otherwise `bpe`."""
    if characters <= FEW_CHARACTERS:
        return KindChoice(
            "characters", f"characters: the text has {characters:,} characters, too few to learn subwords"
        )
    return KindChoice("bpe", f"bpe: the text has {characters:,} characters, enough to learn subwords")


def choose_vocabulary_size(kind: Kind, texts: Sequence[str]) -> int:
    """Return the default vocabulary size.

    For `bpe` and `unigram`, ten times the square root of the number of words, rounded to thousands, from 1,000 to
    16,000: about 1,000 for 10,000 words, 6,000 for 350,000, 16,000 for 2,500,000. If words are longer than six
    characters on average (as in scripts without spaces), six characters count as a word. For `characters` and `words`,
    at most 30,000; for `bytes`, 260.
    """
    if kind == "bytes":
        return 260
    if kind in ("characters", "words"):
        return 30_000
    counts = TextStatistics(texts)
    running = max(counts.running_words, counts.characters // 6)
    return min(max(round(10 * math.sqrt(running) / 1000), 1), 16) * 1000
