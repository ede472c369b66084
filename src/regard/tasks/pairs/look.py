"""Attention maps of sequence-to-sequence models: from target to source, or within one side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from regard.batch import collate
from regard.decoding.hypothesis import Hypothesis
from regard.maps.alternatives import TokenAlternatives, compute_alternatives
from regard.maps.build import TITLE, build_map
from regard.maps.options import TargetLookOptions
from regard.maps.sides import Side, build_word_side
from regard.maps.weights import LONG
from regard.models.features import Features
from regard.tasks.pairs.options import SearchOptions
from regard.text import Tokenizer
from regard.text.tokenizer import BEGIN, END
from regard.views.attention_map import AttentionMap
from regard.views.display import ELLIPSIS, truncate

if TYPE_CHECKING:
    from regard.tasks.pairs.prediction import Prediction
    from regard.tasks.pairs.predictor import PairPredictor

TAIL = 40
"""Number of final characters of a hypothesis to show: those of one beam mostly differ near their ends."""


def look_at_pair(predictor: PairPredictor, text: str, options: TargetLookOptions) -> AttentionMap:
    """Return the attention map for `regard.look`."""
    name, model = predictor.name, predictor.model
    predictor.check_attention()
    kind = options.resolve_kind(name, model.attentions)
    prediction, beam_alternatives = predict_with_alternatives(predictor, text, options)
    features, weights = predictor.run_watched(lambda: model.features(collate([prediction.pair]).to(predictor.device)))
    source = build_source_side(predictor, prediction, options.words)
    if kind == "encoder":
        return build_map(weights[kind], source, source, f"{name}, encoder: {truncate(text, TITLE)}", options.top)
    ends = prediction.target_tokens[len(prediction.pair.target or ()) :]  # <eos>, if the target is complete
    rows = build_target_side(predictor, prediction, options.words, after=ends)
    alternatives = None
    if not rows.merged:
        alternatives = beam_alternatives or find_model_alternatives(predictor, prediction, features[0])
    if kind == "cross":
        title = f"{name}: {truncate(text, TITLE)} → {truncate(prediction.text, TITLE)}"
        attention_map = build_map(weights[kind], rows, source, title, options.top, alternatives)
        return attention_map if rows.merged else replace(attention_map, generated=prediction.generated)
    title = f"{name}, {kind}: {truncate(prediction.text, TITLE)}"
    columns = build_target_side(predictor, prediction, options.words, before=(BEGIN,))  # the decoder's input
    return build_map(weights[kind], rows, columns, title, options.top, alternatives)


def predict_with_alternatives(
    predictor: PairPredictor, text: str, options: TargetLookOptions
) -> tuple[Prediction, tuple[TokenAlternatives, ...] | None]:
    """Return the target to look at and, if beam search wrote it, the candidates at each step.

    Each step holds complete hypotheses, which is too much for a long target.
    """
    if options.target is not None:
        return predictor.force([text], [options.target])[0], None
    steps: list[list[Hypothesis]] = []
    search_options = SearchOptions(max_length=options.max_length)
    for search in predictor.search(text, search_options):
        if search.length <= LONG:
            steps += search.get_candidates()
    prediction = predictor.finish_search(text, search, search_options)
    size = len(prediction.target_tokens)
    if predictor.recipe.decoding.beam == 1 or size > LONG:
        return prediction, None
    tokenizer = predictor.encoder.encode(text).target_tokenizer
    return prediction, tuple(to_alternatives(tokenizer, step) for step in steps[:size])


def to_alternatives(tokenizer: Tokenizer, hypotheses: list[Hypothesis]) -> TokenAlternatives:
    """Return the texts and probabilities of hypotheses; probabilities are clipped to 1, which rounding may exceed."""
    return tuple(
        (format_hypothesis(tokenizer, hypothesis), min(1.0, math.exp(hypothesis.log_probability)))
        for hypothesis in hypotheses
    )


def format_hypothesis(tokenizer: Tokenizer, hypothesis: Hypothesis) -> str:
    """Return the text of a hypothesis, shortened to its end, with <eos> if it is complete."""
    text = tokenizer.decode(hypothesis.target)
    if len(text) > TAIL:
        text = ELLIPSIS + text[1 - TAIL :]
    return " ".join(filter(None, [text, END])) if hypothesis.ended else text


def find_model_alternatives(
    predictor: PairPredictor, prediction: Prediction, features: Float[Tensor, "target width"] | Features
) -> tuple[TokenAlternatives, ...]:
    """Return the most probable tokens of the model at each step of a target."""
    size, target_out = len(prediction.target_tokens), collate([prediction.pair]).target_out
    assert target_out is not None
    tokens = target_out[0, :size].to(predictor.device)
    tokenizer = predictor.encoder.encode(prediction.source).target_tokenizer
    return compute_alternatives(predictor.model, features[:size], tokens, tokenizer)


def build_source_side(predictor: PairPredictor, prediction: Prediction, words: bool) -> Side:
    """Return the source side, with <eos> at the end."""
    tokenizer, tokens = predictor.tokenizers.source, prediction.source_tokens[:-1]
    text = tokenizer.steps.prepare(prediction.source)
    return build_word_side(tokenizer, text, tokens, prediction.source_words[:-1], after=(END,), merge=words)


def build_target_side(predictor: PairPredictor, prediction: Prediction, words: bool, **special: Sequence[str]) -> Side:
    """Return the target side, with special tokens before or after it."""
    size, tokenizer = len(prediction.pair.target or ()), predictor.tokenizers.target
    tokens, word_ids = prediction.target_tokens[:size], prediction.target_words[:size]
    return build_word_side(tokenizer, prediction.raw_text, tokens, word_ids, **special, merge=words)
