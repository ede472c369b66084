"""Encode words from their characters, so that unknown words get a meaningful vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import RegardError, refuse_less, unknown_name
from regard.layers.dropout import Dropout
from regard.layers.embedding import new_embedding
from regard.layers.lengths import SequenceLengths
from regard.layers.pooling import Pooling
from regard.layers.recurrent import Recurrent

CharacterEncoderKind = Literal["none", "max", "attention", "rnn"]
CHARACTER_ENCODERS: tuple[CharacterEncoderKind, ...] = get_args(CharacterEncoderKind)
"""The character encoders: none, convolutions with max pooling or attention, or a bidirectional LSTM."""

KERNEL_SIZES = (3,)  # characters per convolution window

NGRAM_LENGTHS = (2, 3, 4)  # characters per n-gram
HASH_MULTIPLIER, HASH_MODULUS = 1_000_003, 2**31 - 1  # primes with a product below 2^63


class CharacterEncoder(nn.Module):
    """A character encoder, which maps the characters of each word to a vector.

    Args:
        kind: `max` runs convolutions with max pooling (Ma and Hovy 2016), `attention` convolutions
            with attention pooling by a learned query, `rnn` a bidirectional LSTM whose last states
            are used (Lample et al. 2016).
        size: Number of characters (or other pieces of words).
        width: Width of the vector of a word.
        padding: Id of the padding.
        kernel_sizes: Kernel sizes of the convolutions, which share the width equally.
        edges: Whether to add boundary symbols before and after each word.
        dropout: Fraction of the character embeddings dropped in training.
    """

    def __init__(
        self,
        kind: str,
        size: int,
        width: int,
        *,
        padding: int = 0,
        kernel_sizes: Sequence[int] = KERNEL_SIZES,
        edges: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if kind not in CHARACTER_ENCODERS[1:]:
            raise unknown_name("char_encoder", kind, CHARACTER_ENCODERS)
        if size < 1 or width < 1:
            raise RegardError(f"CharacterEncoder: size and width must be at least 1, got {size} and {width}")
        check_character_encoder(kind, width, kernel_sizes)
        self.kind, self.padding, self.width = kind, padding, width
        self.size, self.edges = size, edges
        self.letters = new_embedding(size + 2 if edges else size, width, padding, is_output=True)
        self.dropout = Dropout(dropout)
        if kind == "rnn":
            self.recurrent = Recurrent("lstm", width, width // 2, bidirectional=True)
            self.pool = Pooling("last", width, bidirectional=True)
        else:
            first, *other_convolutions = (
                nn.Conv1d(width, share, kernel_size)
                for kernel_size, share in zip(kernel_sizes, split_width(width, kernel_sizes), strict=True)
            )
            self.neighbors, self.further = first, nn.ModuleList(other_convolutions)
            self.pool = Pooling(kind, width, score="scaled_dot")

    def forward(
        self, letters: Int[Tensor, "words letters"], lengths: SequenceLengths | None = None
    ) -> Float[Tensor, "words width"]:
        """Return a vector for each word; zeros for an empty word. `lengths` defaults to the count of non-padding."""
        lengths = SequenceLengths.of((letters != self.padding).sum(-1), letters.device) if lengths is None else lengths
        if self.edges:
            letters = add_word_edges(letters, self.padding, self.size, self.size + 1)
            lengths = lengths.map(lambda letters: letters + 2 * (letters > 0))
        embedded = self.dropout(self.letters(letters))
        if self.kind == "rnn":
            states, _ = self.recurrent(embedded, lengths.map(lambda letters: letters.clamp_min(1)))
        else:
            states = torch.cat(
                [convolve(embedded, convolution) for convolution in (self.neighbors, *self.further)], -1
            ).relu()
        return self.pool(states, lengths)


class CharacterNgrams(nn.Module):
    """The sum of a vector for each character n-gram of a word, boundaries included (Bojanowski et al. 2017).

    N-grams have two to four characters and share `size` vectors by hashing. The sum is divided by the
    square root of the number of n-grams, so that long words do not get larger vectors.
    """

    def __init__(self, letters: int, size: int, width: int, *, padding: int = 0) -> None:
        super().__init__()
        refuse_less("CharacterNgrams", 1, letters=letters, size=size, width=width)
        self.letters, self.size, self.width, self.padding = letters, size, width, padding
        self.runs = nn.EmbeddingBag(size + 1, width, mode="sum", padding_idx=0)  # 0: padding
        nn.init.normal_(self.runs.weight, std=width**-0.5)
        nn.init.zeros_(self.runs.weight[0])

    def forward(self, letters: Int[Tensor, "words letters"]) -> Float[Tensor, "words width"]:
        """Return a vector for each word; zeros for an empty word."""
        framed = add_word_edges(letters, self.padding, self.letters, self.letters + 1)
        ngram_ids = torch.cat([hash_ngrams(framed, length, self.size, self.padding) for length in NGRAM_LENGTHS], -1)
        total: Tensor = self.runs(ngram_ids)
        return total / (ngram_ids != 0).sum(-1, keepdim=True).clamp_min(1).sqrt()


def check_character_encoder(kind: str, width: int, kernel_sizes: Sequence[int]) -> None:
    """Raise a `RegardError` if width or kernel sizes do not fit a character encoder."""
    if kind == "rnn":
        if width % 2:
            raise RegardError(f'char_width must be even for char_encoder "rnn", got {width}')
    elif not kernel_sizes or min(kernel_sizes) < 1 or len(kernel_sizes) > width:
        raise RegardError(f"char_kernel_sizes must be 1 to {width} numbers of at least 1, got {list(kernel_sizes)}")


def split_width(width: int, parts: Sequence[int]) -> list[int]:
    """Split a width into equal parts; the first ones are larger by 1 if it does not divide."""
    size, remainder = divmod(width, len(parts))
    return [size + (index < remainder) for index in range(len(parts))]


def convolve(
    embedded: Float[Tensor, "words letters width"], convolution: nn.Conv1d
) -> Float[Tensor, "words letters features"]:
    """Apply a convolution at each character, with zero padding at both ends."""
    (kernel_size,) = convolution.kernel_size
    return convolution(functional.pad(embedded.mT, ((kernel_size - 1) // 2, kernel_size // 2))).mT


def add_word_edges(
    letters: Int[Tensor, "words letters"], padding: int, first: int, last: int
) -> Int[Tensor, "words framed"]:
    """Add a boundary symbol before and after each word; empty words are unchanged."""
    lengths = (letters != padding).sum(-1, keepdim=True)
    framed = functional.pad(letters, (1, 1), value=padding)
    positions = torch.arange(framed.shape[1], device=letters.device)
    framed = framed.masked_fill((positions == 0) & (lengths > 0), first)
    return framed.masked_fill((positions == lengths + 1) & (lengths > 0), last)


def hash_ngrams(
    letters: Int[Tensor, "words letters"], length: int, size: int, padding: int
) -> Int[Tensor, "words runs"]:
    """Hash each n-gram to a number from 1 to `size`; 0 if it contains padding."""
    if letters.shape[1] < length:
        return letters.new_zeros(len(letters), 0)
    ngrams = letters.unfold(1, length, 1)  # (words, runs, length)
    hashes = torch.full_like(ngrams[..., 0], length)
    for letter in ngrams.unbind(-1):
        hashes = (hashes * HASH_MULTIPLIER + letter) % HASH_MODULUS
    return (hashes % size + 1).masked_fill((ngrams == padding).any(-1), 0)
