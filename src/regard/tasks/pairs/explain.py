"""Explain a target by the words of its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.alignment import to_numpy
from regard.attribution.explanation import ATTENTION, ROLLOUT, rollout
from regard.attribution.methods import (
    AttentionShares,
    Subject,
    check_is_text,
    check_word_index,
    drop_unit,
    mean_weights,
    sum_by_unit,
)
from regard.batch import BOS, UNKNOWN, Pair, collate
from regard.decoding.steps import target_log_probabilities
from regard.errors import RegardError
from regard.layers.embedding import EmbeddingCall
from regard.tasks.pairs.options import PairExplainOptions
from regard.text.units import TextUnit, get_unit_name, split_into_units

if TYPE_CHECKING:
    from regard.tasks.pairs.predictor import PairPredictor


class PairSubject(Subject):
    """A target, or one word of it, to explain by the words of its source."""

    def __init__(self, predictor: PairPredictor, text: Any, options: PairExplainOptions) -> None:
        check_is_text(text)
        target, word = options.target, options.word
        prediction = predictor.predict(text) if target is None else predictor.force([text], [target])[0]
        source_tokenizer, target_tokenizer = predictor.tokenizers.source, predictor.tokenizers.target
        if not prediction.pair.source:
            raise RegardError("explain: the source is empty")
        self.units = split_into_units(
            source_tokenizer,
            source_tokenizer.steps.prepare(text),
            prediction.source_tokens[:-1],
            prediction.source_words,
        )
        self.predictor, self.prediction, self.word = predictor, prediction, word
        self.unit, self.target_unit = get_unit_name(source_tokenizer.kind), get_unit_name(target_tokenizer.kind)
        self.words, self.size = tuple(unit.text for unit in self.units), len(prediction.pair.source) + 1
        target_tokens = prediction.target_tokens[: len(prediction.pair.target or ())]  # without <eos>
        self.targets = split_into_units(target_tokenizer, prediction.raw_text, target_tokens, prediction.target_words)
        self.target_positions = list(range(len(prediction.target_tokens)))  # including <eos>
        if word is not None:
            index = check_word_index(word, self.targets, self.target_unit, "of the target")
            self.target_positions = list(self.targets[index].token_indices)
        self.embedding = predictor.model.input_embedding
        self.without_attention = f"{predictor.name} has no attention from target to source"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        pairs = [drop_source_unit(self.prediction.pair, self.units, omitted) for omitted in without]
        batch = collate(pairs).to(self.predictor.device)
        assert batch.target_out is not None
        log_probabilities = target_log_probabilities(model, model.features(batch), batch.target_out)
        return log_probabilities[:, self.target_positions].sum(-1)

    def compute_attention(self) -> dict[str, AttentionShares]:
        predictor, model = self.predictor, self.predictor.model
        if not model.attentions:
            return {}
        batch = collate([self.prediction.pair]).to(predictor.device)
        _, weights = predictor.run_watched(lambda: model.features(batch))
        across = mean_weights(weights["cross"]).mean(0)[self.target_positions].mean(0)
        looks = {ATTENTION: sum_by_unit(across, self.units)}
        if "encoder" in weights:
            looks[ROLLOUT] = sum_by_unit(across @ rollout(mean_weights(weights["encoder"])), self.units)
        return looks

    def merge_by_word(self, calls: Sequence[EmbeddingCall], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        # the two sides may share an embedding, but only the target has <bos>
        source_call = next(index for index, call in enumerate(calls) if not bool((call.inputs == BOS).any()))
        values = numbers[source_call][0, :-1]  # without <eos>
        if self.predictor.model.reverses_source:
            values = values.flip(0)
        return sum_by_unit(to_numpy(values.double()), self.units).shares.tolist()

    def describe(self, log_probability: float) -> str:
        whole = f'the target "{self.prediction.text}"'
        if self.word is None:
            return f"{whole}, log-probability {log_probability:.2f}"
        target_label = f'{self.target_unit} {self.word}, "{self.targets[self.word].text}", of {whole}'
        return f"{target_label}, log-probability {log_probability:.2f}"


def drop_source_unit(pair: Pair, units: Sequence[TextUnit], index: int | None) -> Pair:
    """Return a pair without the source tokens of one unit; what could only be copied from them becomes unknown."""
    source = drop_unit(pair.source, units, index)
    if pair.copy_ids is None or pair.target is None:
        return Pair(source, pair.target)
    copy_ids = drop_unit(pair.copy_ids, units, index)
    lost = set(pair.copy_ids) - set(copy_ids)
    limit = max(copy_ids, default=0)
    target = [UNKNOWN if token in lost and token > limit else token for token in pair.target]
    return Pair(source, target, copy_ids)
