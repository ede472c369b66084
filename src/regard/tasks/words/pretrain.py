"""Unlabelled text is read before labels or tags are learnt: the first phase of a training, in a folder of its own."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.data.check import counted
from regard.data.reading_batches import ReadingTexts, classes_of, unknown_shares
from regard.data.unlabelled import Unlabelled, read_unlabelled
from regard.errors import RegardError
from regard.models.language import Carried
from regard.models.reader import Reader
from regard.models.two_way_lm import EDGE, TwoWayLm
from regard.run import READING, Run, checkpoints_of
from regard.sentences import Sentences
from regard.tasks.words.settings import ReadingSettings, WordRecipe
from regard.text import Lexicon
from regard.text.lexicon import as_looked_up
from regard.training.engines import new_engine
from regard.training.loop import Findings, Trainer
from regard.training.loss import Loss, TrainingStep
from regard.training.settings import TrainingSettings
from regard.training.talk import Talk

if TYPE_CHECKING:
    from regard.tasks.words.prepare import WordsPrepared

WARMUP = 100  # updates until the peak of the learning rate
VALIDATED_EVERY = 500  # updates; of few, five times in all


def unlabelled_of(
    recipe: WordRecipe, home: Run | None, encoder: str, words: Callable[[str], Sequence[str]], talk: Talk
) -> Unlabelled | None:
    """The text to read before labels are learnt, if the recipe has any and the run has not read it already."""
    path = recipe.data.unlabelled
    if path is None:
        if recipe.reading != ReadingSettings():
            talk.say("note: [reading] is for --unlabelled text; there is none")
        return None
    if encoder not in ("rnn", "both"):
        raise RegardError(
            f"data.unlabelled: is read by an rnn, and model.encoder is {encoder}; take rnn or both, or leave it out"
        )
    if home is not None and has_read(home):
        return None
    with talk.counting("lines read") as show:
        found = read_unlabelled(path, words, show)
    if home is not None and found.sha256 != home.read_card().get("data", {}).get("unlabelled", {}).get("sha256"):
        raise RegardError(f"{path}: is not the text that {home.path} was begun with; choose another --out")
    return found


def reading_folder(run: Run) -> Run:
    """Where the first phase of a run keeps its metrics and checkpoints."""
    return Run(run.path / READING)


def has_read(run: Run) -> bool:
    """Whether a run needs its unlabelled text no more."""
    return bool(checkpoints_of(run)) or any(each.state()["finished"] for each in checkpoints_of(reading_folder(run)))


def reading_of(
    recipe: WordRecipe, text: Unlabelled | None, labelled: Sequence[Sequence[str]], lexicon: Lexicon, talk: Talk
) -> ReadingTexts | None:
    """All that is read in the first phase, and what is said of it."""
    if text is None:
        return None
    say_unlabelled(recipe, text, labelled, lexicon, talk)
    settings = recipe.reading
    return ReadingTexts.of(
        text,
        [words for words in labelled if words],
        lexicon,
        repeats=settings.repeats,
        tokens=settings.tokens,
        seed=recipe.training.seed,
    )


def say_unlabelled(
    recipe: WordRecipe, text: Unlabelled, labelled: Sequence[Sequence[str]], lexicon: Lexicon, talk: Talk
) -> None:
    """How much there is, and how its words go together with those of the labelled texts."""
    different = as_looked_up(text.counts(), lexicon.pieces.kind)
    first = len(lexicon.words) - lexicon.unlabelled
    shared = sum(word in different for word in lexicon.words[:first])
    talk.say(
        f"unlabelled: {counted(text.lines, 'line')}, {counted(len(text), 'sentence')}, {len(text.numbers):,} words, "
        f"from {recipe.data.unlabelled}; of {len(different):,} different words {shared:,} are known from the "
        f"labelled texts, {lexicon.unlabelled:,} more are learnt"
    )
    if not shared:
        talk.say("note: unlabelled: has no word in common with the labelled texts")


def card_of_unlabelled(text: Unlabelled | None) -> dict[str, object]:
    """What the run's card says of it."""
    if text is None:
        return {}
    return {"unlabelled": {"sentences": len(text), "words": len(text.numbers), "sha256": text.sha256}}


