"""Commands on a run of a classifier: predict, evaluate, look, explain."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.errors import RegardError
from regard.tasks.actions import Invocation
from regard.tasks.actions.evaluate import EvaluateFindings, Findings, columns_of, own_options
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import PredictFromWords
from regard.tasks.label.options import LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.progress import counted

if TYPE_CHECKING:
    from regard.data.labelled import Labelled
    from regard.tasks.label.predictor import Labelling, LabelPredictor


@dataclass(frozen=True, kw_only=True)
class PredictLabels(PredictFromWords, RankOptions):
    """Write the labels of each line.

    Attributes:
        source: A file of texts, one a line; of pairs of texts with a tab between; - is stdin.
        nbest: Labels of each text with their probabilities, the most probable first, on one line.
        jsonl: Write a JSON object for each text, with its labels, words and their weights.
    """

    example: ClassVar[str] = "predict runs/questions --why < texts.txt"
    unit: ClassVar[str] = "texts"

    def subjects(self, predictor: LabelPredictor) -> Iterator[Labelled | None]:
        """Each line as the model takes it; a line without text is None, and ends a dialogue."""
        from regard.data.labelled import Labelled

        config = predictor.model.config
        before = deque[str](maxlen=config.before)
        for number, line in enumerate(super().subjects(predictor), 1):
            text, tab, second = line.partition("\t") if config.pairs else (line, "", "")
            if not text.strip():
                before.clear()
                yield None
                continue
            if config.pairs and not second.strip():
                raise RegardError(
                    f"line {number}: has one text; two with a tab between are needed, as {predictor.name} compares"
                )
            yield Labelled(text.strip(), (), second.strip() if tab else None, tuple(before))
            before.append(text.strip())

    def write(self, predictor: LabelPredictor, answer: Labelling | None) -> str:
        if answer is None:
            return json.dumps({"text": "", "labels": [], "ranked": [], "words": []}) if self.jsonl else ""
        return super().write(predictor, answer)


@dataclass(frozen=True, kw_only=True)
class EvaluateLabels(EvaluateFindings):
    """Score labels: accuracy, F1 and a table of confusions.

    Attributes:
        data: A file of texts and labels, like that of the training.
        format: Of the file; by its name unless set.
        empty: What to do with an example of which a part is empty.
    """

    example: ClassVar[str] = "evaluate runs/questions --data test.tsv"
    wanted: ClassVar[str] = "a file of texts and labels"

    format: str | None = None
    empty: Literal["error", "skip"] = "error"

    def findings(self, predictor: LabelPredictor, given: Invocation) -> Findings:
        from regard.tasks.label.predictor import side_by_side

        examples = self.examples(predictor)
        with counted(given.quiet, "texts") as show:
            probabilities = predictor.probabilities(examples, show)
        gold, labels = [example.labels for example in examples], predictor.labels
        if not any(set(each) & set(labels) for each in gold):
            known = ", ".join(sorted({label for each in gold for label in each})[:5])
            raise RegardError(f"{self.data}: has no label that {given.run} knows, but {known}; is it the right column?")
        report, chosen = self.scored(predictor, probabilities, gold, given)
        separator = predictor.recipe.data.separator or "|"
        return Findings(report, chosen, gold, [side_by_side(each, separator) for each in chosen])

    def scored(
        self, predictor: LabelPredictor, probabilities: Any, gold: list[tuple[str, ...]], given: Invocation
    ) -> tuple[Any, list[list[str]]]:
        """The report, and the labels that are given."""
        from regard.metrics.labels import above, label_report, several_report

        labels = predictor.labels
        if predictor.model.config.several:
            threshold = float(predictor.model.threshold)
            report = several_report(probabilities, gold, labels, threshold=threshold, best=min(5, len(labels)))
            return report, [sorted(each) for each in above(probabilities, labels, threshold)]
        if odd := next((each for each in gold if len(each) > 1), None):
            raise RegardError(f"{self.data}: a text has the labels {', '.join(odd)}; {given.run} tells one each")
        best = [labels[place] for place in probabilities.argmax(-1).tolist()]
        return label_report(best, [one for (one,) in gold]), [[label] for label in best]

    @own_options()
    def examples(self, predictor: LabelPredictor) -> list[Labelled]:
        """The examples to score, read as those of the training were unless it is said otherwise."""
        from regard.tasks.label.prepare import read_all_labelled

        assert self.data is not None
        how = {"format": self.format, "columns": columns_of(self.columns, predictor), "empty": self.empty}
        return read_all_labelled(self.data, replace(predictor.recipe.data, **how))


@dataclass(frozen=True, kw_only=True)
class LookAtLabel(Look, LabelLookOptions):
    """Show where a classifier looks: in the terminal or, if files are named, in these."""


@dataclass(frozen=True, kw_only=True)
class ExplainLabel(Explain, LabelExplainOptions):
    """Show how much each word of a text mattered for its label, by several methods, and their agreement."""
