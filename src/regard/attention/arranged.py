"""Weights that were computed apart or in another shape, arranged as one would look at them; as lazy as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.reductions import Rows
from regard.attention.visible import Index, count, positions
from regard.attention.weights import DerivedWeights, Weights


class MergedWeights(DerivedWeights):
    """Other weights, two neighbouring leading axes of which are one: the heads of all groups, say."""

    def __init__(self, whole: Weights, axis: int) -> None:
        before, (outer, inner), after = whole.shape[:axis], whole.shape[axis : axis + 2], whole.shape[axis + 2 :]
        super().__init__(whole, axis, (*before, outer * inner, *after))

    def over(self, whole: Weights) -> Weights:
        return MergedWeights(whole, self.axis)

    def merged(self, found: Any) -> Any:
        """An answer about the other weights, or a tuple of them, with its two axes made one."""
        return tuple(map(self.merged, found)) if isinstance(found, tuple) else found.flatten(self.axis, self.axis + 1)

    def answers(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.merged(found) for name, found in self.whole.answers(names).items()}

    def row_blocks(self) -> Iterator[Rows]:
        for block, full in self.whole_rows():
            yield Rows(block.rows, block.span, self.merged(full))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.merged(self.whole.block(rows, cols))

    def at_batch(self, leading: list[Any]) -> Weights:
        place = leading[self.axis]
        if not isinstance(place, int) or not -self.shape[self.axis] <= place < self.shape[self.axis]:
            return self
        both = divmod(place % self.shape[self.axis], self.whole.shape[self.axis + 1])
        narrowed = self.whole.at_batch([*leading[: self.axis], *both, *leading[self.axis + 1 :]])
        return self if narrowed is self.whole else narrowed

    def apart(self) -> Weights:
        return self.over(self.whole.apart())


class JoinedWeights(Weights):
    """The rows of several weights, one below the other.

    The keys of each are a run of all keys, which begins at the number in `firsts`;
    the others have no weight.
    """

    def __init__(self, parts: Sequence[Weights], firsts: Sequence[int]) -> None:
        self.parts, self.firsts = list(parts), list(firsts)
        self.rows = [0, *accumulate(part.shape[-2] for part in parts)]
        keys = max(first + part.shape[-1] for part, first in zip(parts, firsts, strict=True))
        self.shape = torch.Size((*parts[0].shape[:-2], self.rows[-1], keys))
        self.ranked = all(part.ranked for part in parts)
        self.device, self.dtype = parts[0].device, parts[0].dtype

    def row_blocks(self) -> Iterator[Rows]:
        for part, row, first in zip(self.parts, self.rows, self.firsts, strict=False):
            for block in part.row_blocks():
                moved = copy.copy(block)
                moved.rows, moved.span = shifted(block.rows, row), shifted(block.span, first)
                yield moved

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        found = torch.zeros(*self.shape[:-2], count(rows), count(cols), dtype=self.dtype, device=self.device)
        for part, row, first in zip(self.parts, self.rows, self.firsts, strict=False):
            our_rows, their_rows = overlap(rows, row, part.shape[-2], self.device)
            our_cols, their_cols = overlap(cols, first, part.shape[-1], self.device)
            found[..., our_rows[:, None], our_cols] = part.block(their_rows, their_cols)
        return found

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return JoinedWeights([part.map(change) for part in self.parts], self.firsts)


def shifted(run: slice, by: int) -> slice:
    """A run of positions, counted from elsewhere."""
    return slice(run.start + by, run.stop + by)


def overlap(index: Index, start: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which of some positions lie in a run: where each stands among them, and in the run."""
    wanted = positions(index, device) - start
    places = ((wanted >= 0) & (wanted < size)).nonzero()[:, 0]
    return places, wanted[places]
