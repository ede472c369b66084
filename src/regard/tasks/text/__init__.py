"""The task text: language models, which generate and score text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from regard.maps.options import LookOptions
from regard.tasks.actions import Action
from regard.tasks.actions.heads import Heads
from regard.tasks.base import Task
from regard.tasks.text.actions import EvaluateText, ExplainWord, Generate, LookAtText, PredictText
from regard.tasks.text.options import GenerationOptions, TextExplainOptions
from regard.tasks.text.record import TextRecord
from regard.tasks.text.settings import TextRecipe

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.item_scores import ItemScores
    from regard.tasks.text.predictor import TextPredictor
    from regard.training.prepared import Prepared
    from regard.training.reporter import Reporter

ENDINGS = (".txt", ".text")
"""File name endings of plain text."""


class TextTask(Task):
    """Language models: generate text, and score it."""

    name = "text"
    description = "language model"
    data_help = "a text file (.txt, also .gz) or a folder of text files"
    example = "regard train book.txt --model gpt --out runs/book"
    next_command = "generate {run} --max-tokens 100"
    recipe = TextRecipe
    presets = ("lstm-lm", "gpt2")
    unit = "token"
    options: ClassVar[Mapping[str, type]] = {
        "request": GenerationOptions,
        "look": LookOptions,
        "explain": TextExplainOptions,
    }
    actions: ClassVar[Mapping[str, type[Action]]] = {
        "predict": PredictText,
        "generate": Generate,
        "evaluate": EvaluateText,
        "look": LookAtText,
        "explain": ExplainWord,
        "heads": Heads,
    }
    record = TextRecord

    def claims(self, data: Mapping[str, Any]) -> bool:
        name = data.get("train")
        if not isinstance(name, str) or data.get("format") is not None or data.get("columns"):
            return False
        return name.removesuffix(".gz").endswith(ENDINGS) or os.path.isdir(name)

    def prepare(
        self, recipe: TextRecipe, run: Run, existing_run: Run | None, device: str, reporter: Reporter
    ) -> Prepared:
        from regard.tasks.text.prepare import prepare_text

        return prepare_text(recipe, run, existing_run, device, reporter)

    def score_items(self, predictor: Any, test: str | None) -> ItemScores:
        from regard.tasks.text.score_items import score_text_items

        return score_text_items(predictor, test)

    def get_predictor_class(self) -> type[TextPredictor]:
        from regard.tasks.text.predictor import TextPredictor

        return TextPredictor

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        from regard.text import TokenizerPair

        tokenizer = TokenizerPair.load(run.tokenizer_file).target
        return f"vocabulary: {tokenizer.size:,} tokens ({tokenizer.kind})"
