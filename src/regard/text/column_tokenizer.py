"""ColumnTokenizer: a text of several table columns, each with a tokenizer of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.batch import UNKNOWN
from regard.errors import RegardError
from regard.text.learn import build_vocabulary, build_word_model
from regard.text.steps import TextSteps
from regard.text.tokenizer import RESERVED, SPECIAL, EncodedText, Kind, Tokenizer
from regard.text.units import SUBWORD_KINDS

TAB = "\t"
"""What separates the columns of a text, as in a table."""


@dataclass(frozen=True, kw_only=True)
class ColumnSteps(TextSteps):
    """The preprocessing of each column of a text."""

    names: tuple[str, ...]
    columns: tuple[TextSteps, ...]

    def apply(self, text: str) -> str:
        cells = split_cells(text, self.names)
        return TAB.join(steps.apply(cell) for steps, cell in zip(self.columns, cells, strict=True))

    def prepare(self, text: str) -> str:
        cells = split_cells(text, self.names)
        return TAB.join(steps.prepare(cell) for steps, cell in zip(self.columns, cells, strict=True))

    @property
    def rewrites(self) -> bool:
        return any(steps.rewrites for steps in self.columns)

    def undo(self, text: str) -> str:
        return TAB.join(steps.undo(cell) for steps, cell in zip(self.columns, text.split(TAB), strict=True))


@dataclass(frozen=True, eq=False)
class ColumnTokenizer(Tokenizer):
    r"""A tokenizer of texts with several columns, as returned by `join_tokenizers`.

    A text is a line of a table: one cell per column, separated by tabs. Every column has token ids of its own, so the
    feature `V` and the letter `V` are different tokens; only the special tokens are shared. `model` holds all entries,
    those of a column after its number and a space: "1 PST". The column of whole tokens beside letters is never split.

    Example:
        >>> letters, tags = learn_tokenizer("characters", ["go"]), learn_tokenizer("words", ["V PST"])
        >>> join_tokenizers(["lemma", "tags"], [letters, tags]).encode("go\tPST")
        [4, 5, 6]
    """

    names: tuple[str, ...] = ()
    columns: tuple[Tokenizer, ...] = ()

    @property
    def description(self) -> str:
        return " + ".join(column.description for column in self.columns)

    @cached_property
    def offsets(self) -> list[int]:
        """What to add to a token id of each column; the ids of the first column stay as they are."""
        offsets = [0]
        for column in self.columns[:-1]:
            offsets.append(offsets[-1] + column.size - len(RESERVED))
        return offsets

    def encode(self, text: str, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """Return the token ids of a text; dropout applies to the columns of `bpe`."""
        return [
            self._to_joint(index, token_id)
            for index, (column, cell) in enumerate(self._iter_cells(text))
            for token_id in column.encode(cell, dropout if column.kind == "bpe" else 0.0, seed)
        ]

    def encode_with_words(self, text: str) -> EncodedText:
        ids: list[int] = []
        tokens: list[str] = []
        words: list[int | None] = []
        first_word = 0
        for index, (column, cell) in enumerate(self._iter_cells(text)):
            encoded = column.encode_with_words(cell)
            ids += [self._to_joint(index, token_id) for token_id in encoded.ids]
            tokens += encoded.tokens
            words += [None if word is None else first_word + word for word in encoded.word_indices]
            first_word += len(column.steps.prepare(cell).split())
        return EncodedText(ids, tokens, words)

    def encode_to_pieces(self, text: str) -> tuple[list[int], list[bytes]]:
        """Return the token ids of a text with the bytes of each token, as in `id_to_piece`."""
        ids: list[int] = []
        pieces: list[bytes] = []
        for index, (column, cell) in enumerate(self._iter_cells(text)):
            own_ids, own_pieces = column.encode_to_pieces(cell)
            ids += [self._to_joint(index, token_id) for token_id in own_ids]
            pieces += [b"" if self._is_whole(column) else piece for piece in own_pieces]
        return ids, pieces

    def decode_raw(self, ids: Sequence[int]) -> str:
        cells = self._group_by_column(ids)
        return TAB.join(
            column.decode_raw([token_id for _, token_id in cell])
            for column, cell in zip(self.columns, cells, strict=True)
        )

    def ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        tokens = []
        for token_id in ids:
            index, own_id = self._to_own(token_id)
            tokens += self.columns[index].ids_to_tokens([own_id])
        return tokens

    def ids_to_word_indices(self, ids: Sequence[int]) -> list[int | None]:
        words: list[int | None] = [None] * len(ids)
        first_word = 0
        for column, cell in zip(self.columns, self._group_by_column(ids), strict=True):
            own_ids = [token_id for _, token_id in cell]
            for (place, _), word in zip(cell, column.ids_to_word_indices(own_ids), strict=True):
                words[place] = None if word is None else first_word + word
            first_word += len(column.decode_raw(own_ids).split())
        return words

    def id_to_piece(self, token_id: int) -> bytes:
        """Return the bytes of a token in its column; whole tokens beside a text have none, since no text has them."""
        index, own_id = self._to_own(token_id)
        column = self.columns[index]
        return b"" if self._is_whole(column) else column.id_to_piece(own_id)

    def check_text(self, text: str) -> None:
        split_cells(text, self.names)

    def select_text(self, text: str) -> str:
        return TAB.join(cell for column, cell in self._iter_cells(text) if not self._is_whole(column))

    def find_unknown_tokens(self, text: str) -> list[str]:
        unknown = []
        for column, cell in self._iter_cells(text):
            if self._is_whole(column):
                encoded = column.encode_with_words(cell)
                unknown += [t for t, token_id in zip(encoded.tokens, encoded.ids, strict=True) if token_id == UNKNOWN]
        return unknown

    def _is_whole(self, column: Tokenizer) -> bool:
        """Return whether a column has whole tokens beside a column of letters or subwords."""
        return column.kind == "words" and any(other.kind != "words" for other in self.columns)

    def _iter_cells(self, text: str) -> list[tuple[Tokenizer, str]]:
        """Return each column with its cell."""
        return list(zip(self.columns, split_cells(text, self.names), strict=True))

    def _to_joint(self, index: int, token_id: int) -> int:
        """Return the id of a token of a column; the special tokens have one id in all columns."""
        return token_id if token_id in SPECIAL else token_id + self.offsets[index]

    def _to_own(self, token_id: int) -> tuple[int, int]:
        """Return the column of a token, and its id there; a special token is in the first column."""
        if token_id in SPECIAL:
            return 0, token_id
        index = bisect_right(self.offsets, token_id - len(RESERVED)) - 1
        return index, token_id - self.offsets[index]

    def _group_by_column(self, ids: Sequence[int]) -> list[list[tuple[int, int]]]:
        """Return the position and own id of the tokens of each column; a special token belongs to the one before it."""
        cells: list[list[tuple[int, int]]] = [[] for _ in self.columns]
        index = 0
        for position, token_id in enumerate(ids):
            own_index, own_id = self._to_own(token_id)
            index = index if token_id in SPECIAL else own_index
            cells[index].append((position, own_id))
        return cells


def join_tokenizers(names: Sequence[str], columns: Sequence[Tokenizer]) -> ColumnTokenizer:
    """Join the tokenizers of several columns into one; the kind is subwords if a column has them, else characters."""
    entries = [f"{index} {entry}" for index, column in enumerate(columns) for entry in list_entries(column)]
    kinds: tuple[Kind, ...] = (*SUBWORD_KINDS, "characters", "words")
    kind = next(kind for kind in kinds if any(column.kind == kind for column in columns))
    steps = ColumnSteps(
        names=tuple(names),
        columns=tuple(column.steps for column in columns),
        normal_form=next((column.steps.normal_form for column in columns if column.steps.takes_apart), "none"),
        moses=next((column.steps.moses for column in columns if column.steps.moses), None),
    )
    model = build_word_model(build_vocabulary(entries))
    return ColumnTokenizer(kind, model, steps, names=tuple(names), columns=tuple(columns))


def count_columns(tokenizer: Tokenizer) -> int:
    """Return the number of columns of the texts that a tokenizer reads."""
    return len(tokenizer.columns) if isinstance(tokenizer, ColumnTokenizer) else 1


def list_entries(tokenizer: Tokenizer) -> list[str]:
    """Return the entries of a vocabulary in the order of their ids, without the special tokens."""
    ids = tokenizer.model.get_vocab()
    return sorted(ids, key=ids.__getitem__)[len(RESERVED) :]


def split_cells(text: str, names: Sequence[str]) -> list[str]:
    """Split a text into its columns: at tabs or, without a tab, at spaces if there are as many words as columns.

    An empty text has empty columns.
    """
    cells = [cell.strip() for cell in text.strip(" \r\n").split(TAB)]
    if cells == [""]:
        return [""] * len(names)
    if len(cells) == 1 and len(words := text.split()) == len(names):
        cells = words
    if len(cells) != len(names):
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        short = text if len(text) <= 60 else text[:59] + "…"
        raise RegardError(
            f"expected {len(names)} columns separated by tabs, {listed}, got {len(cells)}: "
            f'"{short.replace(TAB, " <TAB> ")}"'
        )
    return cells
