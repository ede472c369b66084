"""WordVocabulary: encode words and their characters as ids, and split texts into words."""

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
from regard.files import check_file_version, read_json
from regard.sentences import EncodedWord, WordSequence
from regard.text.learn import learn_tokenizer, select_most_frequent
from regard.text.saved_model import is_valid_text
from regard.text.tokenizer import RESERVED, Tokenizer
from regard.text.tokenizer_pair import parse_tokenizer, to_record

VERSION = 1
MAX_PIECES = 32  # maximum pieces per word; of a longer word, the beginning and the end are read
MAX_CACHED = 2**17  # maximum number of cached encoded words
MIN_UNLABELED_COUNT = 2  # minimum count of a word that only occurs in unlabeled text

UNSPACED = (
    r"\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF"  # Thai, Lao, Burmese, Khmer
    r"\u2E80-\u2FFF\u3001-\u30FF\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF"  # Chinese and Japanese
)
"""Characters of scripts without spaces; each counts as a word."""

DIGIT = re.compile(r"[0-9]")


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks."""
    return compile_word_pattern().findall(text)


@cache
def compile_word_pattern() -> re.Pattern[str]:
    """Compile the word pattern; accents, vowel signs and joiners stay with the preceding letter."""
    is_mark = [unicodedata.category(chr(code)).startswith("M") for code in range(0x20000)]
    edges = [code for code in range(1, len(is_mark)) if is_mark[code] != is_mark[code - 1]]
    ranges = (f"{chr(first)}-{chr(after - 1)}" for first, after in zip(edges[::2], edges[1::2], strict=True))
    marks = f"[{''.join(ranges)}\u200c\u200d]"
    letters = rf"[^\W_]+(?:{marks}+[^\W_]*)*"
    return re.compile(rf"[{UNSPACED}]{marks}*|{letters}(?:['\u2019._-]{letters})*|_+|[^\w\s]{marks}*")


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """The vocabulary of words, the pieces that spell them, and the labels to predict.

    If words are also encoded by their pieces, these carry upper and lower case, and the words themselves are
    lowercased with all digits replaced by 0, so fewer words are rare.

    A word can also have a pretrained vector, which is looked up as written, then in lower case.

    Words of labeled texts come first, followed by words that occur only in unlabeled text.
    """

    words: tuple[str, ...]
    pieces: Tokenizer
    labels: tuple[str, ...]
    vectors: tuple[str, ...] = ()  # words with a pretrained vector; their ids start at 1
    vectors_width: int = 0
    unlabeled: int = 0  # number of words that occur only in unlabeled text; they come last

    @property
    def size(self) -> int:
        """Number of word ids."""
        return len(RESERVED) + len(self.words)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes and labels for a model config."""
        sizes = {"words": self.size, "pieces": self.pieces.size, "labels": self.labels}
        sizes |= {"vectors": len(self.vectors), "vectors_width": self.vectors_width} if self.vectors else {}
        return sizes | ({"unlabeled": self.unlabeled} if self.unlabeled else {})

    @property
    def vocabulary(self) -> dict[str, int]:
        """Sizes for the card of a run."""
        sizes = self.sizes() | {"labels": len(self.labels)}
        return {name: size for name, size in sizes.items() if name != "vectors_width"}

    def encode(self, words: Iterable[str]) -> WordSequence:
        """Encode words."""
        return tuple(self._encode_word(word) for word in words)

    def to_json(self) -> str:
        """Return the vocabulary as JSON."""
        content: dict[str, Any] = {"version": VERSION, "labels": self.labels, "words": self.words}
        if self.vectors:
            content["vectors"] = {"width": self.vectors_width, "words": self.vectors}
        if self.unlabeled:
            content["unlabeled"] = self.unlabeled
        content["pieces"] = to_record(self.pieces)
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> WordVocabulary:
        """Load a vocabulary written by `to_json`."""
        content = read_json(path)
        check_file_version(content, VERSION, "vocabularies", str(path))
        pieces = parse_tokenizer(content.get("pieces"), f"{path}: pieces")
        labels, words = parse_texts(content, "labels", path), parse_texts(content, "words", path)
        unlabeled = content.get("unlabeled", 0)
        if type(unlabeled) is not int or not 0 <= unlabeled <= len(words):
            raise RegardError(f"{path} is corrupt: unlabeled must be from 0 to the number of words")
        return cls(words, pieces, labels, *parse_vector_words(content, path), unlabeled)

    def _encode_word(self, word: str) -> EncodedWord:
        encoded = self._cache.get(word)
        if encoded is None:
            word_id = self._word_ids.get(normalize_word(word, self.pieces.kind), UNKNOWN)
            pieces = self.pieces.encode(word)
            if len(pieces) > MAX_PIECES:
                pieces = pieces[: MAX_PIECES // 2] + pieces[-MAX_PIECES // 2 :]
            encoded = EncodedWord(word_id, tuple(pieces) or (UNKNOWN,), self._get_vector_id(word))
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[word] = encoded
        return encoded

    def _get_vector_id(self, word: str) -> int:
        return self._vector_ids.get(word) or self._vector_ids.get(word.lower(), 0)

    @cached_property
    def _vector_ids(self) -> dict[str, int]:
        return {word: vector_id for vector_id, word in enumerate(self.vectors, 1)}

    @cached_property
    def _word_ids(self) -> dict[str, int]:
        return {word: word_id for word_id, word in enumerate(self.words, len(RESERVED))}

    @cached_property
    def _cache(self) -> dict[str, EncodedWord]:
        """Cache of encoded words."""
        return {}


def learn_word_vocabulary(
    texts: Sequence[Sequence[str]],
    labels: Sequence[str],
    *,
    kind: str = "characters",
    vocab_size: int | None = None,
    min_frequency: int = 1,
    unlabeled: Mapping[str, int] | None = None,
    max_unlabeled: int = 0,
) -> WordVocabulary:
    """Learn the vocabulary of texts.

    Args:
        texts: The words of each text.
        labels: All labels.
        kind: Kind of pieces that spell words, as in `learn_tokenizer`; `words` uses whole words only.
        vocab_size: Maximum number of words; the most frequent are kept.
        min_frequency: Minimum count of a word.
        unlabeled: Word counts of additional unlabeled text. Words seen at least twice in it are added, with their
            characters.
        max_unlabeled: Maximum number of words that occur only in unlabeled text.

    Returns:
        The vocabulary.
    """
    counts = Counter(chain.from_iterable(texts))
    labeled_counts = count_normalized(counts, kind)
    labeled_words = select_most_frequent(
        labeled_counts, len(labeled_counts) if vocab_size is None else vocab_size, min_frequency
    )
    labeled_set = set(labeled_words)
    unlabeled_counts = count_normalized(unlabeled or {}, kind)
    new_counts = Counter({word: count for word, count in unlabeled_counts.items() if word not in labeled_set})
    added = select_most_frequent(new_counts, max_unlabeled, MIN_UNLABELED_COUNT)
    if kind == "characters":
        spelled_words = [
            *counts,
            *(word for word in unlabeled or () if unlabeled_counts[normalize_word(word, kind)] >= MIN_UNLABELED_COUNT),
        ]
    else:
        spelled_words = [*counts.elements()]
    return WordVocabulary(
        (*labeled_words, *added), learn_tokenizer(kind, spelled_words), tuple(labels), unlabeled=len(added)
    )


def count_normalized(counts: Mapping[str, int], kind: str) -> Counter[str]:
    """Sum the counts of words that normalize to the same form."""
    normalized = Counter[str]()
    for word, count in counts.items():
        normalized[normalize_word(word, kind)] += count
    return normalized


def normalize_word(word: str, kind: str) -> str:
    """Return the form of a word used for lookup."""
    return word if kind == "words" else DIGIT.sub("0", word.lower())


def parse_vector_words(content: dict[str, Any], path: Path) -> tuple[tuple[str, ...], int]:
    """Return the words with a pretrained vector and the vector dimension; empty and 0 without vectors."""
    entry = content.get("vectors")
    if entry is None:
        return (), 0
    width = entry.get("width") if isinstance(entry, dict) else None
    if type(width) is not int or width < 1:
        raise RegardError(f"{path} is corrupt: vectors has no valid width")
    return parse_texts(entry, "words", path), width


def parse_texts(content: dict[str, Any], name: str, path: Path) -> tuple[str, ...]:
    """Return a list of strings from a file; raise a `RegardError` for anything else."""
    texts = content.get(name)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RegardError(f"{path} is corrupt: {name} is not a list of strings")
    if not all(map(is_valid_text, texts)):
        raise RegardError(f"{path} is corrupt: {name} has an unpaired surrogate, \\ud800 to \\udfff")
    return tuple(texts)
