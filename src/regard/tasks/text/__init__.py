"""Text: going on with a text, as a language model does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from regard.looking.options import LookOptions
from regard.tasks.actions import Action
from regard.tasks.base import Task
from regard.tasks.text.actions import EvaluateText, ExplainWord, Generate, LookAtText, PredictText
from regard.tasks.text.options import WordOptions, WriteOptions
from regard.tasks.text.record import TextRecord
from regard.tasks.text.settings import TextRecipe

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.text.predictor import TextPredictor
    from regard.training.prepared import Prepared
    from regard.training.talk import Talk

ENDINGS = (".txt", ".text")
"""How the name of a file of plain text ends."""


class TextTask(Task):
    """To go on with a text, and to say how likely one is."""

    name = "text"
    does = "goes on with texts"
    reads = "a file (.txt, also .gz) or a folder of text"
    example = "regard train book.txt --model gpt --out runs/book"
    next_step = "generate {run} --tokens 100"
    recipe = TextRecipe
    presets = ("lstm-lm", "gpt")
    unit = "token"
    options: ClassVar[Mapping[str, type]] = {"request": WriteOptions, "look": LookOptions, "explain": WordOptions}
    actions: ClassVar[Mapping[str, type[Action]]] = {
        "predict": PredictText,
        "generate": Generate,
        "evaluate": EvaluateText,
        "look": LookAtText,
        "explain": ExplainWord,
    }
    record = TextRecord

    def claims(self, data: Mapping[str, Any]) -> bool:
        name = data.get("train")
        if not isinstance(name, str) or data.get("format") is not None or data.get("columns"):
            return False
        return name.removesuffix(".gz").endswith(ENDINGS) or os.path.isdir(name)

    def prepare(self, recipe: TextRecipe, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
        from regard.tasks.text.prepare import prepare_text

        return prepare_text(recipe, run, home, device, talk)

    def predictor_class(self) -> type[TextPredictor]:
        from regard.tasks.text.predictor import TextPredictor

        return TextPredictor

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        from regard.text import Tokenizers

        tokenizer = Tokenizers.load(run.tokenizer_file).target
        return f"tokens: {tokenizer.size:,} ({tokenizer.kind})"
