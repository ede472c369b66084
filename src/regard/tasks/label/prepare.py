"""Labelled texts, made ready for training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from regard.data import label_check
from regard.data.check import counted
from regard.data.formats.lines import quoted
from regard.data.label_batches import LabelCorpus, words_read
from regard.data.labelled import Labelled, read_labelled
from regard.data.unlabelled import words_in_text
from regard.errors import RegardError
from regard.models.attentive_classifier import ClassifierConfig
from regard.run import Run
from regard.tasks.label.defaults import choose_label_settings
from regard.tasks.label.settings import LabelData, LabelRecipe
from regard.tasks.label.validation import LabelValidation
from regard.tasks.words.prepare import Texts, WordsPrepared, learn_words, settled
from regard.text import words_of
from regard.training.label_loss import LabelStep, class_weights, positive_weights
from regard.training.talk import Talk


def prepare_labels(recipe: LabelRecipe, home: Run | None, device: str, talk: Talk) -> WordsPrepared:
    """Read and check labelled texts, learn their words or take those of a run, and settle what was left open."""
    recipe.data.check_given("a file of texts and labels")
    train, valid = labelled_parts(recipe.data, recipe.training.seed)
    for line in label_check.check(train, valid).lines():
        talk.say(line)
    labels, longest = label_check.label_counts(train), recipe.data.most_tokens
    texts = Texts(
        what="label",
        labels=list(labels),
        train=[words_of(text) for text in dict.fromkeys(chain.from_iterable(map(all_texts, train)))],
        valid=[words_of(example.text) for example in valid],
        encoder=ClassifierConfig.encoder,
        split=words_in_text,
        longest=longest,
    )
    words = learn_words(recipe, home, texts, talk)
    longer = sum(len(words_of(example.text)) > longest for example in train)
    if longer:
        talk.say(f"train: of {counted(longer, 'longer text')} the first {longest} words are read")
    several, pairs = has_several(train, valid), any(example.second is not None for example in train)
    size = sum(words_read(example, longest) for example in train)
    recipe = choose_label_settings(recipe, size, several=several, pairs=pairs)
    training, lexicon = recipe.training, words.lexicon
    assert training.tokens is not None
    batches = LabelCorpus(train, lexicon, training.tokens, recipe.data.context, pairs, longest, training.seed)
    counts, power = [labels.get(label, 0) for label in lexicon.labels], training.class_weights
    weights = positive_weights(counts, len(train), power) if several else class_weights(counts, power)
    validate = LabelValidation(valid, lexicon, longest, device)
    return settled(recipe, words, (train, valid), batches, validate, partial(LabelStep, weights=weights))


def has_several(train: Sequence[Labelled], valid: Sequence[Labelled]) -> bool:
    """Whether texts can have several labels; if only those to validate with have, a `RegardError`."""
    several = any(len(example.labels) > 1 for example in train)
    odd = next((example for example in valid if len(example.labels) > 1), None)
    if odd is not None and not several:
        raise RegardError(
            f"validation data: {quoted(odd.text)} has the labels {', '.join(odd.labels)}; in training each text has one"
        )
    return several


def labelled_parts(data: LabelData, seed: int) -> tuple[list[Labelled], list[Labelled]]:
    """Texts to train on and texts to validate with, a part of the first unless they are given."""
    assert data.train is not None
    train = read_all_labelled(data.train, data)
    if data.valid is None:
        label_check.check(train)
        return label_check.hold_out(train, data.held_out, seed)
    return train, read_all_labelled(data.valid, data)


def read_all_labelled(path: str, data: LabelData) -> list[Labelled]:
    """The labelled texts of a file, as the settings say it."""
    found = list(
        read_labelled(
            path,
            format=data.format,
            columns=data.columns or None,
            dialogue=data.dialogue,
            separator=data.separator,
            context=data.context,
            empty=data.empty,
        )
    )
    if not found:
        raise RegardError(f"{path}: is empty; one example is the least")
    return found


def all_texts(example: Labelled) -> Iterable[str]:
    """All that is read of an example."""
    return (example.text, *([] if example.second is None else [example.second]), *example.context)
