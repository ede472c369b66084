"""Score predicted text with all text metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from regard.errors import unknown_name
from regard.metrics.by_length import EDGES, LengthRow, score_by_length
from regard.metrics.score import MetricScore, References
from regard.metrics.sequences import (
    LengthUnit,
    character_error_rate,
    exact_match,
    token_error_rate,
    whole_word_error_rate,
    word_error_rate,
)
from regard.metrics.translation import bleu, chrf, has_four_words

METRICS: dict[str, Callable[..., MetricScore]] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact_match": exact_match,
    "word_error_rate": word_error_rate,
    "whole_word_error_rate": whole_word_error_rate,
    "token_error_rate": token_error_rate,
    "character_error_rate": character_error_rate,
}
SENTENCE_METRICS = ("bleu", "chrf", "exact_match", "word_error_rate", "character_error_rate")
WORD_METRICS = ("exact_match", "whole_word_error_rate", "token_error_rate", "character_error_rate", "chrf", "bleu")
"""Scores to report for sources that are sentences, and for sources that are single words; keys of `METRICS`."""

NO_BLEU = "BLEU: not meaningful, because no target has four words"


@dataclass(frozen=True)
class TextPredictionReport:
    """Scores of predicted text, and one of them by source length."""

    bleu: MetricScore
    chrf: MetricScore
    exact_match: MetricScore
    word_error_rate: MetricScore  # edits per word
    whole_word_error_rate: MetricScore  # 1 - exact match
    token_error_rate: MetricScore
    character_error_rate: MetricScore
    by_length: tuple[LengthRow, ...]
    unit: LengthUnit  # unit of the lengths
    against_length: str = "bleu"  # key in `METRICS` of the score given by length
    has_four_words: bool = True  # whether any reference has four words, as BLEU requires
    single_words: bool = False  # whether most sources are a single word

    @property
    def metrics(self) -> tuple[str, ...]:
        """Keys in `METRICS` of the scores to report, starting with the one given by length."""
        names = WORD_METRICS if self.single_words else SENTENCE_METRICS
        return (self.against_length, *(name for name in names if name != self.against_length))

    @property
    def scores(self) -> tuple[MetricScore, ...]:
        """Scores of the whole corpus, starting with the one given by length."""
        return tuple(getattr(self, name) for name in self.metrics)

    def lines(self) -> Iterator[str]:
        """Yield each score followed by its conditions."""
        for score in self.scores:
            yield str(score) if score is not self.bleu or self.has_four_words else NO_BLEU
        for row in self.by_length:
            name = f"{row.score.name}, sources of {row.lengths} {self.unit}s, {row.sentences} in total:"
            yield str(replace(row.score, name=name))

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for `json.dumps`: each score by its key in `METRICS`, in full precision.

        The value of BLEU is None if it is not meaningful.
        """
        scores: dict[str, object] = {name: getattr(self, name).to_json() for name in self.metrics}
        if not self.has_four_words:
            scores["bleu"] = self.bleu.to_json() | {"value": None}
        rows = {"unit": self.unit, "rows": [row.to_json() for row in self.by_length]}
        return scores | {"by_length": rows}


def evaluate_text(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    against_length: str | None = None,
    edges: Sequence[int] = EDGES,
    unit: LengthUnit | None = None,
) -> TextPredictionReport:
    """Score predictions with all text metrics.

    Args:
        sources: Source texts.
        predictions: Prediction for each source.
        references: Reference, or several references, for each source.
        lowercase: Whether to ignore case.
        tokenize: Tokenizer of BLEU, as in `bleu`.
        against_length: Key in `METRICS` of the score to report first and by source length. By default BLEU, or exact
            match if no reference has four words.
        edges: Maximum source length of each row.
        unit: Unit of length. By default words, or characters if sources average fewer than two words.

    Returns:
        All scores. The report of single words has the error rates of words and of tokens, such as phones.

    Raises:
        RegardError: An argument is invalid, or the numbers of texts differ.

    Example:
        >>> report = evaluate_text(["ein hund"], ["a dog"], ["a dog"])
        >>> report.exact_match.value
        1.0
    """
    if against_length is not None and against_length not in METRICS:
        raise unknown_name("evaluate_text: against_length", against_length, METRICS)
    metrics: dict[str, Callable[..., MetricScore]] = {
        name: partial(metric, lowercase=lowercase) for name, metric in METRICS.items()
    }
    metrics["bleu"] = partial(bleu, lowercase=lowercase, tokenize=tokenize)
    long_enough = has_four_words(references, tokenize)
    unit, against_length = unit or choose_unit(sources), against_length or ("bleu" if long_enough else "exact_match")
    rows = score_by_length(sources, predictions, references, metrics[against_length], edges, unit=unit)
    scores = {name: metric(predictions, references) for name, metric in metrics.items()}
    return TextPredictionReport(
        **scores,
        by_length=tuple(rows),
        unit=unit,
        against_length=against_length,
        has_four_words=long_enough,
        single_words=choose_unit(sources) == "character",
    )


def choose_unit(sources: Sequence[str]) -> LengthUnit:
    """Return `character` if sources average fewer than two words, otherwise `word`."""
    return "character" if sum(len(source.split()) for source in sources) < 2 * len(sources) else "word"
