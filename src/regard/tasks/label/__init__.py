"""Label: giving a text one label or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from regard.tasks.actions import Action
from regard.tasks.label.actions import EvaluateLabels, ExplainLabel, LookAtLabel, PredictLabels
from regard.tasks.label.options import BesideOptions, LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.label.record import LabelRecord
from regard.tasks.label.settings import LabelRecipe
from regard.tasks.words import WordTask

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.label.predictor import LabelPredictor
    from regard.tasks.words.prepare import WordsPrepared
    from regard.training.talk import Talk


class LabelTask(WordTask):
    """To label texts, pairs of texts, or the utterances of a dialogue."""

    name = "label"
    does = "labels texts"
    reads = "a file of texts and labels (.tsv, .csv, .jsonl, also .gz), with --task label"
    example = "regard train questions.tsv --task label --out runs/questions"
    next_step = "predict {run} --why < texts.txt"
    recipe = LabelRecipe
    presets = ("attentive-classifier",)
    unit = "text"
    learnt_unit = "text"
    answers = "labels"
    options: ClassVar[Mapping[str, type]] = {
        "request": RankOptions,
        "beside": BesideOptions,
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

    def prepare(self, recipe: LabelRecipe, run: Run, home: Run | None, device: str, talk: Talk) -> WordsPrepared:
        from regard.tasks.label.prepare import prepare_labels

        return prepare_labels(recipe, home, device, talk)

    def predictor_class(self) -> type[LabelPredictor]:
        from regard.tasks.label.predictor import LabelPredictor

        return LabelPredictor
