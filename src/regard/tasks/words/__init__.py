"""What the tasks label and tag share: vocabularies of words, pretrained vectors and pretraining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.settings import parse_known_settings
from regard.tasks.base import Task

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.words.prepare import WordsPrepared
    from regard.tasks.words.settings import WordRecipe
    from regard.text import WordVocabulary
    from regard.training.reporter import Reporter


@dataclass(frozen=True)
class WordVocabularySizes:
    """The vocabulary section of a run's card: numbers of words, pieces, labels or tags, and pretrained vectors."""

    words: int
    pieces: int
    labels: int
    vectors: int = 0
    unlabeled: int = 0


class WordTask(Task):
    """A task whose models read words and their characters."""

    answers: ClassVar[str]  # labels or tags
    batch_unit = "word"

    def check_base(self, recipe: WordRecipe, base: Run, location: str) -> None:
        if recipe.data.vectors is not None:
            raise RegardError(f"{location}: [data] vectors cannot be combined with --from; they come from {base.path}")
        if recipe.data.unlabeled is not None:
            raise RegardError(
                f"{location}: [data] unlabeled cannot be combined with --from; pretraining is the first phase of a run"
            )

    def pretrain(self, run: Run, prepared: WordsPrepared, model: Any, device: str, reporter: Reporter) -> None:
        from regard.checkpoint import list_checkpoints
        from regard.models.kernel_widths import set_kernel_widths
        from regard.tasks.words.pretrain import run_pretraining

        if prepared.recipe.data.unlabeled is not None and not list_checkpoints(run):
            run_pretraining(run, prepared, model.reader, device, reporter)
            set_kernel_widths(model.cpu(), prepared.first_batch)  # by the pretrained encoder

    def clean_up(self, run: Run) -> None:
        from regard.tasks.words.pretrain import remove_pretraining

        remove_pretraining(run)

    def load_tokenizers(self, run: Run) -> WordVocabulary:
        from regard.text import WordVocabulary

        return WordVocabulary.load(run.find_file(run.tokenizer_file.name))

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        sizes = parse_known_settings(WordVocabularySizes, table, f"{run.card_file}: [vocabulary]")
        vectors = f", {sizes.vectors:,} pretrained vectors" if sizes.vectors else ""
        unlabeled = f" ({sizes.unlabeled:,} from unlabeled text)" if sizes.unlabeled else ""
        words = f"words: {sizes.words:,}{unlabeled}, {sizes.pieces:,} pieces{vectors}"
        return f"{words}; {sizes.labels:,} {self.answers}"
