"""Everything that can be said of predicted text, in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from regard.errors import unknown_name
from regard.metrics.by_length import EDGES, LengthRow, by_length
from regard.metrics.score import Answers, Score
from regard.metrics.sequences import Unit, character_error_rate, exact_match, word_error_rate
from regard.metrics.translation import bleu, chrf, has_four_words

METRICS: dict[str, Callable[..., Score]] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact_match": exact_match,
    "word_error_rate": word_error_rate,
    "character_error_rate": character_error_rate,
}
NO_BLEU = "BLEU: no target has four words, so it says nothing"


@dataclass(frozen=True)
class Report:
    """The scores of predicted text, and one of them against the length of the source."""

    bleu: Score
    chrf: Score
    exact_match: Score
    word_error_rate: Score
    character_error_rate: Score
    by_length: tuple[LengthRow, ...]
    unit: Unit  # of the lengths
    against_length: str = "bleu"  # which of `METRICS` is given by length
    has_four_words: bool = True  # whether any right answer has, as BLEU needs

    @property
    def scores(self) -> tuple[Score, ...]:
        """Those of the whole corpus, that which is given by length first."""
        names = [self.against_length, *(name for name in METRICS if name != self.against_length)]
        return tuple(getattr(self, name) for name in names)

    def lines(self) -> Iterator[str]:
        """Each score with its conditions after itself."""
        for score in self.scores:
            yield str(score) if score is not self.bleu or self.has_four_words else NO_BLEU
        for row in self.by_length:
            name = f"{row.score.name}, sources of {row.lengths} {self.unit}s, {row.sentences} in all:"
            yield str(replace(row.score, name=name))

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`: each score by its name in `METRICS`, in full precision."""
        scores: dict[str, object] = {name: getattr(self, name).to_json() for name in METRICS}
        rows = {"unit": self.unit, "rows": [row.to_json() for row in self.by_length]}
        return scores | {"by_length": rows}


def evaluate_text(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: Answers,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    against_length: str | None = None,
    edges: Sequence[int] = EDGES,
    unit: Unit | None = None,
) -> Report:
    """Score predictions by every metric there is for text.

    Args:
        sources: What was read.
        predictions: What the model answered to each.
        references: The right answer to each, or several.
        lowercase: Whether upper and lower case count as the same.
        tokenize: How BLEU cuts words, as in `bleu`.
        against_length: Which of `METRICS` is given first, and by the length of the source; BLEU, or exact match where
            no right answer has four words, unless given.
        edges: The longest source of each row of that.
        unit: What a length counts; words, or characters where sources have fewer than two words on average, unless
            given.
    """
    if against_length is not None and against_length not in METRICS:
        raise unknown_name("evaluate_text: against_length", against_length, METRICS)
    metrics: dict[str, Callable[..., Score]] = {
        name: partial(metric, lowercase=lowercase) for name, metric in METRICS.items()
    }
    metrics["bleu"] = partial(bleu, lowercase=lowercase, tokenize=tokenize)
    long_enough = has_four_words(references, tokenize)
    unit, against_length = unit or unit_of(sources), against_length or ("bleu" if long_enough else "exact_match")
    rows = by_length(sources, predictions, references, metrics[against_length], edges, unit=unit)
    scores = {name: metric(predictions, references) for name, metric in metrics.items()}
    return Report(
        **scores,
        by_length=tuple(rows),
        unit=unit,
        against_length=against_length,
        has_four_words=long_enough,
    )


def unit_of(sources: Sequence[str]) -> Unit:
    """What tells short sources from long ones: where most are one word, their characters."""
    return "character" if sum(len(source.split()) for source in sources) < 2 * len(sources) else "word"
