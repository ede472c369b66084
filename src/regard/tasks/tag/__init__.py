"""Tag: giving each word of a sentence a tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.tasks.tag.settings import TagRecipe
from regard.tasks.words import WordTask

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.run import Card, Run
    from regard.tasks.words.prepare import WordsPrepared
    from regard.training.talk import Talk

ENDINGS = (".bio", ".bioes", ".conll", ".iob", ".iob2")
"""How the name of a file of tagged sentences ends."""


class Tag(WordTask):
    """To tag words: names, parts of speech."""

    name = "tag"
    does = "tags words"
    reads = "a file of words and tags (.bio, .conll, also .gz)"
    example = "regard train ner.bio --task tag --out runs/ner"
    next_step = "predict {run} < in.txt > out.txt"
    recipe = TagRecipe
    presets = ("attentive-tagger",)
    unit = "sentence"
    learnt_unit = "word"
    answers = "tags"

    def claims(self, data: Mapping[str, Any]) -> bool:
        name = data.get("train")
        return isinstance(name, str) and name.removesuffix(".gz").endswith(ENDINGS)

    def prepare(self, recipe: TagRecipe, run: Run, home: Run | None, device: str, talk: Talk) -> WordsPrepared:
        from regard.tasks.tag.prepare import prepare_tags

        return prepare_tags(recipe, home, device, talk)

    def predictor(self, model: Any, tokenizers: Any, recipe: Recipe, card: Card, device: str) -> Any:
        from regard.label_predictor import TagPredictor

        return TagPredictor(model, tokenizers, recipe, card, device)
