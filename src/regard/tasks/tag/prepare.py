"""Prepare tagged sentences for training."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain

from regard.data.label_batches import TagCorpus
from regard.data.tag_check import summarize_tag_data
from regard.data.tagged import TaggedSentence, read_tagged
from regard.errors import RegardError
from regard.models.attentive_tagger import TaggerConfig
from regard.run import Run
from regard.schemes import (
    Scheme,
    find_odd_tags,
    find_scheme,
    format_scheme,
    parse_tag,
    repair_tags,
    spans_to_tags,
    tags_to_spans,
)
from regard.tasks.built_in import check_corpus_settings, choose_corpus_settings, generate_split, is_built_in
from regard.tasks.settings import get_split_seed
from regard.tasks.tag.defaults import choose_tag_settings
from regard.tasks.tag.settings import TagData, TagRecipe
from regard.tasks.tag.validation import TagValidation
from regard.tasks.words.prepare import WordsPrepared, WordTexts, build_prepared_words, learn_words
from regard.training.label_loss import TagStep, compute_class_weights
from regard.training.reporter import Reporter


def prepare_tags(recipe: TagRecipe, existing_run: Run | None, device: str, reporter: Reporter) -> WordsPrepared:
    """Read and check tagged sentences, learn their vocabulary or load that of a run, and choose unset settings."""
    recipe.data.check_train_given("a file of words and tags")
    if existing_run is None:
        recipe = choose_corpus_settings(recipe)
    train, valid = load_tagged_split(recipe.data, get_split_seed(recipe))
    scheme: Scheme = recipe.model.get("scheme") or find_scheme(sentence.tags for sentence in train)
    repaired_sentences, changed = repair_sentences(train, scheme)
    for line in chain(summarize_tag_data(train, valid), format_scheme(scheme, changed)):
        reporter.info(line)
    counts = Counter(chain.from_iterable(sentence.tags for sentence in repaired_sentences))
    if scheme == "plain" and (odd_names := find_odd_tags(counts)):
        reporter.info(
            f'note: tags: "{odd_names[0]}" fits no scheme such as BIO; tags are treated as plain; fix it to mark spans'
        )
    outside = () if scheme == "plain" else ("O",)  # so that every sentence has a valid tagging
    texts = WordTexts(
        label_kind="tag",
        labels=sorted({*counts, *outside}, key=lambda tag: (-counts[tag], tag)),
        train=[sentence.words for sentence in train],
        valid=[sentence.words for sentence in valid],
        encoder=TaggerConfig.encoder,
        split=str.split,
    )
    words = learn_words(recipe, existing_run, texts, reporter)
    recipe = choose_tag_settings(recipe, counts.total(), scheme)
    training, vocabulary = recipe.training, words.vocabulary
    assert training.batch_tokens is not None
    batches = TagCorpus(repaired_sentences, vocabulary, training.batch_tokens, training.seed)
    known_valid = [drop_unknown_tags(sentence, vocabulary.labels, scheme) for sentence in valid]
    validate = TagValidation(known_valid, [sentence.tags for sentence in valid], vocabulary, device)
    weights = compute_class_weights([counts[tag] for tag in vocabulary.labels], training.class_weights)
    return build_prepared_words(recipe, words, (train, valid), batches, validate, partial(TagStep, weights=weights))


def load_tagged_split(data: TagData, seed: int) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """Load the training and validation sentences; without validation data, split the training data."""
    assert data.train is not None
    check_corpus_settings(data, "tag")
    if is_built_in(data.train, "tag"):
        train, valid = generate_split(data, seed)
        return train, valid if data.validation is None else read_tagged_sentences(data.validation, data.columns)
    train = read_tagged_sentences(data.train, data.columns)
    if data.validation is not None:
        return train, read_tagged_sentences(data.validation, data.columns)
    if len(train) < 2:
        raise RegardError(f"{data.train}: expected at least 2 sentences, one for validation, got 1")
    if len({sentence.words for sentence in train}) < 2:
        raise RegardError(f"{data.train}: expected at least 2 different sentences, one for validation, got 1")
    valid_indices = sample_validation_indices(train, data.validation_share, seed)
    return [s for index, s in enumerate(train) if index not in valid_indices], [
        train[index] for index in sorted(valid_indices)
    ]


def sample_validation_indices(sentences: Sequence[TaggedSentence], share: float, seed: int) -> set[int]:
    """Return the indices of the validation sentences; equal sentences stay in one split."""
    unique_sentences = list(dict.fromkeys(sentence.words for sentence in sentences))
    random.Random(seed).shuffle(unique_sentences)
    valid_sentences = set(
        unique_sentences[: min(max(1, round(share * len(unique_sentences))), len(unique_sentences) - 1)]
    )
    return {index for index, sentence in enumerate(sentences) if sentence.words in valid_sentences}


def read_tagged_sentences(path: str, columns: Sequence[str], *, only_spans: bool = False) -> list[TaggedSentence]:
    """Read the tagged sentences of a file."""
    sentences = list(read_tagged(path, columns or None, parse_tag=parse_tag if only_spans else None))
    if not sentences:
        raise RegardError(f"{path} is empty; expected at least one sentence")
    return sentences


def drop_unknown_tags(sentence: TaggedSentence, known_tags: Sequence[str], scheme: Scheme) -> TaggedSentence:
    """Return a sentence with only known tags; spans with unknown tags are dropped."""
    if scheme == "plain":
        outside = "O" if "O" in known_tags else known_tags[0]
        return TaggedSentence(sentence.words, tuple(tag if tag in known_tags else outside for tag in sentence.tags))
    spans, length = tags_to_spans(sentence.tags), len(sentence.words)
    tags = spans_to_tags(spans, length, scheme)
    known_spans = [span for span in spans if set(tags[span.first : span.last + 1]) <= set(known_tags)]
    return TaggedSentence(sentence.words, spans_to_tags(known_spans, length, scheme))


def repair_sentences(sentences: Sequence[TaggedSentence], scheme: Scheme) -> tuple[list[TaggedSentence], int]:
    """Return sentences with tags that are valid in the scheme, and the number of changed tags."""
    tags, changed = repair_tags([sentence.tags for sentence in sentences], scheme)
    return [
        TaggedSentence(sentence.words, repaired_tags) for sentence, repaired_tags in zip(sentences, tags, strict=True)
    ], changed
