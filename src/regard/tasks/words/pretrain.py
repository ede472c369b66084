"""Pretraining on unlabeled text, before labels or tags are learned, in a subfolder of the run."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.checkpoint import list_checkpoints
from regard.data.pair_check import pluralize
from regard.data.pretraining_batches import PretrainingTexts, assign_classes, compute_unknown_shares
from regard.data.unlabeled import UnlabeledText, read_unlabeled
from regard.errors import RegardError
from regard.models.bidirectional_lm import EDGE, BidirectionalLm
from regard.models.language_model import SegmentState
from regard.models.text_encoder import TextEncoder
from regard.run import PRETRAINING, Run
from regard.sentences import Sentences
from regard.tasks.words.settings import PretrainingSettings, WordRecipe
from regard.text import WordVocabulary
from regard.text.word_vocabulary import count_normalized
from regard.training.engines import build_engine
from regard.training.loop import Trainer, ValidationResult
from regard.training.loss import Loss, TrainingStep
from regard.training.reporter import Reporter
from regard.training.settings import TrainingSettings

if TYPE_CHECKING:
    from regard.tasks.words.prepare import WordsPrepared

WARMUP = 100  # steps
VALIDATE_EVERY = 500  # steps; five times in total if there are few steps


def read_unlabeled_text(
    recipe: WordRecipe,
    existing_run: Run | None,
    encoder: str,
    split_words: Callable[[str], Sequence[str]],
    reporter: Reporter,
) -> UnlabeledText | None:
    """Read the unlabeled text, if the recipe has any and the run is not pretrained yet."""
    path = recipe.data.unlabeled
    if path is None:
        if recipe.pretraining != PretrainingSettings():
            reporter.info("note: [pretraining] has no effect without --unlabeled")
        return None
    if encoder not in ("rnn", "both"):
        raise RegardError(f"data.unlabeled requires model.encoder rnn or both, got {encoder}")
    if existing_run is not None and has_pretrained(existing_run):
        return None
    with reporter.show_count("lines read") as show:
        unlabeled_text = read_unlabeled(path, split_words, show)
    if existing_run is not None and unlabeled_text.sha256 != existing_run.read_card().get("data", {}).get(
        "unlabeled", {}
    ).get("sha256"):
        raise RegardError(
            f"{path} differs from the text that {existing_run.path} was started with; choose another --out"
        )
    return unlabeled_text


def get_pretraining_run(run: Run) -> Run:
    """Return the subfolder of a run for pretraining."""
    return Run(run.path / PRETRAINING)


def has_pretrained(run: Run) -> bool:
    """Return whether the pretraining of a run is complete."""
    return bool(list_checkpoints(run)) or any(
        checkpoint.load_state()["finished"] for checkpoint in list_checkpoints(get_pretraining_run(run))
    )


def build_pretraining_texts(
    recipe: WordRecipe,
    text: UnlabeledText | None,
    labeled: Sequence[Sequence[str]],
    vocabulary: WordVocabulary,
    reporter: Reporter,
) -> PretrainingTexts | None:
    """Build the batches for pretraining, and report on the unlabeled text."""
    if text is None:
        return None
    report_unlabeled(recipe, text, labeled, vocabulary, reporter)
    settings = recipe.pretraining
    return PretrainingTexts.of(
        text,
        [words for words in labeled if words],
        vocabulary,
        labeled_repeats=settings.labeled_repeats,
        batch_tokens=settings.batch_tokens,
        seed=recipe.training.seed,
    )


def report_unlabeled(
    recipe: WordRecipe,
    text: UnlabeledText,
    labeled: Sequence[Sequence[str]],
    vocabulary: WordVocabulary,
    reporter: Reporter,
) -> None:
    """Report the size of the unlabeled text and its word overlap with the labeled texts."""
    distinct_words = count_normalized(text.count_words(), vocabulary.pieces.kind)
    first = len(vocabulary.words) - vocabulary.unlabeled
    shared = sum(word in distinct_words for word in vocabulary.words[:first])
    reporter.info(
        f"unlabeled: {pluralize(text.lines, 'line')}, {pluralize(len(text), 'sentence')}, "
        f"{len(text.word_indices):,} words, from {recipe.data.unlabeled}; {len(distinct_words):,} different words, "
        f"{shared:,} of them in the labeled texts, {vocabulary.unlabeled:,} added to the vocabulary"
    )
    if not shared:
        reporter.info("note: unlabeled text and labeled texts have no words in common")


def build_unlabeled_card(text: UnlabeledText | None) -> dict[str, object]:
    """Return the section of the run's card about the unlabeled text."""
    if text is None:
        return {}
    return {"unlabeled": {"sentences": len(text), "words": len(text.word_indices), "sha256": text.sha256}}


