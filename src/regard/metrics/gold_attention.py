"""How much attention goes to the words that decide, by the gold links of a corpus."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class GoldAttention:
    """The mean attention weight on gold words, of the head with the most, and what uniform weights would give."""

    weight: float
    uniform: float  # the share of gold words among the words that can be attended to
    mean: float  # the mean over all layers and heads
    layer: int  # index of the layer of the best head, from 0
    head: int
    heads: int  # number of heads in all layers
    rows: int  # number of texts or words whose attention is scored

    def __str__(self) -> str:
        best = f", layer {self.layer}, head {self.head}, the best of {self.heads}" if self.heads > 1 else ""
        mean = f", mean of all heads {self.mean:.2f}" if self.heads > 1 else ""
        return f"attention on gold words {self.weight:.2f}{best} (uniform {self.uniform:.2f}{mean})"

    def to_json(self) -> dict[str, object]:
        """Return values for `json.dumps`."""
        return asdict(self)


def score_gold_attention(
    on_gold: Float[np.ndarray, "rows layers heads"], uniform: Float[np.ndarray, " rows"]
) -> GoldAttention | None:
    """Average the attention on gold words over rows, and choose the head with the most; None without rows.

    Args:
        on_gold: For each row, the sum of its weights on gold words, by layer and head.
        uniform: For each row, that sum if all words had the same weight.
    """
    if not len(on_gold):
        return None
    by_head = on_gold.mean(0)
    layer, head = np.unravel_index(int(by_head.argmax()), by_head.shape)
    return GoldAttention(
        weight=float(by_head[layer, head]),
        uniform=float(uniform.mean()),
        mean=float(by_head.mean()),
        layer=int(layer),
        head=int(head),
        heads=by_head.size,
        rows=len(on_gold),
    )
