"""The task tag: tag each word of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from regard.maps.options import LookOptions
from regard.tasks.actions import Action
from regard.tasks.tag.actions import EvaluateTags, ExplainTag, LookAtTags, PredictTags
from regard.tasks.tag.options import ENDINGS, TagExplainOptions, TagOptions
from regard.tasks.tag.record import TagRecord
from regard.tasks.tag.settings import TagRecipe
from regard.tasks.words import WordTask

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.item_scores import ItemScores
    from regard.tasks.tag.predictor import TagPredictor
    from regard.tasks.words.prepare import WordsPrepared
    from regard.training.reporter import Reporter


class TagTask(WordTask):
    """Tag the words of sentences, such as names or parts of speech."""

    name = "tag"
    description = "tagger"
    data_help = "a file of words and tags (.bio, .conll, also .gz)"
    example = "regard train ner.bio --task tag --out runs/ner"
    next_command = "predict {run} < in.txt > out.txt"
    recipe = TagRecipe
    presets = ("attentive-tagger",)
    unit = "sentence"
    learned_unit = "word"
    answers = "tags"
    options: ClassVar[Mapping[str, type]] = {"request": TagOptions, "look": LookOptions, "explain": TagExplainOptions}
    actions: ClassVar[Mapping[str, type[Action]]] = {
        "predict": PredictTags,
        "evaluate": EvaluateTags,
        "look": LookAtTags,
        "explain": ExplainTag,
    }
    record = TagRecord

    def claims(self, data: Mapping[str, Any]) -> bool:
        name = data.get("train")
        return isinstance(name, str) and name.removesuffix(".gz").endswith(ENDINGS)

    def prepare(
        self, recipe: TagRecipe, run: Run, existing_run: Run | None, device: str, reporter: Reporter
    ) -> WordsPrepared:
        from regard.tasks.tag.prepare import prepare_tags

        return prepare_tags(recipe, existing_run, device, reporter)

    def score_items(self, predictor: Any, test: str | None) -> ItemScores:
        from regard.tasks.tag.score_items import score_tag_items

        return score_tag_items(predictor, test)

    def get_predictor_class(self) -> type[TagPredictor]:
        from regard.tasks.tag.predictor import TagPredictor

        return TagPredictor
