"""Pairs: answering a text by a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.looking.options import TargetLookOptions
from regard.settings import from_part
from regard.tasks.actions import Action
from regard.tasks.base import Task
from regard.tasks.pairs.actions import ExplainTarget, LookAtPair, PredictPairs
from regard.tasks.pairs.align import Align
from regard.tasks.pairs.evaluate import EvaluatePairs
from regard.tasks.pairs.options import SearchOptions, TargetOptions
from regard.tasks.pairs.record import PairRecord
from regard.tasks.pairs.settings import PairRecipe

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.pairs.predictor import PairPredictor
    from regard.training.prepared import Prepared
    from regard.training.talk import Talk


@dataclass(frozen=True)
class Vocabulary:
    """How many tokens each side has."""

    source: int
    target: int


class PairTask(Task):
    """To answer a source by a target: to translate, transliterate, normalise."""

    name = "pairs"
    does = "answers texts"
    reads = (
        "a file of pairs (.tsv, .csv, .jsonl, .tmx, .po, .mo, also .gz, - is stdin), a built-in corpus, "
        "or two files, line by line, by --source and --target"
    )
    example = "regard train dates --model bahdanau --out runs/dates"
    next_step = "predict {run} < in.txt > out.txt"
    recipe = PairRecipe
    presets = ("bahdanau", "transformer")
    unit = "pair"
    options: ClassVar[Mapping[str, type]] = {
        "request": SearchOptions,
        "look": TargetLookOptions,
        "explain": TargetOptions,
    }
    actions: ClassVar[Mapping[str, type[Action]]] = {
        "predict": PredictPairs,
        "evaluate": EvaluatePairs,
        "align": Align,
        "look": LookAtPair,
        "explain": ExplainTarget,
    }
    record = PairRecord

    def claims(self, data: Mapping[str, Any]) -> bool:
        return True  # all that no other task claims

    def prepare(self, recipe: PairRecipe, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
        from regard.tasks.pairs.prepare import prepare_pairs

        return prepare_pairs(recipe, home, device, talk)

    def predictor_class(self) -> type[PairPredictor]:
        from regard.tasks.pairs.predictor import PairPredictor

        return PairPredictor

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        from regard.text import Tokenizers

        sizes = from_part(Vocabulary, table, f"{run.card_file}: [vocabulary]")
        kinds = ("", "")
        if run.tokenizer_file.exists():
            tokenizers = Tokenizers.load(run.tokenizer_file)
            kinds = (f" ({tokenizers.source.kind})", f" ({tokenizers.target.kind})")
        return f"tokens: {sizes.source:,} of the source{kinds[0]}, {sizes.target:,} of the target{kinds[1]}"
