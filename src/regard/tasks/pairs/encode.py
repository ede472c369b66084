"""Sources encoded for a model, with the tokenizer that decodes their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.batch import EOS, Pair
from regard.text import EncodedText, Tokenizer, TokenizerPair
from regard.text.copying import CopyTable, match_copies


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """A source with its tokens and, for a model that copies, what they copy."""

    text: str
    tokens: EncodedText
    target_tokenizer: Tokenizer  # with the further tokens that the source can copy
    copy_ids: list[int] | None = None

    @property
    def pair(self) -> Pair:
        """The token ids, without a target."""
        return Pair(self.tokens.ids, copy_ids=self.copy_ids)

    def encode_target(self, text: str) -> EncodedText:
        """Encode a target; its unknown tokens that the source has get the ids of their copies."""
        tokenizer = self.target_tokenizer
        encoded = tokenizer.encode_with_words(text)
        if self.copy_ids is None:
            return encoded
        ids, pieces = tokenizer.encode_to_pieces(text)
        return encoded._replace(ids=match_copies(ids, pieces, tokenizer.further, tokenizer.size))

    def decode_target(self, tokens: Sequence[int]) -> EncodedText:
        """Return the tokens of a decoded target, without <eos>."""
        ids, tokenizer = [token for token in tokens if token != EOS], self.target_tokenizer
        return EncodedText(ids, tokenizer.ids_to_tokens(ids), tokenizer.ids_to_word_indices(ids))


@dataclass(frozen=True, eq=False)
class SourceEncoder:
    """Encode sources for a model."""

    tokenizers: TokenizerPair
    copy_table: CopyTable | None  # None for a model that does not copy

    @staticmethod
    def of(tokenizers: TokenizerPair, *, copies: bool) -> SourceEncoder:
        """Return the encoder for a model that copies or not."""
        return SourceEncoder(tokenizers, CopyTable(tokenizers) if copies else None)

    def encode(self, text: str) -> EncodedSource:
        """Encode one source."""
        tokens = self.tokenizers.source.encode_with_words(text)
        if self.copy_table is None:
            return EncodedSource(text, tokens, self.tokenizers.target)
        copied = self.copy_table.encode(text)
        return EncodedSource(text, tokens, self.copy_table.extend_target(copied), copied.ids)
