"""A vector for a word from its letters, so that one that was never seen means something too."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import RegardError, unknown_name
from regard.layers.pooling import Pooling
from regard.layers.vocabulary import new_embedding

Spelt = Literal["none", "max", "attention"]
SPELT = ("none", "max", "attention")
"""How letters can be read: not at all, by what is strongest among them, or by attention to them."""

REACH = 3  # letters that are read together


class Spelling(nn.Module):
    """Letters, each read with its neighbours by a convolution, and what is made of them all (Ma and Hovy 2016).

    Args:
        how: `max` takes the greatest of each number over the letters, `attention` their mean
            by a learned query.
        size: How many letters (or other pieces of words) there are.
        width: Of the vector of a word.
        padding: The letter that is none.
    """

    def __init__(self, how: str, size: int, width: int, *, padding: int = 0) -> None:
        super().__init__()
        if how not in SPELT[1:]:
            raise unknown_name("spelling", how, SPELT)
        if size < 1 or width < 1:
            raise RegardError(f"Spelling: size is {size}, width is {width}; 1 is the least")
        self.padding, self.width = padding, width
        self.letters = new_embedding(size, width, padding, is_output=True)
        self.neighbours = nn.Conv1d(width, width, REACH, padding=REACH // 2)
        self.pool = Pooling(how, width, score="scaled_dot")

    def forward(self, letters: Int[Tensor, "words letters"]) -> Float[Tensor, "words width"]:
        """A vector for each word; nothing for one without letters."""
        lengths = (letters != self.padding).sum(-1)
        read = self.neighbours(self.letters(letters).mT).mT.relu()
        found: Tensor = self.pool(read, lengths)
        return found