class PretrainingStep(TrainingStep):
    """The loss of both directions, summed over words."""

    def forward(self, batch: Sentences, recurrent_state: SegmentState = ()) -> Loss:
        losses = self.model(batch)
        return Loss(losses.forwards + losses.backwards, losses.words)


@dataclass(frozen=True)
class PretrainingValidation:
    """Loss per word, summed over both directions, and the perplexity of each direction."""

    texts: PretrainingTexts
    device: str

    def __call__(self, model: nn.Module) -> ValidationResult:
        forwards, backwards, words = (
            sum(float(part) for part in parts)
            for parts in zip(
                *(model(batch.to(self.device)) for batch in self.texts.iter_validation_batches()), strict=True
            )
        )
        mean_losses = {"forwards": forwards / words, "backwards": backwards / words}
        perplexities = {f"perplexity_{name}": math.exp(min(loss, 700.0)) for name, loss in mean_losses.items()}
        return ValidationResult({"loss": sum(mean_losses.values()), **perplexities})


def build_bidirectional_lm(
    text_encoder: TextEncoder, texts: PretrainingTexts, settings: PretrainingSettings, seed: int
) -> BidirectionalLm:
    """Build the language model for pretraining, around the encoder of the classifier or tagger."""
    torch.manual_seed(seed)
    size, counts = text_encoder.config.words, texts.count_words()
    classes = torch.from_numpy(assign_classes(counts, size, settings.target_words))
    return BidirectionalLm(
        text_encoder, classes, torch.from_numpy(compute_unknown_shares(counts, size)), dropout=settings.dropout
    )


def build_pretraining_settings(recipe: WordRecipe) -> TrainingSettings:
    """Return the training settings of the pretraining; precision, seed and similar are those of the main training."""
    pretraining, training = recipe.pretraining, recipe.training
    return TrainingSettings(
        steps=pretraining.steps,
        batch_tokens=pretraining.batch_tokens,
        learning_rate=pretraining.learning_rate,
        warmup_steps=min(WARMUP, pretraining.steps // 10),
        label_smoothing=0.0,
        validate_every=min(VALIDATE_EVERY, max(1, pretraining.steps // 5)),
        metric="loss",
        patience=0,
        precision=training.precision,
        deterministic=training.deterministic,
        tensorboard=training.tensorboard,
        seed=training.seed,
    )


def run_pretraining(
    run: Run, prepared: WordsPrepared, text_encoder: TextEncoder, device: str, reporter: Reporter
) -> None:
    """Run or resume the pretraining, and load its final parameters into the encoder."""
    folder = get_pretraining_run(run)
    finished = [checkpoint for checkpoint in list_checkpoints(folder) if checkpoint.load_state()["finished"]]
    if finished:
        parameters = finished[-1].load_tensors("model")
        text_encoder.load_state_dict(
            {name.removeprefix("reader."): value for name, value in parameters.items() if name.startswith("reader.")}
        )
        return
    recipe, texts = prepared.recipe, prepared.pretraining_texts
    assert texts is not None, "a run that is not pretrained has its text"
    model, settings = (
        build_bidirectional_lm(text_encoder, texts, recipe.pretraining, recipe.training.seed),
        build_pretraining_settings(recipe),
    )
    assert settings.steps is not None and settings.validate_every is not None
    target_words = int(model.classes.max()) - EDGE
    reporter.info(
        f"pretraining: {pluralize(settings.steps, 'step')} of up to {settings.batch_tokens:,} words, "
        f"learning rate {settings.learning_rate:g}, validation every {pluralize(settings.validate_every, 'step')}; "
        f"{pluralize(len(texts.plan(0)), 'step')} per epoch, "
        f"labeled texts repeated {pluralize(recipe.pretraining.labeled_repeats, 'time')}; "
        f"{max(0, target_words):,} target words"
    )
    folder.path.mkdir(exist_ok=True)
    engine, validate = build_engine(PretrainingStep(model), settings, device), PretrainingValidation(texts, device)
    Trainer(engine, texts, validate, settings, folder, reporter, section="pretraining").train()
    reporter.info("pretraining is complete; training on labels")


def remove_pretraining(run: Run) -> None:
    """Remove checkpoints and parameters of the pretraining, which a trained run does not need."""
    folder = get_pretraining_run(run)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    folder.model_file.unlink(missing_ok=True)
