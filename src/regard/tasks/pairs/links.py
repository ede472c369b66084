"""Attention on given pairs and gold links, for `regard evaluate` and `regard align`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import AttentionExample, GoldLinks
    from regard.data.example import Example
    from regard.tasks.pairs.predictor import PairPredictor, Prediction


def to_attended(prediction: Prediction) -> AttentionExample:
    """Return the weights of a prediction and the word of each token."""
    from regard.alignment import AttentionExample

    assert prediction.weights is not None
    return AttentionExample(prediction.weights, prediction.source_words, prediction.target_words)


def unzip_examples(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """Return the sources and the targets of some examples."""
    return [example.source for example in examples], [example.target for example in examples]


def attend_examples(model: PairPredictor, examples: Sequence[Example]) -> list[AttentionExample]:
    """Return the attention of a model on given pairs."""
    return [to_attended(prediction) for prediction in model.force(*unzip_examples(examples), return_weights=True)]


def check_gold(path: Path, gold: Sequence[GoldLinks], attended: Sequence[AttentionExample]) -> None:
    """Raise a `RegardError` for a link to a word that does not exist."""
    for line_number, (links, attended_pair) in enumerate(zip(gold, attended, strict=True), start=1):
        for side, words, word_indices in (
            ("source", attended_pair.source_words, [source for source, _ in links.possible]),
            ("target", attended_pair.target_words, [target for _, target in links.possible]),
        ):
            count = len({word for word in words if word is not None})
            if word_indices and max(word_indices) >= count:
                raise RegardError(
                    f"{path}, line {line_number}: word {max(word_indices)} of the {side} is out of range "
                    f"({count} words, counted from 0); if the links count from 1, pass --gold-base 1"
                )


def get_shifts(shift: int | None) -> tuple[int, ...]:
    """Return the shifts to try: the given one, or all."""
    from regard.alignment import SHIFTS

    return SHIFTS if shift is None else (shift,)
