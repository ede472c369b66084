"""Where a language model looks back from each token that it reads, to write the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from regard.batch import BOS
from regard.decoding.generate import check_text
from regard.looking.alternatives import model_alternatives
from regard.looking.maps import TITLE, new_map
from regard.looking.options import LookOptions
from regard.looking.sides import word_side
from regard.text.tokenizer import BEGIN
from regard.views.attention_map import AttentionMap
from regard.views.display import cut

if TYPE_CHECKING:
    from regard.tasks.text.predictor import TextPredictor


def look_at_text(predictor: TextPredictor, text: str, options: LookOptions) -> AttentionMap:
    """As `regard.look` describes it."""
    predictor.check_attention()
    tokenizer, model = predictor.tokenizer, predictor.model
    kind = options.kind_of(predictor.name, model.attentions)
    encoded = tokenizer.encoded(text)
    tokens = torch.tensor([[BOS, *encoded.ids]], device=predictor.device)
    check_text(model, tokens, "look")
    (features, _), seen = predictor.watched(lambda: model.read(tokens))
    written = tokenizer.steps.apply(text)
    side = word_side(tokenizer.kind, written, encoded.tokens, encoded.words, before=(BEGIN,), merge=options.words)
    alternatives = None
    if not side.merged:
        alternatives = ((), *model_alternatives(model, features[0, :-1], tokens[0, 1:], tokenizer))
    return new_map(seen[kind], side, side, f"{predictor.name}: {cut(text, TITLE)}", options.top, alternatives)
