"""Which target token each source token copies, for models that copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from regard.batch import UNKNOWN, Pair
from regard.text.tokenizer import RESERVED, Tokenizer
from regard.text.tokenizer_pair import TokenizerPair


class CopiedTokens(NamedTuple):
    """What the tokens of a source copy.

    Attributes:
        ids: For each source token, the target token with the same text. Those that the target vocabulary lacks, and
            tokens that no vocabulary has, have the ids after its last.
        pieces: The bytes of these further tokens, as a target has them.
    """

    ids: list[int]
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, eq=False)
class CopyTable:
    """The target tokens that the tokens of a source copy: those with the same text.

    Example:
        >>> table = CopyTable(tokenizers)
        >>> pair = table.encode_pair("ein Zebra", "a zebra")
        >>> table.extend_target(table.encode("ein Zebra")).decode(ids)
    """

    tokenizers: TokenizerPair

    @cached_property
    def target_ids(self) -> dict[bytes, int]:
        """The id of each target token by its bytes."""
        target = self.tokenizers.target
        return {target.id_to_piece(token_id): token_id for token_id in range(len(RESERVED), target.size)}

    def encode(self, text: str) -> CopiedTokens:
        """Return what the tokens of a source text copy."""
        return self._match_pieces(self.tokenizers.source.encode_to_pieces(text)[1])

    def find_copies(self, ids: Sequence[int]) -> CopiedTokens:
        """Return what the tokens of a source copy, given their ids, of which none is unknown."""
        return self._match_pieces([self.tokenizers.source.id_to_piece(token_id) for token_id in ids])

    def _match_pieces(self, pieces: Sequence[bytes]) -> CopiedTokens:
        """Return what source tokens copy, given their bytes."""
        further: dict[bytes, int] = {}
        ids = []
        for piece in map(self.to_target_piece, pieces):
            known = self.target_ids.get(piece)
            new = self.tokenizers.target.size + len(further)
            if not piece:  # a whole token beside a text, which no target has
                ids.append(UNKNOWN)
            else:
                ids.append(further.setdefault(piece, new) if known is None else known)
        return CopiedTokens(ids, tuple(further))

    def to_target_piece(self, piece: bytes) -> bytes:
        """Return the bytes of a source token as a target has them: words begin with a space, characters do not."""
        source, target = self.tokenizers.source.kind, self.tokenizers.target.kind
        if piece in (b"", b"\n") or source == target:
            return piece
        if target == "words":
            return b" " + piece.removeprefix(b" ")
        return piece.removeprefix(b" ") if (source, target) == ("words", "characters") else piece

    def encode_target(self, text: str, copied: CopiedTokens) -> list[int]:
        """Return the token ids of a target; unknown tokens that the source has get the id of their copy."""
        ids, pieces = self.tokenizers.target.encode_to_pieces(text)
        return match_copies(ids, pieces, copied.pieces, self.tokenizers.target.size)

    def encode_pair(self, source: str, target: str | None = None) -> Pair:
        """Return the token ids of a source, of its target, if any, and of what the source copies."""
        copied = self.encode(source)
        target_ids = None if target is None else self.encode_target(target, copied)
        return Pair(self.tokenizers.source.encode(source), target_ids, copied.ids)

    def extend_target(self, copied: CopiedTokens) -> Tokenizer:
        """Return the target tokenizer with the further tokens of a source, to decode what copies them."""
        return self.tokenizers.target.extend(copied.pieces)


def match_copies(ids: Sequence[int], pieces: Sequence[bytes], further: Sequence[bytes], vocab_size: int) -> list[int]:
    """Replace unknown tokens by the further tokens of a source with the same bytes."""
    further_ids = {piece: vocab_size + index for index, piece in enumerate(further)}
    return [
        further_ids.get(piece, token_id) if token_id == UNKNOWN else token_id
        for token_id, piece in zip(ids, pieces, strict=True)
    ]


def count_copied(source: Sequence[int], target: Sequence[int]) -> int:
    """Return the length of the longest common subsequence: the target tokens that can be copied in the same order."""
    lengths = [0] * (len(source) + 1)  # of the common subsequence of the target so far and each prefix of the source
    for token in target:
        diagonal = 0
        for index, other in enumerate(source, start=1):
            above = lengths[index]
            lengths[index] = diagonal + 1 if token == other else max(above, lengths[index - 1])
            diagonal = above
    return lengths[-1]
