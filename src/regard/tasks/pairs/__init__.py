"""The task pairs: predict a target text for each source text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.maps.options import TargetLookOptions
from regard.settings import parse_known_settings
from regard.tasks.actions import Action
from regard.tasks.base import Task
from regard.tasks.pairs.actions import ExplainTarget, LookAtPair, PredictPairs
from regard.tasks.pairs.align import Align
from regard.tasks.pairs.evaluate import EvaluatePairs
from regard.tasks.pairs.options import PairExplainOptions, SearchOptions
from regard.tasks.pairs.record import PairRecord
from regard.tasks.pairs.settings import PairRecipe

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.item_scores import ItemScores
    from regard.tasks.pairs.predictor import PairPredictor
    from regard.training.prepared import Prepared
    from regard.training.reporter import Reporter


@dataclass(frozen=True)
class PairVocabularySizes:
    """The vocabulary size of each side."""

    source: int
    target: int


class PairTask(Task):
    """Sequence-to-sequence models: translation, transliteration, normalization."""

    name = "pairs"
    description = "sequence-to-sequence model"
    data_help = (
        "a file of pairs (.tsv, .csv, .jsonl, .tmx, .po, .mo, also .gz; - for stdin), a built-in corpus, "
        "or two parallel files: --source and --target"
    )
    example = "regard train dates --model bahdanau --out runs/dates"
    next_command = "predict {run} < in.txt > out.txt"
    recipe = PairRecipe
    presets = ("bahdanau", "hard-monotonic", "transformer")
    unit = "pair"
    options: ClassVar[Mapping[str, type]] = {
        "request": SearchOptions,
        "look": TargetLookOptions,
        "explain": PairExplainOptions,
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
        return True  # the fallback: the last task in TASKS

    def prepare(
        self, recipe: PairRecipe, run: Run, existing_run: Run | None, device: str, reporter: Reporter
    ) -> Prepared:
        from regard.tasks.pairs.prepare import prepare_pairs

        return prepare_pairs(recipe, existing_run, device, reporter)

    def score_items(self, predictor: Any, test: str | None) -> ItemScores:
        from regard.tasks.pairs.score_items import score_pair_items

        return score_pair_items(predictor, test)

    def get_predictor_class(self) -> type[PairPredictor]:
        from regard.tasks.pairs.predictor import PairPredictor

        return PairPredictor

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        from regard.text import TokenizerPair

        sizes = parse_known_settings(PairVocabularySizes, table, f"{run.card_file}: [vocabulary]")
        kinds = ("", "")
        if run.tokenizer_file.exists():
            tokenizers = TokenizerPair.load(run.tokenizer_file)
            kinds = (f" ({tokenizers.source.description})", f" ({tokenizers.target.description})")
        return f"vocabulary: {sizes.source:,} source tokens{kinds[0]}, {sizes.target:,} target tokens{kinds[1]}"
