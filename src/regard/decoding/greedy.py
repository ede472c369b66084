"""Greedy decoding."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.steps import decode_targets
from regard.models.seq2seq import Seq2Seq


def greedy(
    model: Seq2Seq,
    batch: Batch,
    *,
    max_length: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """Decode each source by taking the most probable token at each step; ties go to the smaller id.

    Args:
        model: A model in evaluation mode.
        batch: Sources, on the model's device.
        max_length: Maximum number of target tokens, including <eos>: one limit, or one per source;
            by default `default_max_length`. Targets that reach it are cut off, with `ended=False`.
        allow_unknown: Allow <unk> in targets.

    Returns:
        One hypothesis per source.

    Raises:
        RegardError: The model is in training mode or gives no finite probabilities.

    Example:
        >>> [hypothesis.target for hypothesis in greedy(model.eval(), batch)]
    """
    return decode_targets(model, batch, choose_most_probable, max_length=max_length, allow_unknown=allow_unknown)


def choose_most_probable(log_probabilities: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
    """Return the most probable token of each row; ties go to the smaller id."""
    return log_probabilities.argmax(-1)
