"""Commands on a classifier: predict, evaluate, look, explain."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.errors import RegardError
from regard.tasks.actions import Invocation
from regard.tasks.actions.evaluate import (
    EvaluateWithComparison,
    EvaluationResult,
    add_attention,
    parse_columns,
    rename_data_options,
)
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import PredictFromWords
from regard.tasks.label.options import LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.progress import show_counter

if TYPE_CHECKING:
    from regard.data.labeled import LabeledText
    from regard.tasks.label.predictor import Labeling, LabelPredictor


@dataclass(frozen=True, kw_only=True)
class PredictLabels(PredictFromWords, RankOptions):
    """Print the labels of each line.

    Attributes:
        source: File with one text per line, or two texts with a tab between for a model of text pairs; - is stdin. Of a
            .tsv, .csv or .jsonl file the texts are read as in training, not the labels.
        nbest: Number of labels to print for each text, with their probabilities, most probable first.
        jsonl: Print one JSON object per text, with its labels, words and weights.
    """

    example: ClassVar[str] = "predict runs/questions --why < texts.txt"
    unit: ClassVar[str] = "texts"

    def iter_inputs(self, predictor: LabelPredictor) -> Iterator[LabeledText | None]:
        """Yield the input for each line; a blank line yields None and ends a dialogue."""
        from regard.data.labeled import LabeledText

        config = predictor.model.config
        previous_texts = deque[str](maxlen=config.context_size)
        for number, (text, second) in enumerate(self.iter_texts(predictor), 1):
            if not text:
                previous_texts.clear()
                yield None
                continue
            if config.text_pairs and not second:
                raise RegardError(f"line {number}: expected two texts separated by a tab, got one")
            yield LabeledText(text, (), second or None, tuple(previous_texts))
            previous_texts.append(text)

    def iter_texts(self, predictor: LabelPredictor) -> Iterator[tuple[str, str]]:
        """Yield the text of each line or row, and its second text or ""."""
        from regard.data.labeled import is_table, read_table_texts

        pairs = predictor.model.config.text_pairs
        if self.text is None and is_table(self.source):
            for row in read_table_texts(self.source, predictor.recipe.data.columns, text_pairs=pairs):
                yield row.get("text", "").strip(), row.get("second", "").strip()
            return
        for line in super().iter_inputs(predictor):
            text, _, second = line.partition("\t") if pairs else (line, "", "")
            yield text.strip(), second.strip()

    def format_answer(self, predictor: LabelPredictor, answer: Labeling | None, number: int) -> str:
        if answer is None:
            return json.dumps({"text": "", "labels": [], "ranked": [], "words": []}) if self.jsonl else ""
        return super().format_answer(predictor, answer, number)


@dataclass(frozen=True, kw_only=True)
class EvaluateLabels(EvaluateWithComparison):
    """Score labels: accuracy, F1 and a table of confusions.

    Attributes:
        data: File of texts and labels, in the format of the training data, or a built-in corpus (default: the built-in
            corpus the run was trained on).
        format: Format of the file; by default from its name.
        on_empty: What to do with an example that has an empty part.
    """

    example: ClassVar[str] = "evaluate runs/questions --data test.tsv"
    expected_data: ClassVar[str] = "a file of texts and labels"

    format: str | None = None
    on_empty: Literal["error", "skip"] = "error"

    def evaluate(self, predictor: LabelPredictor, invocation: Invocation) -> EvaluationResult:
        from regard.tasks.label.gold_attention import score_label_attention
        from regard.tasks.label.predictor import join_labels

        examples = self.load_test_examples(predictor)
        with show_counter(invocation.quiet, "texts") as show:
            probabilities = predictor.probabilities(examples, show)
        gold, labels = [example.labels for example in examples], predictor.labels
        if not any(set(example_labels) & set(labels) for example_labels in gold):
            file_labels = ", ".join(sorted({label for example_labels in gold for label in example_labels})[:5])
            raise RegardError(
                f"{self.data}: unknown labels {file_labels}; expected labels of {invocation.run}; check the columns"
            )
        report, predictions = self.score_labels(predictor, probabilities, gold, invocation)
        separator = predictor.recipe.data.separator or "|"
        return EvaluationResult(
            add_attention(report, score_label_attention(predictor, examples)),
            predictions,
            gold,
            [join_labels(example_labels, separator) for example_labels in predictions],
        )

    def score_labels(
        self, predictor: LabelPredictor, probabilities: Any, gold: list[tuple[str, ...]], invocation: Invocation
    ) -> tuple[Any, list[list[str]]]:
        """Return the report, and the predicted labels of each text."""
        from regard.metrics.labels import label_report, multi_label_report

        labels, predictions = predictor.labels, predictor.select_labels(probabilities)
        if predictor.model.config.multi_label:
            threshold = float(predictor.model.threshold)
            report = multi_label_report(probabilities, gold, labels, threshold=threshold, best=min(5, len(labels)))
            return report, predictions
        if multi_label_example := next((example_labels for example_labels in gold if len(example_labels) > 1), None):
            raise RegardError(f"{self.data}: expected one label per text, got {', '.join(multi_label_example)}")
        return label_report([label for (label,) in predictions], [label for (label,) in gold]), predictions

    @rename_data_options()
    def read_examples(self, predictor: LabelPredictor) -> list[LabeledText]:
        """Read the examples to score, with the settings of the training by default."""
        from regard.tasks.label.prepare import read_labeled_texts

        assert self.data is not None
        overrides = {
            "format": self.format,
            "columns": parse_columns(self.columns, predictor),
            "on_empty": self.on_empty,
        }
        return read_labeled_texts(self.data, replace(predictor.recipe.data, **overrides))


@dataclass(frozen=True, kw_only=True)
class LookAtLabel(Look, LabelLookOptions):
    """Show the attention of a classifier, in the terminal or in files."""


@dataclass(frozen=True, kw_only=True)
class ExplainLabel(Explain, LabelExplainOptions):
    """Show how much each word of a text mattered for its label, by several methods, and how well they agree."""
