"""Prepare the words of labeled texts and tagged sentences for training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.data.pair_check import compute_unknown_share
from regard.data.pretraining_batches import PretrainingTexts
from regard.data.unlabeled import UnlabeledText
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.built_in import describe_origin
from regard.tasks.words.pretrain import build_pretraining_texts, build_unlabeled_card, read_unlabeled_text
from regard.tasks.words.settings import WordRecipe
from regard.tasks.words.vectors import add_vectors
from regard.text import WordVocabulary, learn_word_vocabulary
from regard.training.loop import Batches, Validate
from regard.training.loss import TrainingStep
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter


@dataclass(frozen=True, kw_only=True)
class WordTexts:
    """The words and labels of the data."""

    label_kind: str  # label or tag
    labels: Sequence[str]  # labels or tags of the training data
    train: Sequence[Sequence[str]]
    valid: Sequence[Sequence[str]]
    encoder: str  # default encoder of the model
    split: Callable[[str], Sequence[str]]  # a line of unlabeled text -> its words
    max_words: int | None = None  # truncate texts to this many words


@dataclass(frozen=True)
class LearnedWords:
    """The vocabulary, pretrained vectors, and the texts for pretraining."""

    vocabulary: WordVocabulary
    vectors: Tensor | None  # pretrained word vectors to initialize the model with
    unlabeled: UnlabeledText | None
    pretraining_texts: PretrainingTexts | None  # texts for pretraining, unless it is done


@dataclass(frozen=True, kw_only=True)
class WordsPrepared(Prepared):
    """Prepared data and settings of a classifier or tagger."""

    recipe: WordRecipe
    vectors: Tensor | None
    pretraining_texts: PretrainingTexts | None

    def initialize(self, model: Any) -> None:
        if self.vectors is not None:
            model.input_embedding.set_vectors(self.vectors)


def learn_words(recipe: WordRecipe, existing_run: Run | None, texts: WordTexts, reporter: Reporter) -> LearnedWords:
    """Learn the vocabulary or load that of a run, and report its coverage."""
    unlabeled = read_unlabeled_text(
        recipe, existing_run, recipe.model.get("encoder", texts.encoder), texts.split, reporter
    )
    vocabulary = get_vocabulary(recipe, existing_run, texts, unlabeled)
    vocabulary, vectors = add_vectors(vocabulary, recipe, existing_run, texts.train, reporter)
    pretraining_texts = build_pretraining_texts(
        recipe, unlabeled, [words[: texts.max_words] for words in texts.train], vocabulary, reporter
    )
    unknown = sorted(set(texts.labels) - set(vocabulary.labels))
    if unknown and existing_run is not None:
        known_labels = ", ".join(vocabulary.labels)
        raise RegardError(f'data: unknown {texts.label_kind} "{unknown[0]}"; {existing_run.path} has {known_labels}')
    share = compute_unknown_share([word.word_id for word in vocabulary.encode(words)] for words in texts.valid)
    reporter.info(
        f"words: {len(vocabulary.words):,} known, {vocabulary.pieces.size:,} {vocabulary.pieces.kind}; "
        f"{100 * share:.1f}% of validation words are unknown"
    )
    return LearnedWords(vocabulary, vectors, unlabeled, pretraining_texts)


def get_vocabulary(
    recipe: WordRecipe, existing_run: Run | None, texts: WordTexts, unlabeled: UnlabeledText | None
) -> WordVocabulary:
    """Learn the vocabulary of the texts and of the unlabeled text, or load that of a run."""
    if existing_run is not None:
        return WordVocabulary.load(existing_run.find_file(existing_run.tokenizer_file.name))
    return learn_word_vocabulary(
        texts.train,
        texts.labels,
        kind="characters" if recipe.text.tokenizer == "auto" else recipe.text.tokenizer,
        vocab_size=recipe.text.vocab_size,
        min_frequency=recipe.text.min_frequency,
        unlabeled=None if unlabeled is None else unlabeled.count_words(),
        max_unlabeled=recipe.pretraining.max_words,
    )


def build_prepared_words(
    recipe: WordRecipe,
    words: LearnedWords,
    parts: tuple[Sequence[Any], Sequence[Any]],
    batches: Batches,
    validate: Validate,
    step: Callable[[Any, float], TrainingStep],
) -> WordsPrepared:
    """Build the prepared data; `parts` are the training and validation examples."""
    first_plan = batches.plan(0)
    return WordsPrepared(
        recipe=recipe,
        tokenizers=words.vocabulary,
        batches=batches,
        validate=validate,
        step=step,
        first_batch=batches.batch(first_plan[0], 0),
        data={"origin": describe_origin(recipe), **build_data_card(*parts), **build_unlabeled_card(words.unlabeled)},
        batch_unit="words",
        summary=f"{len(first_plan)} per epoch",
        vectors=words.vectors,
        pretraining_texts=words.pretraining_texts,
    )


def build_data_card(train: Sequence[Any], valid: Sequence[Any]) -> dict[str, object]:
    """Return the data section of the run's card."""
    digest = hashlib.sha256()
    for part in (train, valid):
        digest.update(f"{len(part)}\n".encode())
        for example in part:
            digest.update(f"{example}\n".encode(errors="surrogatepass"))
    return {"train": len(train), "validation": len(valid), "sha256": digest.hexdigest()}
