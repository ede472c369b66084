"""Commands on a run of a tagger: predict, evaluate, look, explain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.tasks.actions import Flag, Invocation
from regard.tasks.actions.evaluate import EvaluateFindings, Findings, columns_of
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import PredictFromWords
from regard.tasks.progress import counted
from regard.tasks.tag.options import ENDINGS, TagExplainOptions, TagOptions

if TYPE_CHECKING:
    from regard.tasks.tag.predictor import TagPredictor

WEIGHED_AT_ONCE = 100
"""Sentences read before the first is answered, where weights from every word to every word are held."""


@dataclass(frozen=True, kw_only=True)
class PredictTags(PredictFromWords, TagOptions):
    """Write each word with its tag, a line each, and a blank line after each sentence.

    Attributes:
        source: A file of sentences, one a line; - is stdin.
        words: Read a word a line, with a blank line after each sentence; as from a file named .bio or .conll.
        why: Also show the words of each sentence, shaded by the attention they received.
        jsonl: Write a JSON object for each sentence, with words, tags and spans.
    """

    example: ClassVar[str] = "predict runs/ner < sentences.txt"
    unit: ClassVar[str] = "sentences"

    words: Flag = False

    def at_once(self, predictor: TagPredictor) -> int:
        return (
            min(super().at_once(predictor), WEIGHED_AT_ONCE) if self.weighed(predictor) else super().at_once(predictor)
        )

    def subjects(self, predictor: TagPredictor) -> Iterator[tuple[str, ...]]:
        if self.words or self.source.name.removesuffix(".gz").endswith(ENDINGS):
            return map(tuple, word_lines(self.source, predictor.recipe.data.columns))
        return (predictor.subject(line) for line in super().subjects(predictor))


def word_lines(source: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Sentences of a word a line: alone, or in the same column as in the data of the training."""
    from regard.data.tagged import column_numbers, rows

    place = column_numbers(columns)[0] if columns else 1
    words: list[str] = []
    for row in rows(source):
        if row is not None:
            where, cells = row
            if 1 < len(cells) < place:
                raise RegardError(f"{where}: found {len(cells)} columns; the words of the training were column {place}")
            words.append(cells[0] if len(cells) == 1 else cells[place - 1])
        elif words:
            yield words
            words = []


@dataclass(frozen=True, kw_only=True)
class EvaluateTags(EvaluateFindings):
    """Score tags: precision, recall and F1 of spans, or the accuracy of words.

    Attributes:
        data: A file of words and tags, like that of the training.
    """

    example: ClassVar[str] = "evaluate runs/ner --data test.bio"
    wanted: ClassVar[str] = "a file of words and tags"

    def findings(self, predictor: TagPredictor, given: Invocation) -> Findings:
        from regard.metrics.labels import label_report
        from regard.metrics.spans import span_report
        from regard.schemes import spans_of
        from regard.tasks.tag.prepare import read_all_tagged

        assert self.data is not None
        sentences = read_all_tagged(self.data, columns_of(self.columns, predictor))
        with counted(given.quiet, "sentences") as show:
            taggings = predictor.predict([sentence.words for sentence in sentences], progress=show)
        found, gold = [each.tags for each in taggings], [sentence.tags for sentence in sentences]
        lines = ["\n".join(each.lines(PredictTags())) for each in taggings]
        if predictor.model.config.scheme == "plain":
            report: Any = label_report(*([tag for tags in part for tag in tags] for part in (found, gold)))
            return Findings(
                report, [list(enumerate(each)) for each in found], [list(enumerate(each)) for each in gold], lines
            )
        return Findings(span_report(found, gold), list(map(spans_of, found)), list(map(spans_of, gold)), lines)


@dataclass(frozen=True, kw_only=True)
class LookAtTags(Look):
    """Show where the words look that are tagged: in the terminal or, if files are named, in these."""


@dataclass(frozen=True, kw_only=True)
class ExplainTag(Explain, TagExplainOptions):
    """Show how much each word of a sentence mattered for a tag, by several methods, and their agreement."""
