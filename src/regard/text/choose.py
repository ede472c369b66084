"""Which kind of tokens, and how many, suit some texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from regard.text.tokenizer import Kind

FEW_SYMBOLS = 300  # as many different words, each seen SEEN_OFTEN times on average, are symbols rather than a language
SEEN_OFTEN = 5
FEW_WORDS = 3.0  # a side of so few words a text is spelt rather than written
SHORT = 60.0  # characters a text, up to which it can be spelt
FEW_CHARACTERS = 2_000_000  # as much running text is spelt: of more, subwords can be learnt
TEXT_WORDS = 50_000  # the size of a vocabulary of words of running text
MANY_DIGITS = 0.1  # of all characters, in numbers of two digits and more: dates and amounts are spelt


class Choice(NamedTuple):
    """A kind of tokens and why, in a sentence."""

    kind: Kind
    reason: str


@dataclass(frozen=True)
class Counts:
    """What the choice depends on."""

    texts: Sequence[str]

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word is seen."""
        return Counter(word for text in self.texts for word in text.split())

    @cached_property
    def running_words(self) -> int:
        """How many words are seen in all."""
        return self.words.total()

    @cached_property
    def characters(self) -> int:
        """How many characters are seen in all."""
        return sum(map(len, self.texts))

    @cached_property
    def digits(self) -> int:
        """How many digits are seen in words of two and more."""
        found = {word: sum(map(str.isdigit, word)) for word in self.words}
        return sum(self.words[word] * digits for word, digits in found.items() if digits > 1)


def choose_kind(texts: Sequence[str]) -> Choice:
    """Choose the tokens of one side of a corpus; the other may have others.

    In this order: `characters` for short texts with many digits (dates, amounts); `words` where few symbols are seen
    over and over (phones, letters apart by spaces, toy languages); `characters` for a few short words (spelling,
    inflection, names); `bpe` for all else.
    """
    counts = Counts(texts)
    number = max(len(texts), 1)
    words, length = counts.running_words / number, counts.characters / number
    if length <= SHORT and counts.digits > MANY_DIGITS * counts.characters:
        share = counts.digits / counts.characters
        return Choice("characters", f"characters: {share:.0%} of the characters are digits of longer numbers")
    if 0 < len(counts.words) <= FEW_SYMBOLS and counts.running_words >= SEEN_OFTEN * len(counts.words):
        often = counts.running_words / len(counts.words)
        return Choice("words", f"words: there are only {len(counts.words)}, each seen {often:.0f} times on average")
    a_text = f"a text has {words:.1f} words and {length:.0f} characters on average"
    if words <= FEW_WORDS and length <= SHORT:
        return Choice("characters", f"characters: {a_text}")
    return Choice("bpe", f"bpe: {a_text}, and there are {len(counts.words)} different words")


def choose_text_kind(characters: int) -> Choice:
    """Choose the tokens of running text that has so many characters: `characters` for up to two million, else `bpe`."""
    if characters <= FEW_CHARACTERS:
        return Choice("characters", f"characters: the text has {characters}, too few for a vocabulary of subwords")
    return Choice("bpe", f"bpe: the text has {characters} characters, enough for a vocabulary of subwords")


def vocabulary_size(kind: Kind, texts: Sequence[str]) -> int:
    """The size a vocabulary has unless told otherwise.

    For `bpe` and `unigram` ten times the square root of the number of running words, in whole thousands from 1,000
    to 16,000: about 1,000 for 10,000 words, 6,000 for 350,000, 16,000 for 2,500,000. Where words are longer than six
    characters on average, as in scripts without spaces, six characters are taken for one. For `characters` and
    `words` all there are, 30,000 at most; for `bytes` 260.
    """
    if kind == "bytes":
        return 260
    if kind in ("characters", "words"):
        return 30_000
    counts = Counts(texts)
    running = max(counts.running_words, counts.characters // 6)
    return min(max(round(10 * math.sqrt(running) / 1000), 1), 16) * 1000
