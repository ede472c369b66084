"""Lexicon: words as numbers, with the numbers of their letters; and how a text is cut into words."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from regard.batch import UNKNOWN
from regard.errors import RegardError
from regard.files import check_version, read_json
from regard.sentences import Text, Word
from regard.text.learn import learn, most_frequent
from regard.text.pair import record, tokenizer_of
from regard.text.tokenizer import RESERVED, Tokenizer

VERSION = 1
MOST_PIECES = 32  # of a word that are read; of a longer one its beginning and its end
MOST_KEPT = 2**17  # words whose numbers are kept, so that they are looked up once
LEAST_SEEN = 2  # how often unlabelled text must have a word that only it has

ALONE = (
    r"\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF"  # Thai, Lao, Burmese, Khmer
    r"\u2E80-\u2FFF\u3001-\u30FF\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF"  # Chinese and Japanese
)
"""Signs of what is written without spaces; each is taken for a word."""

DIGIT = re.compile(r"[0-9]")


def words_of(text: str) -> list[str]:
    """The words of a text and its signs of punctuation, each by itself."""
    return cut_by().findall(text)


@cache
def cut_by() -> re.Pattern[str]:
    """What finds the words of a text; accents, vowel signs and joiners stay with the letter before them."""
    is_mark = [unicodedata.category(chr(number)).startswith("M") for number in range(0x20000)]
    edges = [number for number in range(1, len(is_mark)) if is_mark[number] != is_mark[number - 1]]
    ranges = (f"{chr(first)}-{chr(after - 1)}" for first, after in zip(edges[::2], edges[1::2], strict=True))
    marks = f"[{''.join(ranges)}\u200c\u200d]"
    letters = rf"[^\W_]+(?:{marks}+[^\W_]*)*"
    return re.compile(rf"[{ALONE}]{marks}*|{letters}(?:['\u2019._-]{letters})*|_+|[^\w\s]{marks}*")


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The words that are known, the pieces that words are spelt with, and the labels that are told.

    Where words are spelt, their letters tell upper from lower case, and the words themselves are known in lower
    case, with all digits alike: so fewer are rare.

    A word may also have a vector that was learnt elsewhere. It is looked up as it is written, then in lower case.

    The words of labelled texts come first, then those that only unlabelled text has, if any was read.
    """

    words: tuple[str, ...]
    pieces: Tokenizer
    labels: tuple[str, ...]
    vectors: tuple[str, ...] = ()  # the words that have one; their numbers begin with 1
    vectors_width: int = 0
    unlabelled: int = 0  # how many of the words, the last ones, only unlabelled text has

    @property
    def size(self) -> int:
        """How many numbers of words there are."""
        return len(RESERVED) + len(self.words)

    def sizes(self) -> dict[str, Any]:
        """What the config of a model learns from it."""
        known = {"words": self.size, "pieces": self.pieces.size, "labels": self.labels}
        known |= {"vectors": len(self.vectors), "vectors_width": self.vectors_width} if self.vectors else {}
        return known | ({"unlabelled": self.unlabelled} if self.unlabelled else {})

    @property
    def vocabulary(self) -> dict[str, int]:
        """How much there is of each, as a run's card says it."""
        known = self.sizes() | {"labels": len(self.labels)}
        return {name: size for name, size in known.items() if name != "vectors_width"}

    def encode(self, words: Iterable[str]) -> Text:
        """Words as numbers."""
        return tuple(self._word(word) for word in words)

    def to_json(self) -> str:
        """All as the text of a file."""
        content: dict[str, Any] = {"version": VERSION, "labels": self.labels, "words": self.words}
        if self.vectors:
            content["vectors"] = {"width": self.vectors_width, "words": self.vectors}
        if self.unlabelled:
            content["unlabelled"] = self.unlabelled
        content["pieces"] = record(self.pieces)
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        """Read what `to_json` gave."""
        content = read_json(path)
        check_version(content, VERSION, "lexicons", str(path))
        pieces = tokenizer_of(content.get("pieces"), f"{path}: pieces")
        labels, words = texts_in(content, "labels", path), texts_in(content, "words", path)
        unlabelled = content.get("unlabelled", 0)
        if type(unlabelled) is not int or not 0 <= unlabelled <= len(words):
            raise RegardError(f"{path}: unlabelled is not the number of some of its words; restore it from a copy")
        return cls(words, pieces, labels, *vectors_in(content, path), unlabelled)

    def _word(self, word: str) -> Word:
        found = self._known.get(word)
        if found is None:
            number = self._numbers.get(plain(word, self.pieces.kind), UNKNOWN)
            pieces = self.pieces.encode(word)
            if len(pieces) > MOST_PIECES:
                pieces = pieces[: MOST_PIECES // 2] + pieces[-MOST_PIECES // 2 :]
            found = Word(number, tuple(pieces) or (UNKNOWN,), self._vector(word))
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[word] = found
        return found

    def _vector(self, word: str) -> int:
        return self._vectors.get(word) or self._vectors.get(word.lower(), 0)

    @cached_property
    def _vectors(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vectors, 1)}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, len(RESERVED))}

    @cached_property
    def _known(self) -> dict[str, Word]:
        """Words that were looked up before."""
        return {}


