"""Labelled texts and tagged sentences, made ready for training."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from regard.data import label_check
from regard.data.check import counted
from regard.data.formats.lines import quoted
from regard.data.label_batches import LabelCorpus, TagCorpus, words_read
from regard.data.labelled import Labelled, read_labelled
from regard.data.settings import DataSettings
from regard.data.tagged import Tagged, read_tagged
from regard.data.tagged_check import tag_lines
from regard.data.unlabelled import Unlabelled, words_apart, words_in_text
from regard.errors import RegardError
from regard.models.attentive_classifier import ClassifierConfig
from regard.models.attentive_tagger import TaggerConfig
from regard.recipe import Recipe
from regard.run import Run
from regard.schemes import Scheme, find_scheme, odd_tags, repair, scheme_lines, spans_of, tags_of
from regard.settings import shown
from regard.text import Lexicon, learn_lexicon, words_of
from regard.training.label_loss import (
    LabelStep,
    LabelValidation,
    TagStep,
    TagValidation,
    class_weights,
    positive_weights,
)
from regard.training.prepared import Prepared
from regard.training.reading import card_of_unlabelled, reading_of, unlabelled_of
from regard.training.suit_labels import suited_to_labels, suited_to_tags
from regard.training.talk import Talk
from regard.training.vectors import with_vectors

OF_OTHERS = {
    "data": ("source", "target", "valid_source", "valid_target", "documents", "count", "corpus"),
    "text": ("source_kind", "target_kind", "joint", "lowercase", "moses_source", "moses_target", "bpe_dropout"),
    "training": ("segment", "validate_most"),
}
"""Settings that mean nothing for labels and tags."""

OF_LABELS = ("format", "separator", "dialogue", "context", "empty", "most_tokens")
"""Settings of the data that mean nothing for tags."""


def prepare_labels(recipe: Recipe, home: Run | None, device: str, talk: Talk) -> Prepared:
    """Read and check labelled texts, learn their words or take those of a run, and settle what was left open."""
    check_settings(recipe, "label")
    train, valid = labelled_parts(recipe.data, recipe.training.seed)
    for line in label_check.check(train, valid).lines():
        talk.say(line)
    labels = label_check.label_counts(train)
    texts = [words_of(text) for text in dict.fromkeys(chain.from_iterable(map(all_texts, train)))]
    encoder = recipe.model.get("encoder", ClassifierConfig.encoder)
    unlabelled = unlabelled_of(recipe, home, encoder, words_in_text, talk)
    lexicon = lexicon_of(recipe, home, texts, list(labels), unlabelled)
    lexicon, vectors = with_vectors(lexicon, recipe, home, texts, talk)
    reading = reading_of(recipe, unlabelled, [words[: recipe.data.most_tokens] for words in texts], lexicon, talk)
    refuse_unknown("label", labels, lexicon, home)
    say_words(lexicon, [words_of(example.text) for example in valid], talk)
    longer = sum(len(words_of(example.text)) > recipe.data.most_tokens for example in train)
    if longer:
        talk.say(f"train: of {counted(longer, 'longer text')} the first {recipe.data.most_tokens} words are read")
    several = any(len(example.labels) > 1 for example in train)
    odd = next((example for example in valid if len(example.labels) > 1), None)
    if odd is not None and not several:
        raise RegardError(
            f"validation data: {quoted(odd.text)} has the labels {', '.join(odd.labels)}; in training each text has one"
        )
    pairs = any(example.second is not None for example in train)
    words = sum(words_read(example, recipe.data.most_tokens) for example in train)
    recipe = suited_to_labels(recipe, words, several=several, pairs=pairs)
    training, before = recipe.training, recipe.data.context
    assert training.tokens is not None
    longest = recipe.data.most_tokens
    batches = LabelCorpus(train, lexicon, training.tokens, before, pairs, longest, training.seed)
    counts = [labels.get(label, 0) for label in lexicon.labels]
    power = training.class_weights
    weights = positive_weights(counts, len(train), power) if several else class_weights(counts, power)
    first = batches.plan(0)
    return Prepared(
        recipe,
        lexicon,
        batches,
        LabelValidation(valid, lexicon, longest, device),
        partial(LabelStep, weights=weights),
        batches.batch(first[0], 0),
        0,
        card_of(recipe, train, valid) | card_of_unlabelled(unlabelled),
        "words",
        f"{len(first)} an epoch",
        vectors,
        reading,
    )


def prepare_tags(recipe: Recipe, home: Run | None, device: str, talk: Talk) -> Prepared:
    """Read and check tagged sentences, learn their words or take those of a run, and settle what was left open."""
    check_settings(recipe, "tag")
    train, valid = tagged_parts(recipe.data, recipe.training.seed)
    scheme: Scheme = recipe.model.get("scheme") or find_scheme(sentence.tags for sentence in train)
    mended, changed = repaired(train, scheme)
    for line in chain(tag_lines(train, valid), scheme_lines(scheme, changed)):
        talk.say(line)
    counts = Counter(chain.from_iterable(sentence.tags for sentence in mended))
    if scheme == "plain" and (odd := odd_tags(counts)):
        talk.say(
            f"note: tags: {odd[0]} is of no scheme, so that none is taken to mark spans; correct it if they should"
        )
    outside = () if scheme == "plain" else ("O",)  # so that there is always something that may be answered
    tags = sorted({*counts, *outside}, key=lambda tag: (-counts[tag], tag))
    texts = [sentence.words for sentence in train]
    encoder = recipe.model.get("encoder", TaggerConfig.encoder)
    unlabelled = unlabelled_of(recipe, home, encoder, words_apart, talk)
    lexicon = lexicon_of(recipe, home, texts, tags, unlabelled)
    lexicon, vectors = with_vectors(lexicon, recipe, home, texts, talk)
    reading = reading_of(recipe, unlabelled, texts, lexicon, talk)
    refuse_unknown("tag", counts, lexicon, home)
    say_words(lexicon, [sentence.words for sentence in valid], talk)
    recipe = suited_to_tags(recipe, sum(counts.values()), scheme)
    training = recipe.training
    assert training.tokens is not None
    for name in ("class_weights", "smoothing"):
        if getattr(training, name) and recipe.model.get("crf", TaggerConfig.crf):
            raise RegardError(f"training.{name}: is for tags that are chosen each for itself; set --crf false")
    batches = TagCorpus(mended, lexicon, training.tokens, training.seed)
    known = [with_known_tags(sentence, lexicon.labels, scheme) for sentence in valid]
    weights = class_weights([counts[tag] for tag in lexicon.labels], training.class_weights)
    first = batches.plan(0)
    return Prepared(
        recipe,
        lexicon,
        batches,
        TagValidation(known, [sentence.tags for sentence in valid], lexicon, device),
        partial(TagStep, weights=weights),
        batches.batch(first[0], 0),
        0,
        card_of(recipe, train, valid) | card_of_unlabelled(unlabelled),
        "words",
        f"{len(first)} an epoch",
        vectors,
        reading,
    )


def check_settings(recipe: Recipe, task: str) -> None:
    """Raise a `RegardError` for settings that a task has no use for, or nothing to train on."""
    data = recipe.data
    useless = [("data", name) for name in (*OF_OTHERS["data"], *(OF_LABELS if task == "tag" else ()))]
    useless += [(section, name) for section in ("text", "training") for name in OF_OTHERS[section]]
    for section, name in useless:
        settings = getattr(recipe, section)
        found = getattr(settings, name)
        if found != getattr(type(settings)(), name):
            raise RegardError(f"{section}.{name} is {shown(found)}, which the task {task} has no use for; leave it out")
    if data.train is None:
        raise RegardError(
            f"data: nothing to train on; give a file of {'texts and labels' if task == 'label' else 'words and tags'}"
        )
    if not 0 < data.held_out < 1:
        raise RegardError(f"data: held_out is {data.held_out}; a share above 0 and below 1 is needed")


def labelled_parts(data: DataSettings, seed: int) -> tuple[list[Labelled], list[Labelled]]:
    """Texts to train on and texts to validate with, a part of the first unless they are given."""
    assert data.train is not None
    train = read_all_labelled(data.train, data)
    if data.valid is None:
        label_check.check(train)
        return label_check.hold_out(train, data.held_out, seed)
    return train, read_all_labelled(data.valid, data)


def read_all_labelled(path: str, data: DataSettings) -> list[Labelled]:
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


def tagged_parts(data: DataSettings, seed: int) -> tuple[list[Tagged], list[Tagged]]:
    """Sentences to train on and sentences to validate with, a part of the first unless they are given."""
    assert data.train is not None
    train = read_all_tagged(data.train, data)
    if data.valid is not None:
        return train, read_all_tagged(data.valid, data)
    if len(train) < 2:
        raise RegardError(f"{data.train}: has one sentence; two are the least, as one is held out to validate with")
    if len({sentence.words for sentence in train}) < 2:
        raise RegardError(f"{data.train}: every sentence is the same; two are the least, as one is held out")
    held = held_places(train, data.held_out, seed)
    return [s for place, s in enumerate(train) if place not in held], [train[place] for place in sorted(held)]


def held_places(sentences: Sequence[Tagged], share: float, seed: int) -> set[int]:
    """The places of sentences that are held out; those that are alike stay on one side."""
    different = list(dict.fromkeys(sentence.words for sentence in sentences))
    random.Random(seed).shuffle(different)
    chosen = set(different[: min(max(1, round(share * len(different))), len(different) - 1)])
    return {place for place, sentence in enumerate(sentences) if sentence.words in chosen}


def read_all_tagged(path: str, data: DataSettings) -> list[Tagged]:
    """The tagged sentences of a file."""
    found = list(read_tagged(path, data.columns or None))
    if not found:
        raise RegardError(f"{path}: is empty; one sentence is the least")
    return found


def all_texts(example: Labelled) -> Iterable[str]:
    """All that is read of an example."""
    return (example.text, *([] if example.second is None else [example.second]), *example.context)


def lexicon_of(
    recipe: Recipe,
    home: Run | None,
    texts: Sequence[Sequence[str]],
    labels: Sequence[str],
    unlabelled: Unlabelled | None,
) -> Lexicon:
    """The words of some texts, and of unlabelled text where there is some; or those of a run."""
    if home is not None:
        home.check(home.tokenizer_file)
        return Lexicon.load(home.tokenizer_file)
    text = recipe.text
    kind = "characters" if text.kind == "auto" else text.kind
    return learn_lexicon(
        texts,
        labels,
        kind=kind,
        size=text.size,
        least_count=text.least_count,
        unlabelled=None if unlabelled is None else unlabelled.counts(),
        more=recipe.reading.words,
    )


def refuse_unknown(what: str, counts: Mapping[str, int], lexicon: Lexicon, home: Run | None) -> None:
    """Raise a `RegardError` for labels or tags that the run to start from does not know."""
    unknown = sorted(counts.keys() - set(lexicon.labels))
    if unknown and home is not None:
        known = ", ".join(lexicon.labels)
        raise RegardError(f"data: {home.path} does not know the {what} {unknown[0]}; it has {known}")


def with_known_tags(sentence: Tagged, known: Sequence[str], scheme: Scheme) -> Tagged:
    """A sentence whose tags can all be told: a span with a tag that cannot is left out."""
    if scheme == "plain":
        outside = "O" if "O" in known else known[0]
        return Tagged(sentence.words, tuple(tag if tag in known else outside for tag in sentence.tags))
    spans, length = spans_of(sentence.tags), len(sentence.words)
    tags = tags_of(spans, length, scheme)
    told = [span for span in spans if set(tags[span.first : span.last + 1]) <= set(known)]
    return Tagged(sentence.words, tags_of(told, length, scheme))


def repaired(sentences: Sequence[Tagged], scheme: Scheme) -> tuple[list[Tagged], int]:
    """Sentences whose tags keep to the scheme, and how many tags had to change."""
    tags, changed = repair([sentence.tags for sentence in sentences], scheme)
    return [Tagged(sentence.words, each) for sentence, each in zip(sentences, tags, strict=True)], changed


def say_words(lexicon: Lexicon, valid: Sequence[Sequence[str]], talk: Talk) -> None:
    """How many words there are, and how many of the validation data are not among them."""
    share = lexicon.unknown_share([lexicon.encode(words) for words in valid])
    talk.say(
        f"words: {len(lexicon.words):,} known, spelt with {lexicon.pieces.size:,} {lexicon.pieces.kind}; "
        f"{100 * share:.1f} % of the words of the validation data are not known"
    )


def card_of(
    recipe: Recipe, train: Sequence[Labelled | Tagged], valid: Sequence[Labelled | Tagged]
) -> dict[str, object]:
    """What the run's card says of the data."""
    found = hashlib.sha256()
    for part in (train, valid):
        found.update(f"{len(part)}\n".encode())
        for example in part:
            found.update(f"{example}\n".encode(errors="surrogatepass"))
    return {"origin": recipe.data.train, "train": len(train), "valid": len(valid), "sha256": found.hexdigest()}
