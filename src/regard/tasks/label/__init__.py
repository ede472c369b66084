"""The task label: classify texts, with one label or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from regard.tasks.actions import Action
from regard.tasks.label.actions import EvaluateLabels, ExplainLabel, LookAtLabel, PredictLabels
from regard.tasks.label.options import ExtraTextOptions, LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.label.record import LabelRecord
from regard.tasks.label.settings import LabelRecipe
from regard.tasks.words import WordTask

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.item_scores import ItemScores
    from regard.tasks.label.predictor import LabelPredictor
    from regard.tasks.words.prepare import WordsPrepared
    from regard.training.reporter import Reporter


class LabelTask(WordTask):
    """Classify texts, pairs of texts, or the utterances of a dialogue."""

    name = "label"
    description = "classifier"
    data_help = "a file of texts and labels (.tsv, .csv, .jsonl, also .gz), with --task label"
    example = "regard train questions.tsv --task label --out runs/questions"
    next_command = "predict {run} --why < texts.txt"
    recipe = LabelRecipe
    presets = ("attentive-classifier",)
    unit = "text"
    learned_unit = "text"
    answers = "labels"
    options: ClassVar[Mapping[str, type]] = {
        "request": RankOptions,
        "beside": ExtraTextOptions,
        "look": LabelLookOptions,
        "explain": LabelExplainOptions,
    }
    actions: ClassVar[Mapping[str, type[Action]]] = {
        "predict": PredictLabels,
        "evaluate": EvaluateLabels,
        "look": LookAtLabel,
        "explain": ExplainLabel,
    }
    record = LabelRecord

    def prepare(
        self, recipe: LabelRecipe, run: Run, existing_run: Run | None, device: str, reporter: Reporter
    ) -> WordsPrepared:
        from regard.tasks.label.prepare import prepare_labels

        return prepare_labels(recipe, existing_run, device, reporter)

    def score_items(self, predictor: Any, test: str | None) -> ItemScores:
        from regard.tasks.label.score_items import score_label_items

        return score_label_items(predictor, test)

    def get_predictor_class(self) -> type[LabelPredictor]:
        from regard.tasks.label.predictor import LabelPredictor

        return LabelPredictor