class ReadingStep(TrainingStep):
    """Both directions and their loss, summed over the words, and how many they are."""

    def forward(self, batch: Sentences, carried: Carried = ()) -> Loss:
        told = self.model(batch)
        return Loss(told.forwards + told.backwards, told.words)


@dataclass(frozen=True)
class ReadingValidation:
    """Loss a word, of both directions together, and the perplexity of each."""

    texts: ReadingTexts
    device: str

    def __call__(self, model: nn.Module) -> Findings:
        forwards, backwards, words = (
            sum(float(part) for part in parts)
            for parts in zip(*(model(batch.to(self.device)) for batch in self.texts.held_batches()), strict=True)
        )
        each = {"forwards": forwards / words, "backwards": backwards / words}
        perplexities = {f"perplexity_{name}": math.exp(min(loss, 700.0)) for name, loss in each.items()}
        return Findings({"loss": sum(each.values()), **perplexities})


def two_way_lm(reader: Reader, texts: ReadingTexts, settings: ReadingSettings, seed: int) -> TwoWayLm:
    """What learns while text is read: a reader, and what tells words from its states."""
    torch.manual_seed(seed)
    size, counts = reader.config.words, texts.counts()
    classes = torch.from_numpy(classes_of(counts, size, settings.targets))
    return TwoWayLm(reader, classes, torch.from_numpy(unknown_shares(counts, size)), dropout=settings.dropout)


def settings_of(recipe: WordRecipe) -> TrainingSettings:
    """How the first phase is trained: precision, seed and the like as for the labels, all else as usual."""
    reading, training = recipe.reading, recipe.training
    return TrainingSettings(
        steps=reading.steps,
        tokens=reading.tokens,
        rate=reading.rate,
        warmup=min(WARMUP, reading.steps // 10),
        smoothing=0.0,
        validate_every=min(VALIDATED_EVERY, max(1, reading.steps // 5)),
        metric="loss",
        patience=0,
        precision=training.precision,
        deterministic=training.deterministic,
        tensorboard=training.tensorboard,
        seed=training.seed,
    )


def read_first(run: Run, ready: WordsPrepared, reader: Reader, device: str, talk: Talk) -> None:
    """The first phase, from where it was stopped: afterwards the reader has the parameters with which it ended."""
    folder = reading_folder(run)
    done = [each for each in checkpoints_of(folder) if each.state()["finished"]]
    if done:
        found = done[-1].tensors("model")
        reader.load_state_dict(
            {name.removeprefix("reader."): value for name, value in found.items() if name.startswith("reader.")}
        )
        return
    recipe, texts = ready.recipe, ready.reading
    assert texts is not None, "a run that has not read yet has its text"
    model, settings = two_way_lm(reader, texts, recipe.reading, recipe.training.seed), settings_of(recipe)
    told = int(model.classes.max()) - EDGE
    talk.say(
        f"reading: {settings.steps} updates of {settings.tokens} words at the most, rate {settings.rate:g}, "
        f"validation every {settings.validate_every}; {len(texts.plan(0)):,} an epoch, in which the labelled texts "
        f"come {recipe.reading.repeats} times; {max(0, told):,} words are told"
    )
    folder.path.mkdir(exist_ok=True)
    engine, validate = new_engine(ReadingStep(model), settings, device), ReadingValidation(texts, device)
    Trainer(engine, texts, validate, settings, folder, talk, section="reading").train()
    talk.say("reading is done; now the labels")


def forget_reading(run: Run) -> None:
    """Remove checkpoints and parameters of the first phase, of which a run that has learnt labels has no use."""
    folder = reading_folder(run)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    folder.model_file.unlink(missing_ok=True)