def learn_lexicon(
    texts: Sequence[Sequence[str]],
    labels: Sequence[str],
    *,
    kind: str = "characters",
    size: int | None = None,
    least_count: int = 1,
    unlabelled: Mapping[str, int] | None = None,
    more: int = 0,
) -> Lexicon:
    """The lexicon of some texts, cut into words.

    Args:
        texts: The words of each.
        labels: What is told of them.
        kind: What words are spelt with, as in `learn`; `words` knows no more than the words themselves.
        size: How many words may be known at the most; the most frequent are.
        least_count: How often a word must be seen to be known.
        unlabelled: The words of further text, which has no labels, and how often it has each. Those that it has
            twice are known, too, and the letters of these.
        more: How many words that only this text has may be known at the most.
    """
    counts = Counter(chain.from_iterable(texts))
    looked_up = as_looked_up(counts, kind)
    known = most_frequent(looked_up, len(looked_up) if size is None else size, least_count)
    told = set(known)
    elsewhere = as_looked_up(unlabelled or {}, kind)
    further = Counter({word: count for word, count in elsewhere.items() if word not in told})
    added = most_frequent(further, more, LEAST_SEEN)
    if kind == "characters":
        spelt = [*counts, *(word for word in unlabelled or () if elsewhere[plain(word, kind)] >= LEAST_SEEN)]
    else:
        spelt = [*counts.elements()]
    return Lexicon((*known, *added), learn(kind, spelt), tuple(labels), unlabelled=len(added))


def as_looked_up(counts: Mapping[str, int], kind: str) -> Counter[str]:
    """How often there is each word, where words that are looked up as one are one."""
    found = Counter[str]()
    for word, count in counts.items():
        found[plain(word, kind)] += count
    return found


def plain(word: str, kind: str) -> str:
    """A word as it is looked up."""
    return word if kind == "words" else DIGIT.sub("0", word.lower())


def vectors_in(content: dict[str, Any], path: Path) -> tuple[tuple[str, ...], int]:
    """The words that have a vector learnt elsewhere, none mostly, and the width of these; or a `RegardError`."""
    found = content.get("vectors")
    if found is None:
        return (), 0
    width = found.get("width") if isinstance(found, dict) else None
    if type(width) is not int or width < 1:
        raise RegardError(f"{path}: vectors has no width; restore it from a copy")
    return texts_in(found, "words", path), width


def texts_in(content: dict[str, Any], name: str, path: Path) -> tuple[str, ...]:
    """A list of texts in a file, or a `RegardError`."""
    found = content.get(name)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise RegardError(f"{path}: {name} is no list of texts; restore it from a copy")
    return tuple(found)
