"""Score a language model on texts with gold links and contrasts: where it looks, and which word it prefers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Float

from regard.batch import BOS
from regard.data.example import LinkedText
from regard.maps.options import LookOptions
from regard.metrics.gold_attention import GoldAttention, score_gold_attention
from regard.tasks.text.predictor import TextPredictor

TEXTS = 64
"""Number of texts to read at once."""

Row = tuple[Float[np.ndarray, "layers heads"], float]


@dataclass(frozen=True)
class ContrastScore:
    """How often a language model gives the right word a higher probability than the wrong one."""

    right: int
    count: int

    @property
    def share(self) -> float:
        """The share of contrasts decided correctly."""
        return self.right / self.count

    def __str__(self) -> str:
        return f"right word preferred {self.share:.4f} (right:{self.right}|count:{self.count})"

    def to_json(self) -> dict[str, object]:
        """Return values for `json.dumps`."""
        return {"share": self.share, **asdict(self)}


def score_contrasts(predictor: TextPredictor, texts: Sequence[LinkedText]) -> ContrastScore | None:
    """Compare the log-probability of each right word with that of the wrong one, after the same words.

    Returns:
        The share of contrasts in which the right word is more probable, or None if no text has contrasts.

    Example:
        >>> _, texts = generate_built_in("agreement", train=0, valid=100)
        >>> score_contrasts(regard.load("runs/agreement"), texts).share
    """
    prefixes = []
    for text in texts:
        words = text.text.split()
        for word, wrong in text.contrasts:
            prefixes += [" ".join([*words[:word], words[word]]), " ".join([*words[:word], wrong])]
    if not prefixes:
        return None
    scores = [
        math.fsum(scored.log_probabilities[: len(predictor.tokenizer.encode(scored.text))])  # without <eos>
        for scored in predictor.score_texts(prefixes)
    ]
    right = sum(right > wrong for right, wrong in zip(scores[::2], scores[1::2], strict=True))
    return ContrastScore(right, len(scores) // 2)


def score_text_attention(predictor: TextPredictor, texts: Sequence[LinkedText]) -> GoldAttention | None:
    """Return the attention from each linked word to its gold words, when the word was read and the next is predicted.

    Returns:
        The scores of the best head, or None if the model has no attention or no text has links.
    """
    linked = [text for text in texts if text.links]
    if not predictor.model.attentions or not linked:
        return None
    rows = [
        row for start in range(0, len(linked), TEXTS) for row in iter_rows(predictor, linked[start : start + TEXTS])
    ]
    return score_gold_attention(np.stack([on_gold for on_gold, _ in rows]), np.array([share for _, share in rows]))


def iter_rows(predictor: TextPredictor, texts: Sequence[LinkedText]) -> Iterator[Row]:
    """Yield the attention of each linked word on its gold words, and the share of these among the tokens it sees."""
    kind = LookOptions().resolve_kind(predictor.name, predictor.model.attentions)
    encoded = [predictor.tokenizer.encode_with_words(text.text) for text in texts]
    width = max(len(row.ids) for row in encoded) + 1
    tokens = torch.tensor([[BOS, *row.ids, *[BOS] * (width - 1 - len(row.ids))] for row in encoded])
    _, weights = predictor.run_watched(lambda: predictor.model.read(tokens.to(predictor.device)))
    dense = torch.stack([layer.dense() for layer in weights[kind]], 1).double().cpu().numpy()
    for row, (text, one) in enumerate(zip(texts, encoded, strict=True)):
        for word in sorted({word for _, word in text.links}):
            gold_words = {gold for gold, reader in text.links if reader == word}
            last = max(index for index, owner in enumerate(one.word_indices, 1) if owner == word)  # after <bos>
            gold = [index for index, owner in enumerate(one.word_indices, 1) if owner in gold_words]
            yield dense[row, :, :, last, gold].sum(0), len(gold) / (last + 1)
