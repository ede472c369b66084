"""A vector for a word from its letters, so that one that was never seen means something too."""

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

Spelt = Literal["none", "max", "attention", "rnn"]
SPELT: tuple[Spelt, ...] = get_args(Spelt)
"""How letters can be read: not at all, by what is strongest among them, by attention to them, or both ways in turn."""

REACHES = (3,)  # letters that are read together

RUNS = (2, 3, 4)  # letters of a run
MIXED_BY, MIXED_WITHIN = 1_000_003, 2**31 - 1  # primes, whose product is below 2^63


class Spelling(nn.Module):
    """Letters, each read with its neighbours, and what is made of them all.

    Args:
        how: With `max` and `attention` convolutions read the letters; `max` takes the greatest of
            each number over them (Ma and Hovy 2016), `attention` their mean by a learned query.
            With `rnn` an LSTM reads them both ways, and its last states are taken (Lample et al. 2016).
        size: How many letters (or other pieces of words) there are.
        width: Of the vector of a word.
        padding: The letter that is none.
        reaches: How many letters a convolution reads together; each has its share of the width.
        edges: Put a letter of its own before and after each word, so that its beginning and its end
            are told from its middle.
        dropout: The share dropped of what stands for the letters, in training.
    """

    def __init__(
        self,
        how: str,
        size: int,
        width: int,
        *,
        padding: int = 0,
        reaches: Sequence[int] = REACHES,
        edges: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if how not in SPELT[1:]:
            raise unknown_name("spelling", how, SPELT)
        if size < 1 or width < 1:
            raise RegardError(f"Spelling: size is {size}, width is {width}; 1 is the least")
        check_reading(how, width, reaches)
        self.how, self.padding, self.width = how, padding, width
        self.size, self.edges = size, edges
        self.letters = new_embedding(size + 2 if edges else size, width, padding, is_output=True)
        self.dropout = Dropout(dropout)
        if how == "rnn":
            self.recurrent = Recurrent("lstm", width, width // 2, bidirectional=True)
            self.pool = Pooling("last", width, bidirectional=True)
        else:
            first, *others = (
                nn.Conv1d(width, share, reach) for reach, share in zip(reaches, shares(width, reaches), strict=True)
            )
            self.neighbours, self.further = first, nn.ModuleList(others)
            self.pool = Pooling(how, width, score="scaled_dot")

    def forward(
        self, letters: Int[Tensor, "words letters"], lengths: SequenceLengths | None = None
    ) -> Float[Tensor, "words width"]:
        """A vector for each word; nothing for one without letters. Without `lengths` they are counted."""
        lengths = SequenceLengths.of((letters != self.padding).sum(-1), letters.device) if lengths is None else lengths
        if self.edges:
            letters = with_edges(letters, self.padding, self.size, self.size + 1)
            lengths = lengths.map(lambda letters: letters + 2 * (letters > 0))
        known = self.dropout(self.letters(letters))
        if self.how == "rnn":
            read, _ = self.recurrent(known, lengths.map(lambda letters: letters.clamp_min(1)))
        else:
            read = torch.cat([read_together(known, each) for each in (self.neighbours, *self.further)], -1).relu()
        return self.pool(read, lengths)


class LetterRuns(nn.Module):
    """The sum of a vector for each run of two to four letters of a word, its edges among them (Bojanowski et al. 2017).

    Runs share `size` vectors by a hash of their letters. The sum is divided by the root of how many
    there are, so that long words are not larger than short ones.
    """

    def __init__(self, letters: int, size: int, width: int, *, padding: int = 0) -> None:
        super().__init__()
        refuse_less("LetterRuns", 1, letters=letters, size=size, width=width)
        self.letters, self.size, self.width, self.padding = letters, size, width, padding
        self.runs = nn.EmbeddingBag(size + 1, width, mode="sum", padding_idx=0)  # 0: no run
        nn.init.normal_(self.runs.weight, std=width**-0.5)
        nn.init.zeros_(self.runs.weight[0])

    def forward(self, letters: Int[Tensor, "words letters"]) -> Float[Tensor, "words width"]:
        """A vector for each word; nothing for one without letters."""
        framed = with_edges(letters, self.padding, self.letters, self.letters + 1)
        numbers = torch.cat([run_numbers(framed, length, self.size, self.padding) for length in RUNS], -1)
        total: Tensor = self.runs(numbers)
        return total / (numbers != 0).sum(-1, keepdim=True).clamp_min(1).sqrt()


def check_reading(how: str, width: int, reaches: Sequence[int]) -> None:
    """Raise a `RegardError` where letters cannot be read so."""
    if how == "rnn":
        if width % 2:
            raise RegardError(f"spelling_width is {width}; rnn, which reads both ways, needs an even one")
    elif not reaches or min(reaches) < 1 or len(reaches) > width:
        raise RegardError(f"spelling_reaches are {list(reaches)}; one to {width} numbers, each at least 1, are needed")


def shares(width: int, parts: Sequence[int]) -> list[int]:
    """A width in as many parts, the first of them larger where it cannot be divided."""
    each, more = divmod(width, len(parts))
    return [each + (place < more) for place in range(len(parts))]


def read_together(
    known: Float[Tensor, "words letters width"], convolution: nn.Conv1d
) -> Float[Tensor, "words letters found"]:
    """What a convolution finds around each letter, with nothing beyond the first and the last."""
    (reach,) = convolution.kernel_size
    return convolution(functional.pad(known.mT, ((reach - 1) // 2, reach // 2))).mT


def with_edges(
    letters: Int[Tensor, "words letters"], padding: int, first: int, last: int
) -> Int[Tensor, "words framed"]:
    """Each word between two more letters; one without letters stays so."""
    lengths = (letters != padding).sum(-1, keepdim=True)
    framed = functional.pad(letters, (1, 1), value=padding)
    places = torch.arange(framed.shape[1], device=letters.device)
    framed = framed.masked_fill((places == 0) & (lengths > 0), first)
    return framed.masked_fill((places == lengths + 1) & (lengths > 0), last)


def run_numbers(
    letters: Int[Tensor, "words letters"], length: int, size: int, padding: int
) -> Int[Tensor, "words runs"]:
    """A number from 1 to `size` for each run of letters, the same for the same letters; 0 where padding is met."""
    if letters.shape[1] < length:
        return letters.new_zeros(len(letters), 0)
    runs = letters.unfold(1, length, 1)  # (words, runs, length)
    mixed = torch.full_like(runs[..., 0], length)
    for letter in runs.unbind(-1):
        mixed = (mixed * MIXED_BY + letter) % MIXED_WITHIN
    return (mixed % size + 1).masked_fill((runs == padding).any(-1), 0)
