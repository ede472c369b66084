"""What labelling and tagging share: words, with vectors and unlabelled text from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.settings import from_part
from regard.tasks.base import Task

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.words.prepare import WordsPrepared
    from regard.tasks.words.settings import WordRecipe
    from regard.text import Lexicon
    from regard.training.talk import Talk


@dataclass(frozen=True)
class Vocabulary:
    """How many words, pieces of words and labels or tags there are; vectors and words from elsewhere among them."""

    words: int
    pieces: int
    labels: int
    vectors: int = 0
    unlabelled: int = 0


class WordTask(Task):
    """A task whose models read words, each with its spelling."""

    answers: ClassVar[str]  # what is learnt: labels or tags
    batch_unit = "word"

    def check_base(self, recipe: WordRecipe, base: Run, where: str) -> None:
        if recipe.data.vectors is not None:
            raise RegardError(f"{where}: [data] vectors of words come from {base.path}, if it has any; leave them out")
        if recipe.data.unlabelled is not None:
            raise RegardError(
                f"{where}: [data] unlabelled text is read before all else, not after --from; leave it out"
            )

    def pretrain(self, run: Run, ready: WordsPrepared, model: Any, device: str, talk: Talk) -> None:
        from regard.models.kernel_widths import set_kernel_widths
        from regard.run import checkpoints_of
        from regard.tasks.words.pretrain import read_first

        if ready.recipe.data.unlabelled is not None and not checkpoints_of(run):
            read_first(run, ready, model.reader, device, talk)
            set_kernel_widths(model.cpu(), ready.first)  # by what the reader says now

    def clean_up(self, run: Run) -> None:
        from regard.tasks.words.pretrain import forget_reading

        forget_reading(run)

    def load_tokenizers(self, run: Run) -> Lexicon:
        from regard.text import Lexicon

        run.check(run.tokenizer_file)
        return Lexicon.load(run.tokenizer_file)

    def describe_vocabulary(self, table: Any, run: Run) -> str:
        told = from_part(Vocabulary, table, f"{run.card_file}: [vocabulary]")
        vectors = f", vectors of {told.vectors:,} from elsewhere" if told.vectors else ""
        unlabelled = f" ({told.unlabelled:,} from unlabelled text)" if told.unlabelled else ""
        words = f"words: {told.words:,}{unlabelled}, spelt with {told.pieces:,} pieces{vectors}"
        return f"{words}; {told.labels:,} {self.answers}"
