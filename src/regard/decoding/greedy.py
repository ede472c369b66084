"""Greedy decoding: always the most probable token."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.steps import write_targets
from regard.models.seq2seq import Seq2Seq


def greedy(
    model: Seq2Seq,
    batch: Batch,
    *,
    longest: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """One target for each source: the most probable token at each step, the smallest number of equals.

    Args:
        model: In evaluation mode.
        batch: Sources, where the model is.
        longest: The most tokens of a target, <eos> included: one limit for all, or a limit for
            each; `default_longest` unless told otherwise. What reaches it has not ended.
        allow_unknown: Whether <unk> may be chosen.
    """
    return write_targets(model, batch, most_probable, longest=longest, allow_unknown=allow_unknown)


def most_probable(found: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
    """The most probable token of each row, the smallest number of equals."""
    return found.argmax(-1)
