"""Where a model looks that answers a source: from target to source, or within one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from regard.batch import collate
from regard.decoding.hypothesis import Hypothesis
from regard.looking.alternatives import Considered, model_alternatives
from regard.looking.maps import TITLE, new_map
from regard.looking.options import TargetLookOptions
from regard.looking.sides import Side, word_side
from regard.looking.weights import LONG
from regard.tasks.pairs.options import SearchOptions
from regard.text import Tokenizer
from regard.text.tokenizer import BEGIN, END
from regard.views.attention_map import AttentionMap
from regard.views.display import ELLIPSIS, cut

if TYPE_CHECKING:
    from regard.tasks.pairs.predictor import PairPredictor, Prediction

TAIL = 40
"""Characters of a hypothesis that are shown: hypotheses of one beam mostly differ near their ends."""


def look_at_pair(predictor: PairPredictor, text: str, options: TargetLookOptions) -> AttentionMap:
    """As `regard.look` describes it."""
    name, model = predictor.name, predictor.model
    predictor.check_attention()
    kind = options.kind_of(name, model.attentions)
    found, searched = predicted(predictor, text, options)
    features, seen = predictor.watched(lambda: model.features(collate([found.pair]).to(predictor.device)))
    source = source_side(predictor, found, options.words)
    if kind == "encoder":
        return new_map(seen[kind], source, source, f"{name}, encoder: {cut(text, TITLE)}", options.top)
    ends = found.target_tokens[len(found.pair.target or ()) :]  # <eos>, if the model ended it
    rows = target_side(predictor, found, options.words, after=ends)
    alternatives = None
    if not rows.merged:
        alternatives = searched or by_model(predictor, found, features[0])
    if kind == "cross":
        title = f"{name}: {cut(text, TITLE)} → {cut(found.text, TITLE)}"
        return new_map(seen[kind], rows, source, title, options.top, alternatives)
    title = f"{name}, {kind}: {cut(found.text, TITLE)}"
    read = target_side(predictor, found, options.words, before=(BEGIN,))  # without the last that comes out
    return new_map(seen[kind], rows, read, title, options.top, alternatives)


def predicted(
    predictor: PairPredictor, text: str, options: TargetLookOptions
) -> tuple[Prediction, tuple[Considered, ...] | None]:
    """The target to look at and, where a beam wrote it, what the beam held when each of its tokens was chosen.

    The steps of a beam hold every hypothesis from its beginning, too much for a long target.
    """
    if options.target is not None:
        return predictor.force([text], [options.target])[0], None
    steps: list[list[Hypothesis]] = []
    for search in predictor.search(text, SearchOptions(longest=options.longest)):
        if search.length <= LONG:
            steps += search.considered()
    prediction = predictor.found(text, search)
    size = len(prediction.target_tokens)
    if predictor.recipe.decoding.beam == 1 or size > LONG:
        return prediction, None
    return prediction, tuple(considered(predictor.tokenizers.target, step) for step in steps[:size])


def considered(tokenizer: Tokenizer, hypotheses: list[Hypothesis]) -> Considered:
    """The texts of hypotheses, and their probabilities; no more than one, to which rounding may lead."""
    return tuple((written(tokenizer, each), min(1.0, math.exp(each.log_probability))) for each in hypotheses)


def written(tokenizer: Tokenizer, hypothesis: Hypothesis) -> str:
    """The text of a hypothesis, or its end, with <eos> where it ended."""
    text = tokenizer.decode(hypothesis.target)
    if len(text) > TAIL:
        text = ELLIPSIS + text[1 - TAIL :]
    return " ".join(filter(None, [text, END])) if hypothesis.ended else text


def by_model(
    predictor: PairPredictor, found: Prediction, features: Float[Tensor, "target width"]
) -> tuple[Considered, ...]:
    """What each token of a target might have been by the model itself."""
    size, out = len(found.target_tokens), collate([found.pair]).target_out
    assert out is not None
    tokens = out[0, :size].to(features.device)
    return model_alternatives(predictor.model, features[:size], tokens, predictor.tokenizers.target)


def source_side(predictor: PairPredictor, found: Prediction, words: bool) -> Side:
    """The source, <eos> at its end."""
    tokenizer, tokens = predictor.tokenizers.source, found.source_tokens[:-1]
    text = tokenizer.steps.apply(found.source)
    return word_side(tokenizer.kind, text, tokens, found.source_words[:-1], after=(END,), merge=words)


def target_side(predictor: PairPredictor, found: Prediction, words: bool, **special: Sequence[str]) -> Side:
    """The target, with special tokens before or after it."""
    size, kind = len(found.pair.target or ()), predictor.tokenizers.target.kind
    tokens, own = found.target_tokens[:size], found.target_words[:size]
    return word_side(kind, found.written, tokens, own, **special, merge=words)
