"""Prepare labeled texts for training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from regard.data import label_check
from regard.data.formats.lines import quote_text
from regard.data.label_batches import LabelCorpus, count_words_read
from regard.data.labeled import LabeledText, read_labeled
from regard.data.pair_check import pluralize
from regard.data.unlabeled import split_text_words
from regard.errors import RegardError
from regard.models.attentive_classifier import ClassifierConfig
from regard.run import Run
from regard.tasks.built_in import check_corpus_settings, choose_corpus_settings, generate_split, is_built_in
from regard.tasks.label.defaults import choose_label_settings
from regard.tasks.label.settings import LabelData, LabelRecipe
from regard.tasks.label.validation import LabelValidation
from regard.tasks.settings import get_split_seed
from regard.tasks.words.prepare import WordsPrepared, WordTexts, build_prepared_words, learn_words
from regard.text import split_words
from regard.training.label_loss import LabelStep, compute_class_weights, compute_positive_weights
from regard.training.reporter import Reporter


def prepare_labels(recipe: LabelRecipe, existing_run: Run | None, device: str, reporter: Reporter) -> WordsPrepared:
    """Read and check labeled texts, learn their vocabulary or load that of a run, and choose unset settings."""
    recipe.data.check_train_given("a file of texts and labels")
    if existing_run is None:
        recipe = choose_corpus_settings(recipe)
    train, valid = load_labeled_split(recipe.data, get_split_seed(recipe))
    for line in label_check.summarize_label_data(train, valid).lines():
        reporter.info(line)
    labels, max_words = label_check.count_labels(train), recipe.data.max_tokens
    texts = WordTexts(
        label_kind="label",
        labels=list(labels),
        train=[split_words(text) for text in dict.fromkeys(chain.from_iterable(map(get_texts, train)))],
        valid=[split_words(example.text) for example in valid],
        encoder=ClassifierConfig.encoder,
        split=split_text_words,
        max_words=max_words,
    )
    words = learn_words(recipe, existing_run, texts, reporter)
    truncated = sum(len(split_words(example.text)) > max_words for example in train)
    if truncated:
        reporter.info(f"train: {pluralize(truncated, 'text')} truncated to {max_words} words")
    multi_label, pairs = is_multi_label(train, valid), any(example.second is not None for example in train)
    size = sum(count_words_read(example, max_words) for example in train)
    recipe = choose_label_settings(recipe, size, multi_label=multi_label, pairs=pairs)
    training, vocabulary = recipe.training, words.vocabulary
    assert training.batch_tokens is not None
    batches = LabelCorpus(
        train, vocabulary, training.batch_tokens, recipe.data.context, pairs, max_words, training.seed
    )
    counts, power = [labels.get(label, 0) for label in vocabulary.labels], training.class_weights
    weights = (
        compute_positive_weights(counts, len(train), power) if multi_label else compute_class_weights(counts, power)
    )
    validate = LabelValidation(valid, vocabulary, max_words, device)
    return build_prepared_words(recipe, words, (train, valid), batches, validate, partial(LabelStep, weights=weights))


def is_multi_label(train: Sequence[LabeledText], valid: Sequence[LabeledText]) -> bool:
    """Return whether texts have several labels.

    Raises:
        RegardError: If only validation texts have several labels.
    """
    multi_label = any(len(example.labels) > 1 for example in train)
    multi_label_example = next((example for example in valid if len(example.labels) > 1), None)
    if multi_label_example is not None and not multi_label:
        text, labels = quote_text(multi_label_example.text), ", ".join(multi_label_example.labels)
        raise RegardError(f"validation data: {text}: expected one label, as in the training data, got {labels}")
    return multi_label


def load_labeled_split(data: LabelData, seed: int) -> tuple[list[LabeledText], list[LabeledText]]:
    """Load the training and validation texts; without validation data, split the training data."""
    assert data.train is not None
    check_corpus_settings(data, "label")
    if is_built_in(data.train, "label"):
        train, valid = generate_split(data, seed)
        return train, valid if data.validation is None else read_labeled_texts(data.validation, data)
    train = read_labeled_texts(data.train, data)
    if data.validation is None:
        label_check.summarize_label_data(train)
        return label_check.split_validation_labeled(train, data.validation_share, seed)
    return train, read_labeled_texts(data.validation, data)


def read_labeled_texts(path: str, data: LabelData) -> list[LabeledText]:
    """Read the labeled texts of a file."""
    examples = list(
        read_labeled(
            path,
            format=data.format,
            columns=data.columns or None,
            dialogue=data.dialogue,
            separator=data.separator,
            context=data.context,
            on_empty=data.on_empty,
        )
    )
    if not examples:
        raise RegardError(f"{path} is empty; expected at least one example")
    return examples


def get_texts(example: LabeledText) -> Iterable[str]:
    """Return all texts of an example."""
    return (example.text, *([] if example.second is None else [example.second]), *example.context)
