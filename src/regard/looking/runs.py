"""Where the model of a run looks, whatever it does: answer, write on, label or tag."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.batch import BOS, collate
from regard.decoding.generate import check_text
from regard.decoding.hypothesis import Hypothesis
from regard.label_predictor import LabelPredictor, TagPredictor, words_to_tag
from regard.loading import AnyPredictor
from regard.looking.alternatives import Considered, beam_alternatives, model_alternatives
from regard.looking.sides import Side, token_side, word_side
from regard.looking.wanted import Wanted
from regard.looking.weights import LONG, layers_of, map_weights
from regard.predictor import END, Prediction, Predictor
from regard.sentences import Sentences, side_by_side
from regard.text_predictor import BEGIN, TextPredictor
from regard.views.attention_map import AttentionMap
from regard.views.display import cut

TITLE = 80
"""Columns of a text that a title has."""


def look_at_run(predictor: AnyPredictor, text: str, wanted: Wanted) -> AttentionMap:
    """As `regard.looking.look` describes it."""
    if isinstance(predictor, Predictor):
        return look_at_pair(predictor, text, wanted)
    if isinstance(predictor, TextPredictor):
        return look_at_text(predictor, text, wanted)
    if isinstance(predictor, TagPredictor):
        return look_at_tags(predictor, text, wanted)
    return look_at_label(predictor, text, wanted)


def look_at_pair(predictor: Predictor, text: str, wanted: Wanted) -> AttentionMap:
    """Where a model looks that answers a source: from target to source, or within one of them."""
    model, name = predictor.model, predictor.name
    wanted.allow(name, "target", "longest")
    predictor.check_attention()
    kind = wanted.kind_of(name, *model.attentions)
    steps: list[list[Hypothesis]] = []
    if wanted.target is None:
        found, steps = search_target(predictor, text, wanted.longest)
    else:
        (found,) = predictor.force([text], [wanted.target])
    batch = collate([found.pair]).to(predictor.device)
    with torch.no_grad(), watch(model) as seen:
        features = model.features(batch)
    source, rows = source_side(predictor, found, wanted.words), target_side(predictor, found, wanted.words)
    layers = layers_of(seen, model.attentions[kind])
    if kind == "encoder":
        title = f"{name}, encoder: {cut(text, TITLE)}"
        return new_map(layers, source, source, title, wanted.top)
    alternatives = None
    if not rows.merged:
        alternatives = pair_alternatives(predictor, found, features[0], steps)
    title = f"{name}: {cut(text, TITLE)} → {cut(found.text, TITLE)}"
    if kind == "cross":
        return new_map(layers, rows, source, title, wanted.top, alternatives)
    title = f"{name}, decoder: {cut(found.text, TITLE)}"
    read = read_side(predictor, found, wanted.words)
    return new_map(layers, rows, read, title, wanted.top, alternatives)


def search_target(predictor: Predictor, text: str, longest: int | None) -> tuple[Prediction, list[list[Hypothesis]]]:
    """The answer to a source, and what the beam considered for each of its tokens, where there is a beam.

    Every hypothesis is held from its beginning, too much for a long target, of which nothing is given.
    """
    steps: list[list[Hypothesis]] = []
    for search in predictor.search(text, longest=longest):
        if search.length <= LONG:
            steps += search.considered()
    found = predictor.found(text, search)
    size = len(found.target_tokens)
    return found, steps[:size] if predictor.recipe.decoding.beam > 1 and size <= LONG else []


def pair_alternatives(
    predictor: Predictor, found: Prediction, features: Tensor, steps: Sequence[Sequence[Hypothesis]]
) -> tuple[Considered, ...]:
    """What each token of a target might have been: by the steps of the beam that wrote it, or by the model itself."""
    size, tokenizer = len(found.target_tokens), predictor.tokenizers.target
    if steps:
        return beam_alternatives(tokenizer, steps)
    out = collate([found.pair]).target_out
    assert out is not None
    return model_alternatives(predictor.model, features[:size], out[0, :size].to(features.device), tokenizer)


def source_side(predictor: Predictor, found: Prediction, words: bool) -> Side:
    """The source, <eos> at its end."""
    if not words:
        return token_side(found.source_tokens)
    tokenizer = predictor.tokenizers.source
    text = tokenizer.steps.apply(found.source)
    return word_side(tokenizer.kind, text, found.source_tokens[:-1], found.source_words[:-1], after=(END,))


def target_side(predictor: Predictor, found: Prediction, words: bool) -> Side:
    """The target as it comes out, with <eos> if it ended."""
    if not words:
        return token_side(found.target_tokens)
    size = len(found.pair.target or ())
    tokens, ends = found.target_tokens[:size], found.target_tokens[size:]
    kind = predictor.tokenizers.target.kind
    return word_side(kind, found.written, tokens, found.target_words[:size], after=ends)


def read_side(predictor: Predictor, found: Prediction, words: bool) -> Side:
    """The target as it goes in: <bos> before it, and without the last that comes out."""
    size = len(found.pair.target or ())
    tokens = found.target_tokens[:size]
    if not words:
        return token_side((BEGIN, *tokens))
    kind = predictor.tokenizers.target.kind
    return word_side(kind, found.written, tokens, found.target_words[:size], before=(BEGIN,))


def look_at_text(predictor: TextPredictor, text: str, wanted: Wanted) -> AttentionMap:
    """Where a language model looks back from each token that it reads, to write the next."""
    wanted.allow(predictor.name)
    predictor.check_attention()
    tokenizer, model = predictor.tokenizer, predictor.model
    kind = wanted.kind_of(predictor.name, *model.attentions)
    encoded = tokenizer.encoded(text)
    tokens = torch.tensor([[BOS, *encoded.ids]], device=predictor.device)
    check_text(model, tokens, "look")
    with torch.no_grad(), watch(model) as seen:
        features, _ = model.read(tokens)
    side = token_side((BEGIN, *encoded.tokens))
    if wanted.words:
        written = tokenizer.steps.apply(text)
        side = word_side(tokenizer.kind, written, encoded.tokens, encoded.words, before=(BEGIN,))
    alternatives = None
    if not side.merged:
        alternatives = ((), *model_alternatives(model, features[0, :-1], tokens[0, 1:], tokenizer))
    title = f"{predictor.name}: {cut(text, TITLE)}"
    return new_map(layers_of(seen, model.attentions[kind]), side, side, title, wanted.top, alternatives)


def look_at_tags(predictor: TagPredictor, text: str, wanted: Wanted) -> AttentionMap:
    """Where the words look that are tagged."""
    wanted.allow(predictor.name)
    predictor.check_attention()
    wanted.kind_of(predictor.name, *predictor.model.attentions)
    words = words_to_tag(text)
    sentences = side_by_side([predictor.lexicon.encode(words)])
    return look_at_words(predictor, words, sentences, f"{predictor.name}: {cut(text, TITLE)}", wanted.top)


def look_at_label(predictor: LabelPredictor, text: str, wanted: Wanted) -> AttentionMap:
    """What a classifier looks at: all of the text at once, or the words at each other in the layers before that."""
    name, attentions = predictor.name, predictor.model.attentions
    wanted.allow(name, "second", "context")
    if "self" not in attentions:
        predictor.check_attention()
    if wanted.kind_of(name, *attentions) == "pooling":
        context = None if wanted.context is None else list(wanted.context)
        whole = predictor.attention_map(
            predictor.predict(text, second=wanted.second, context=context, return_weights=True)
        )
        return whole if wanted.top is None else whole.keep_top(wanted.top)
    words = predictor.words(text)
    sentences = side_by_side([predictor.lexicon.encode(words)])
    return look_at_words(predictor, words, sentences, f"{name}: {cut(text, TITLE)}", wanted.top)


def look_at_words(
    predictor: TagPredictor | LabelPredictor, words: Sequence[str], sentences: Sentences, title: str, top: int | None
) -> AttentionMap:
    """How the words of one text look at each other while it is read."""
    model = predictor.model
    with torch.no_grad(), watch(model) as seen:
        model.reader(sentences.to(predictor.device))
    side = token_side(words)
    weights = map_weights(layers_of(seen, model.attentions["self"]), side, side, top)
    return AttentionMap(side.names, side.names, weights, title, "words")


def new_map(
    layers: Sequence[Weights],
    rows: Side,
    columns: Side,
    title: str,
    top: int | None,
    alternatives: tuple[Considered, ...] | None = None,
) -> AttentionMap:
    """The map of some layers."""
    weights = map_weights(layers, rows, columns, top)
    merged = "words" if rows.merged or columns.merged else "tokens"
    return AttentionMap(rows.names, columns.names, weights, title, merged, None, alternatives)
