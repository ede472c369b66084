"""Tokenizer: encode text to token ids and decode it again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Literal, NamedTuple, get_args

import tokenizers

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError
from regard.text.pieces import WHITESPACE, format_piece, list_byte_characters, map_pieces_to_words
from regard.text.steps import NO_STEPS, TextSteps

Kind = Literal["bpe", "bytes", "characters", "unigram", "words"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of tokenizers."""

SPECIAL = {PAD: "<pad>", UNKNOWN: "<unk>", BOS: "<bos>", EOS: "<eos>"}
"""Displayed form of the special tokens, which have the first four ids."""

BEGIN, END = SPECIAL[BOS], SPECIAL[EOS]

RESERVED = tuple(" " + SPECIAL[number] for number in range(4))
"""Vocabulary entries of the special tokens. No other entry contains a space, so text such as "<eos>" never matches."""

WORDS = re.compile(rf"\n|[^{WHITESPACE}]+")
"""Words of a multi-line text, including line endings."""


class EncodedText(NamedTuple):
    """A tokenized text."""

    ids: list[int]
    tokens: list[str]  # as displayed, "▁" for a space
    word_indices: list[int | None]  # index of the word of each token; None for whitespace


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer, as returned by `learn_tokenizer` and `learn_lm_tokenizer`.

    Ids do not include <bos> and <eos>. `bpe`, `bytes` and `unigram` work on bytes, so they encode any text without
    loss. `characters` is lossless for known characters, and `words` for known words separated by single spaces (or line
    endings, with `learn_lm_tokenizer`). All of this applies to the text after `steps`.

    Example:
        >>> tokenizer = learn_tokenizer("words", ["a small cat", "a small dog"])
        >>> tokenizer.decode(tokenizer.encode("a dog"))
        'a dog'
    """

    kind: Kind
    model: tokenizers.Tokenizer
    steps: TextSteps = NO_STEPS
    further: tuple[bytes, ...] = ()  # tokens that are decoded, but not part of the vocabulary

    def extend(self, pieces: Sequence[bytes]) -> Tokenizer:
        """Return a tokenizer that also decodes further tokens, with the ids after the last of the vocabulary."""
        if not pieces:
            return self
        extended = replace(self, further=tuple(pieces))
        extended.__dict__["_pieces"] = [*self._pieces, *pieces]
        return extended

    @property
    def size(self) -> int:
        """Vocabulary size."""
        return self.model.get_vocab_size()

    @property
    def description(self) -> str:
        """What the tokens are, for summaries: the kind."""
        return self.kind

    def encode(self, text: str, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: Text to encode.
            dropout: Probability of skipping each merge of `bpe` (BPE-dropout, Provilkov et al. 2020).
            seed: Seed of the dropout. The result depends only on seed and text, so a resumed run sees the same tokens.

        Raises:
            RegardError: `dropout` is out of range, or the tokenizer is not `bpe`.
        """
        if dropout == 0.0:
            return self.model.encode(self.steps.apply(text)).ids
        if self.kind != "bpe":
            raise RegardError(f'dropout requires a bpe tokenizer, got "{self.kind}"')
        if not 0.0 <= dropout <= 1.0:
            raise RegardError(f"dropout must be at least 0 and at most 1, got {dropout}")
        return self._encode_with_dropout(self.steps.apply(text), dropout, seed)

    def encode_all(self, texts: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the token ids of each text."""
        return [self.encode(text, dropout, seed) for text in texts]

    def encode_with_words(self, text: str) -> EncodedText:
        """Encode a text, with the tokens to display and the words they belong to.

        Words are those of `str.split` after preprocessing; with Moses, they are Moses tokens. Unknown tokens are
        displayed as they appear in the text. Tokens that are parts of characters stay apart; `split_into_units`
        composes them.
        """
        ids, pieces = self.encode_to_pieces(text)
        return EncodedText(ids, [self._format_piece(piece) for piece in pieces], map_pieces_to_words(pieces))

    def encode_to_pieces(self, text: str) -> tuple[list[int], list[bytes]]:
        """Return the token ids of a text with the bytes of each token; those of an unknown token are as in the text."""
        text = self.steps.apply(text)
        ids = self.model.encode(text).ids
        if self.kind == "characters":
            return ids, [character.encode() for character in text]
        if self.kind == "words":
            return ids, [encode_word(word) for word in (WORDS.findall(text) if self._keeps_lines else text.split())]
        return ids, [self._pieces[token_id] for token_id in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, with the steps undone; <pad>, <bos> and <eos> are omitted, <unk> is not."""
        return self.steps.undo(self.decode_raw(ids))

    def decode_raw(self, ids: Sequence[int]) -> str:
        """Return the text of token ids as prepared for the model, composed."""
        text = b"".join(self._pieces[token_id] for token_id in ids).decode("utf-8", "replace")
        text = text.replace("\n ", "\n") if self._keeps_lines else text
        return self.steps.compose(text.removeprefix(" ") if self.starts_with_space else text)

    def ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens to display."""
        return [
            SPECIAL[token_id] if token_id in SPECIAL else self._format_piece(self._pieces[token_id]) for token_id in ids
        ]

    def id_to_piece(self, token_id: int) -> bytes:
        """Return the bytes of a token; empty for <pad>, <bos> and <eos>."""
        return self._pieces[token_id]

    def ids_to_word_indices(self, ids: Sequence[int]) -> list[int | None]:
        """Return the index of the word of each token, among the words of `decode_raw(ids)`."""
        return map_pieces_to_words([self._pieces[token_id] for token_id in ids])

    def check_text(self, text: str) -> None:
        """Raise a `RegardError` for a text that cannot be encoded, such as one with too few columns."""
        return

    def select_text(self, text: str) -> str:
        """Return the part of a text that is spelled or written in words: all but columns of whole tokens."""
        return text

    def find_unknown_tokens(self, text: str) -> list[str]:
        """Return the unknown tokens in columns of whole tokens."""
        return []

    def _format_piece(self, piece: bytes) -> str:
        if self.kind == "words":
            return self.steps.compose(format_piece(piece.removeprefix(b" ")))
        return format_piece(piece)

    @cached_property
    def starts_with_space(self) -> bool:
        """Whether a space is added before every text, so its first word is encoded like the others."""
        return self.kind == "words" or self._normalize("a") == " a"

    @cached_property
    def _keeps_lines(self) -> bool:
        """Whether a line ending is a word."""
        return self.kind == "words" and "\n" in self._ids

    @cached_property
    def _pieces(self) -> list[bytes]:
        """Bytes of each token."""
        entries = sorted(self._ids, key=self._ids.__getitem__)[len(RESERVED) :]
        space = b" " if self.kind == "words" else b""
        if self.kind == "words":
            pieces = [encode_word(entry) for entry in entries]
        elif self.kind == "characters":
            pieces = [entry.encode() for entry in entries]
        else:
            byte_of = {character: byte for byte, character in enumerate(list_byte_characters())}
            pieces = [bytes(byte_of[character] for character in entry) for entry in entries]
        return [b"", space + SPECIAL[UNKNOWN].encode(), b"", b"", *pieces, *self.further]

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Id of each vocabulary entry."""
        return self.model.get_vocab()

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        """Rank of each BPE merge."""
        merges = json.loads(self.model.to_str())["model"]["merges"]
        return {(left, right): rank for rank, (left, right) in enumerate(merges)}

    def _normalize(self, text: str) -> str:
        """Apply the normalizer of the model."""
        normalizer = self.model.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _encode_with_dropout(self, text: str, dropout: float, seed: int) -> list[int]:
        random = Random(f"{seed} {text}")  # hashed by SHA-512: the same on every machine
        text = self._normalize(text)
        chunks = [chunk for chunk, _ in self.model.pre_tokenizer.pre_tokenize_str(text)]
        symbols = [symbol for chunk in chunks for symbol in merge_symbols(chunk, self._ranks, dropout, random)]
        return [self._ids[symbol] for symbol in symbols]


def encode_word(word: str) -> bytes:
    """Return the bytes of a word, with a leading space except for a line ending."""
    return word.encode() if word == "\n" else b" " + word.encode()


def merge_symbols(chunk: str, ranks: dict[tuple[str, str], int], dropout: float, random: Random) -> list[str]:
    """Merge the symbols of a chunk, lowest rank first, dropping each possible merge at random at every step."""
    symbols = list(chunk)
    while True:
        possible = [(ranks[pair], index) for index, pair in enumerate(pairwise(symbols)) if pair in ranks]
        surviving = [merge for merge in possible if random.random() >= dropout]
        if not surviving:
            return symbols
        _, index = min(surviving)
        symbols[index : index + 2] = [symbols[index] + symbols[index + 1]]


def is_character_level(tokenizer: Tokenizer) -> bool:
    """Return whether tokens are single characters, possibly separated by spaces."""
    if tokenizer.kind != "words":
        return tokenizer.kind in ("characters", "bytes")
    entries = tokenizer.model.get_vocab().keys() - set(RESERVED)
    return 2 * sum(len(entry) == 1 for entry in entries) > len(entries)
