"""Tokenizer: a text as numbers, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Literal, NamedTuple, get_args

import tokenizers

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError
from regard.text.pieces import WHITESPACE, byte_characters, shown, words_of_pieces
from regard.text.steps import NO_STEPS, TextSteps

Kind = Literal["bpe", "bytes", "characters", "unigram", "words"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of tokens there are."""

SPECIAL = {PAD: "<pad>", UNKNOWN: "<unk>", BOS: "<bos>", EOS: "<eos>"}
"""How the first four numbers are shown."""

BEGIN, END = SPECIAL[BOS], SPECIAL[EOS]

RESERVED = tuple(" " + SPECIAL[number] for number in range(4))
"""Their entries in a vocabulary. None else has a space in it, so no text such as "<eos>" is ever taken for them."""

WORDS = re.compile(rf"\n|[^{WHITESPACE}]+")
"""The words of a text of several lines, the ends of its lines among them."""


class Encoded(NamedTuple):
    """A text cut into tokens."""

    ids: list[int]
    tokens: list[str]  # as they look in the text, "▁" for a space
    words: list[int | None]  # the place of the word each belongs to; None for what is only space


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A text as numbers, and back; made by `learn`.

    The numbers come without <bos> and <eos>. `bpe`, `bytes` and `unigram` are made of bytes: they know every text and
    give it back as it was. `characters` does so for the characters it knows, and `words` for known words apart by
    single spaces, or by ends of lines if it is made by `learn_text`. (The steps, where there are any, come before all
    that.)
    """

    kind: Kind
    model: tokenizers.Tokenizer
    steps: TextSteps = NO_STEPS

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.model.get_vocab_size()

    def encode(self, text: str, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """The numbers of a text.

        With dropout, each merge of `bpe` is left out with that probability whenever it could be made (Provilkov et
        al. 2020). Which ones depends on seed and text alone, so that a run that resumes sees the same again.
        """
        if dropout == 0.0:
            return self.model.encode(self.steps.apply(text)).ids
        if self.kind != "bpe":
            raise RegardError(f'dropout: is for the merges of bpe; this tokenizer is of the kind "{self.kind}"')
        if not 0.0 <= dropout <= 1.0:
            raise RegardError(f"dropout: {dropout} is not between 0 and 1")
        return self._encode_with_dropout(self.steps.apply(text), dropout, seed)

    def encode_all(self, texts: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """The numbers of each text."""
        return [self.encode(text, dropout, seed) for text in texts]

    def encoded(self, text: str) -> Encoded:
        """The numbers of a text, with the tokens to show and the words they belong to.

        Words are those of `str.split` in the text after the steps: with Moses, the tokens of Moses. A token that is
        unknown is shown as it stands in the text.
        """
        text = self.steps.apply(text)
        ids = self.model.encode(text).ids
        pieces = [self._pieces[number] for number in ids]
        if self.kind == "characters":
            pieces = [character.encode() for character in text]
        elif self.kind == "words":
            pieces = [word_piece(word) for word in (WORDS.findall(text) if self._keeps_lines else text.split())]
        return Encoded(ids, [self._shown(piece) for piece in pieces], words_of_pieces(pieces))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some numbers, with the steps undone: <pad>, <bos> and <eos> are left out, <unk> is not."""
        return self.steps.undo(self.written(ids))

    def written(self, ids: Sequence[int]) -> str:
        """The text of some numbers as the model wrote it, before the steps are undone."""
        text = b"".join(self._pieces[number] for number in ids).decode("utf-8", "replace")
        text = text.replace("\n ", "\n") if self._keeps_lines else text
        return text.removeprefix(" ") if self.starts_with_space else text

    def tokens_of(self, ids: Sequence[int]) -> list[str]:
        """Each number as a token to show."""
        return [SPECIAL[number] if number in SPECIAL else self._shown(self._pieces[number]) for number in ids]

    def piece(self, number: int) -> bytes:
        """The bytes of text that a number stands for; none for <pad>, <bos> and <eos>."""
        return self._pieces[number]

    def words_of(self, ids: Sequence[int]) -> list[int | None]:
        """The place of the word each number belongs to, among the words of `written(ids)`."""
        return words_of_pieces([self._pieces[number] for number in ids])

    def _shown(self, piece: bytes) -> str:
        return shown(piece.removeprefix(b" ") if self.kind == "words" else piece)

    @cached_property
    def starts_with_space(self) -> bool:
        """Whether a space goes before every text, so that its first word looks like all others."""
        return self.kind == "words" or self._normalised("a") == " a"

    @cached_property
    def _keeps_lines(self) -> bool:
        """Whether the end of a line is a word of its own."""
        return self.kind == "words" and "\n" in self._numbers

    @cached_property
    def _pieces(self) -> list[bytes]:
        """The bytes of text each number stands for."""
        entries = sorted(self._numbers, key=self._numbers.__getitem__)[len(RESERVED) :]
        space = b" " if self.kind == "words" else b""
        if self.kind == "words":
            pieces = [word_piece(entry) for entry in entries]
        elif self.kind == "characters":
            pieces = [entry.encode() for entry in entries]
        else:
            byte_of = {character: byte for byte, character in enumerate(byte_characters())}
            pieces = [bytes(byte_of[character] for character in entry) for entry in entries]
        return [b"", space + SPECIAL[UNKNOWN].encode(), b"", b"", *pieces]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each entry of the vocabulary."""
        return self.model.get_vocab()

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        """The merges of bpe, and which comes before which."""
        merges = json.loads(self.model.to_str())["model"]["merges"]
        return {(left, right): rank for rank, (left, right) in enumerate(merges)}

    def _normalised(self, text: str) -> str:
        """A text as the model sees it before it cuts it into chunks."""
        normalizer = self.model.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _encode_with_dropout(self, text: str, dropout: float, seed: int) -> list[int]:
        random = Random(f"{seed} {text}")  # hashed by SHA-512: the same on every machine
        text = self._normalised(text)
        chunks = [chunk for chunk, _ in self.model.pre_tokenizer.pre_tokenize_str(text)]
        symbols = [symbol for chunk in chunks for symbol in merged(chunk, self._ranks, dropout, random)]
        return [self._numbers[symbol] for symbol in symbols]


def word_piece(word: str) -> bytes:
    """The bytes of a word: a space goes before it, but not before the end of a line."""
    return word.encode() if word == "\n" else b" " + word.encode()


def merged(chunk: str, ranks: dict[tuple[str, str], int], dropout: float, random: Random) -> list[str]:
    """Merge the symbols of a chunk, the lowest rank first, each possible merge being dropped anew at every step."""
    symbols = list(chunk)
    while True:
        possible = [(ranks[pair], place) for place, pair in enumerate(pairwise(symbols)) if pair in ranks]
        kept = [merge for merge in possible if random.random() >= dropout]
        if not kept:
            return symbols
        _, place = min(kept)
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


def is_spelt(tokenizer: Tokenizer) -> bool:
    """Whether tokens are single letters, though spaces may stand between them."""
    if tokenizer.kind != "words":
        return tokenizer.kind in ("characters", "bytes")
    entries = tokenizer.model.get_vocab().keys() - set(RESERVED)
    return 2 * sum(len(entry) == 1 for entry in entries) > len(entries)
