"""Tagged sentences, made ready for training."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain

from regard.data.label_batches import TagCorpus
from regard.data.tagged import Tagged, read_tagged
from regard.data.tagged_check import tag_lines
from regard.errors import RegardError
from regard.models.attentive_tagger import TaggerConfig
from regard.run import Run
from regard.schemes import Scheme, find_scheme, odd_tags, repair, scheme_lines, spans_of, tags_of
from regard.tasks.tag.defaults import choose_tag_settings
from regard.tasks.tag.settings import TagData, TagRecipe
from regard.tasks.tag.validation import TagValidation
from regard.tasks.words.prepare import Texts, WordsPrepared, learn_words, settled
from regard.training.label_loss import TagStep, class_weights
from regard.training.talk import Talk


def prepare_tags(recipe: TagRecipe, home: Run | None, device: str, talk: Talk) -> WordsPrepared:
    """Read and check tagged sentences, learn their words or take those of a run, and settle what was left open."""
    recipe.data.check_given("a file of words and tags")
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
    texts = Texts(
        what="tag",
        labels=sorted({*counts, *outside}, key=lambda tag: (-counts[tag], tag)),
        train=[sentence.words for sentence in train],
        valid=[sentence.words for sentence in valid],
        encoder=TaggerConfig.encoder,
        split=str.split,
    )
    words = learn_words(recipe, home, texts, talk)
    recipe = choose_tag_settings(recipe, counts.total(), scheme)
    training, lexicon = recipe.training, words.lexicon
    assert training.tokens is not None
    batches = TagCorpus(mended, lexicon, training.tokens, training.seed)
    known = [with_known_tags(sentence, lexicon.labels, scheme) for sentence in valid]
    validate = TagValidation(known, [sentence.tags for sentence in valid], lexicon, device)
    weights = class_weights([counts[tag] for tag in lexicon.labels], training.class_weights)
    return settled(recipe, words, (train, valid), batches, validate, partial(TagStep, weights=weights))


def tagged_parts(data: TagData, seed: int) -> tuple[list[Tagged], list[Tagged]]:
    """Sentences to train on and sentences to validate with, a part of the first unless they are given."""
    assert data.train is not None
    train = read_all_tagged(data.train, data.columns)
    if data.valid is not None:
        return train, read_all_tagged(data.valid, data.columns)
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


def read_all_tagged(path: str, columns: Sequence[str]) -> list[Tagged]:
    """The tagged sentences of a file."""
    found = list(read_tagged(path, columns or None))
    if not found:
        raise RegardError(f"{path}: is empty; one sentence is the least")
    return found


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
