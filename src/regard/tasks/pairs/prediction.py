"""Prediction: a target predicted for a source, with its probability and, on request, attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.batch import Pair
from regard.decoding import Hypothesis
from regard.decoding.beam import compute_length_penalty
from regard.tasks.actions.predict import to_single_line
from regard.tasks.pairs.encode import EncodedSource
from regard.tasks.pairs.record import TargetRecord
from regard.tasks.predictor import build_record
from regard.text import EncodedText
from regard.text.tokenizer import END

if TYPE_CHECKING:
    from regard.tasks.pairs.actions import PredictPairs


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted target with its log-probability and, on request, its attention weights.

    The tokens of both sides end in <eos> (the target's only if the target is complete), and
    so do the axes of the weights. Unknown source tokens are shown as in the text.
    """

    source: str
    text: str
    raw_text: str = field(repr=False)  # the model's output, composed, before further postprocessing
    log_probability: float
    ranking_score: float  # the log-probability divided by the length penalty, by which targets are ranked
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_words: tuple[int | None, ...] = field(repr=False)  # the word index of each token
    target_words: tuple[int | None, ...] = field(repr=False)
    pair: Pair = field(repr=False)  # the token ids of both sides, without <eos>
    generated: tuple[float, ...] | None = field(default=None, repr=False)  # of a model that copies, per target token
    weights: Float[Tensor, "layers heads target source"] | None = field(default=None, repr=False)
    alternatives: tuple[Prediction, ...] = field(default=(), repr=False)  # the n best, this one first

    def record(self) -> dict[str, Any]:
        """Return the best target and all alternatives, best first, as JSON values."""
        targets = [build_record(alternative, TargetRecord) for alternative in self.alternatives]
        return {"source": self.source, **targets[0], "alternatives": targets}

    def lines(self, options: PredictPairs) -> list[str]:
        """Return the target or, with `nbest` above 1, a line for each: ranking score, log-probability and target."""
        if options.nbest > 1:
            return [
                f"{target.ranking_score:.4f}\t{target.log_probability:.4f}\t{to_single_line(target.text)}"
                for target in self.alternatives
            ]
        text = to_single_line(self.text)
        return [f"{self.log_probability:.4f}\t{text}" if options.log_probabilities else text]


def decode_prediction(source: EncodedSource, hypothesis: Hypothesis) -> Prediction:
    """Build the prediction of a hypothesis, without probability and weights."""
    tokenizer, target = source.target_tokenizer, source.decode_target(hypothesis.tokens)
    readable, written = tokenizer.decode(target.ids), tokenizer.decode_raw(target.ids)
    return build_prediction(source, readable, written, target, ended=hypothesis.ended)


def build_prediction(
    source: EncodedSource, readable: str, written: str, target: EncodedText, *, ended: bool = True
) -> Prediction:
    """Build a prediction without probability and weights."""
    return Prediction(
        source=source.text,
        text=readable,
        raw_text=written,
        log_probability=0.0,
        ranking_score=0.0,
        source_tokens=(*source.tokens.tokens, END),
        target_tokens=(*target.tokens, END) if ended else tuple(target.tokens),
        source_words=(*source.tokens.word_indices, None),
        target_words=(*target.word_indices, None) if ended else tuple(target.word_indices),
        pair=source.pair._replace(target=target.ids),
    )


def add_log_probability(prediction: Prediction, log_probability: float, length_penalty: float) -> Prediction:
    """Return a prediction with its log-probability, and with the score that ranks it."""
    ranking_score = log_probability / compute_length_penalty(float(len(prediction.target_tokens)), length_penalty)
    return replace(prediction, log_probability=log_probability, ranking_score=ranking_score)


def drop_duplicates(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Drop predictions with the text of an earlier one: different tokens may decode to the same text."""
    by_text: dict[str, Prediction] = {}
    for prediction in predictions:
        by_text.setdefault(prediction.text, prediction)
    return list(by_text.values())
