"""The words of labelled texts and tagged sentences, made ready for training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.data.check import unknown_share
from regard.data.reading_batches import ReadingTexts
from regard.data.unlabelled import Unlabelled
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.words.pretrain import card_of_unlabelled, reading_of, unlabelled_of
from regard.tasks.words.settings import WordRecipe
from regard.tasks.words.vectors import with_vectors
from regard.text import Lexicon, learn_lexicon
from regard.training.loop import Batches, Validate
from regard.training.loss import TrainingStep
from regard.training.prepared import Prepared
from regard.training.talk import Talk


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The words of the data, and what is learnt of them."""

    what: str  # label or tag
    labels: Sequence[str]  # of the training data, or its tags
    train: Sequence[Sequence[str]]
    valid: Sequence[Sequence[str]]
    encoder: str  # the default of the model
    split: Callable[[str], Sequence[str]]  # a line of unlabelled text -> its words
    longest: int | None = None  # so many words are read of a text


@dataclass(frozen=True)
class KnownWords:
    """The lexicon, and what was learnt or is to be read elsewhere."""

    lexicon: Lexicon
    vectors: Tensor | None  # of words, learnt elsewhere, that the model begins with
    unlabelled: Unlabelled | None
    reading: ReadingTexts | None  # what is read before labels are learnt, unless that is done already


@dataclass(frozen=True, kw_only=True)
class WordsPrepared(Prepared):
    """Data and settings of a classifier or a tagger."""

    recipe: WordRecipe
    vectors: Tensor | None
    reading: ReadingTexts | None

    def initialise(self, model: Any) -> None:
        if self.vectors is not None:
            model.input_embedding.take_vectors(self.vectors)


def learn_words(recipe: WordRecipe, home: Run | None, texts: Texts, talk: Talk) -> KnownWords:
    """Learn the words of texts or take those of a run, and say how many are known."""
    unlabelled = unlabelled_of(recipe, home, recipe.model.get("encoder", texts.encoder), texts.split, talk)
    lexicon = lexicon_of(recipe, home, texts, unlabelled)
    lexicon, vectors = with_vectors(lexicon, recipe, home, texts.train, talk)
    reading = reading_of(recipe, unlabelled, [words[: texts.longest] for words in texts.train], lexicon, talk)
    unknown = sorted(set(texts.labels) - set(lexicon.labels))
    if unknown and home is not None:
        known = ", ".join(lexicon.labels)
        raise RegardError(f"data: {home.path} does not know the {texts.what} {unknown[0]}; it has {known}")
    share = unknown_share([word.number for word in lexicon.encode(words)] for words in texts.valid)
    talk.say(
        f"words: {len(lexicon.words):,} known, spelt with {lexicon.pieces.size:,} {lexicon.pieces.kind}; "
        f"{100 * share:.1f} % of the words of the validation data are not known"
    )
    return KnownWords(lexicon, vectors, unlabelled, reading)


def lexicon_of(recipe: WordRecipe, home: Run | None, texts: Texts, unlabelled: Unlabelled | None) -> Lexicon:
    """The words of some texts, and of unlabelled text where there is some; or those of a run."""
    if home is not None:
        home.check(home.tokenizer_file)
        return Lexicon.load(home.tokenizer_file)
    return learn_lexicon(
        texts.train,
        texts.labels,
        kind="characters" if recipe.text.kind == "auto" else recipe.text.kind,
        size=recipe.text.size,
        least_count=recipe.text.least_count,
        unlabelled=None if unlabelled is None else unlabelled.counts(),
        more=recipe.reading.words,
    )


def settled(
    recipe: WordRecipe,
    words: KnownWords,
    parts: tuple[Sequence[Any], Sequence[Any]],
    batches: Batches,
    validate: Validate,
    step: Callable[[Any, float], TrainingStep],
) -> WordsPrepared:
    """All of it; `parts` are the examples to train on and those to validate with."""
    first = batches.plan(0)
    return WordsPrepared(
        recipe=recipe,
        tokenizers=words.lexicon,
        batches=batches,
        validate=validate,
        step=step,
        first=batches.batch(first[0], 0),
        data={"origin": recipe.data.train, **card_of(*parts), **card_of_unlabelled(words.unlabelled)},
        each="words",
        amount=f"{len(first)} an epoch",
        vectors=words.vectors,
        reading=words.reading,
    )


def card_of(train: Sequence[Any], valid: Sequence[Any]) -> dict[str, object]:
    """What the run's card says of the data."""
    found = hashlib.sha256()
    for part in (train, valid):
        found.update(f"{len(part)}\n".encode())
        for example in part:
            found.update(f"{example}\n".encode(errors="surrogatepass"))
    return {"train": len(train), "valid": len(valid), "sha256": found.hexdigest()}
