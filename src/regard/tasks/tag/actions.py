"""Commands on a tagger: predict, evaluate, look, explain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.tasks.actions import Flag, Invocation
from regard.tasks.actions.evaluate import EvaluateWithComparison, EvaluationResult, add_attention, parse_columns
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import PredictFromWords
from regard.tasks.progress import show_counter
from regard.tasks.tag.options import ENDINGS, TagExplainOptions, TagOptions

if TYPE_CHECKING:
    from regard.data.tagged import TaggedSentence
    from regard.tasks.tag.predictor import TagPredictor

WEIGHED_CHUNK_SIZE = 100
"""Number of sentences to read before answering, when their self-attention weights are kept in memory."""


@dataclass(frozen=True, kw_only=True)
class PredictTags(PredictFromWords, TagOptions):
    """Print each word with its tag, one per line, and a blank line after each sentence.

    Attributes:
        source: File with one sentence per line; - is stdin.
        words: Read one word per line, with a blank line after each sentence; the default for .bio and .conll files.
        why: Also show the words of each sentence, shaded by the attention they receive.
        jsonl: Print one JSON object per sentence, with words, tags and spans.
    """

    example: ClassVar[str] = "predict runs/ner < sentences.txt"
    unit: ClassVar[str] = "sentences"

    words: Flag = False

    def get_chunk_size(self, predictor: TagPredictor) -> int:
        return (
            min(super().get_chunk_size(predictor), WEIGHED_CHUNK_SIZE)
            if self.needs_weights(predictor)
            else super().get_chunk_size(predictor)
        )

    def iter_inputs(self, predictor: TagPredictor) -> Iterator[tuple[str, ...]]:
        if self.words or self.source.name.removesuffix(".gz").endswith(ENDINGS):
            return map(tuple, read_word_lines(self.source, predictor.recipe.data.columns))
        return (predictor.build_input(line) for line in super().iter_inputs(predictor))


def read_word_lines(source: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield sentences of a file with one word per line, alone or in the column of the training data."""
    from regard.data.tagged import iter_rows, parse_column_numbers

    column = parse_column_numbers(columns)[0] if columns else 1
    words: list[str] = []
    for row in iter_rows(source):
        if row is not None:
            location, cells = row
            if 1 < len(cells) < column:
                raise RegardError(f"{location}: expected the word in column {column}, got {len(cells)} columns")
            words.append(cells[0] if len(cells) == 1 else cells[column - 1])
        elif words:
            yield words
            words = []


@dataclass(frozen=True, kw_only=True)
class EvaluateTags(EvaluateWithComparison):
    """Score tags: precision, recall and F1 of spans, or the accuracy of words.

    Attributes:
        data: File of words and tags, in the format of the training data, or a built-in corpus (default: the built-in
            corpus the run was trained on).
    """

    example: ClassVar[str] = "evaluate runs/ner --data test.bio"
    expected_data: ClassVar[str] = "a file of words and tags"

    def evaluate(self, predictor: TagPredictor, invocation: Invocation) -> EvaluationResult:
        from regard.metrics.labels import label_report
        from regard.metrics.spans import span_report
        from regard.tasks.tag.gold_attention import score_tag_attention

        sentences = self.load_test_examples(predictor)
        with show_counter(invocation.quiet, "sentences") as show:
            taggings = predictor.predict([sentence.words for sentence in sentences], progress=show)
        predicted_tags, gold = [tagging.tags for tagging in taggings], [sentence.tags for sentence in sentences]
        lines = ["\n".join(tagging.lines(PredictTags())) for tagging in taggings]
        report: Any
        if predictor.model.config.scheme == "plain":
            report = label_report(*([tag for tags in part for tag in tags] for part in (predicted_tags, gold)))
        else:
            report = add_attention(span_report(predicted_tags, gold), score_tag_attention(predictor, sentences))
        spans, gold_spans = ([predictor.list_spans(tags) for tags in part] for part in (predicted_tags, gold))
        return EvaluationResult(report, spans, gold_spans, lines)

    def read_examples(self, predictor: TagPredictor) -> list[TaggedSentence]:
        from regard.tasks.tag.prepare import read_tagged_sentences

        assert self.data is not None
        only_spans = predictor.model.config.scheme != "plain"
        return read_tagged_sentences(self.data, parse_columns(self.columns, predictor), only_spans=only_spans)


@dataclass(frozen=True, kw_only=True)
class LookAtTags(Look):
    """Show the attention between words of a tagger, in the terminal or in files."""


@dataclass(frozen=True, kw_only=True)
class ExplainTag(Explain, TagExplainOptions):
    """Show how much each word of a sentence mattered for a tag, by several methods, and how well they agree."""
