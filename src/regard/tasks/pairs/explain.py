"""The target of a source, explained by the words of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.alignment import as_array
from regard.batch import BOS, Pair, collate
from regard.decoding.steps import target_log_probabilities
from regard.errors import RegardError
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, by_unit, check_is_text, chosen, left_out, mean_weights
from regard.layers.embedding import Call
from regard.tasks.pairs.options import TargetOptions
from regard.text.units import units_of

if TYPE_CHECKING:
    from regard.tasks.pairs.predictor import PairPredictor


class PairSubject(Subject):
    """The target of a source, or one word of it, explained by the words of the source."""

    def __init__(self, predictor: PairPredictor, text: Any, options: TargetOptions) -> None:
        check_is_text(text)
        target, word = options.target, options.word
        found = predictor.predict(text) if target is None else predictor.force([text], [target])[0]
        source, written = predictor.tokenizers.source, predictor.tokenizers.target
        if not found.pair.source:
            raise RegardError("explain: the source has no words")
        self.units = units_of(source.kind, source.steps.apply(text), found.source_tokens[:-1], found.source_words)
        self.predictor, self.prediction, self.word = predictor, found, word
        self.words, self.size = tuple(unit.text for unit in self.units), len(found.pair.source) + 1
        own = found.target_tokens[: len(found.pair.target or ())]  # without <eos>
        self.targets = units_of(written.kind, found.written, own, found.target_words)
        self.places = list(range(len(found.target_tokens)))  # <eos> among them
        if word is not None:
            self.places = list(self.targets[chosen(word, self.targets, "of the target")].places)
        self.embedding = predictor.model.input_embedding
        self.without_attention = f"{predictor.name} has none from target to source"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        source, target = self.prediction.pair
        pairs = [Pair(left_out(source, self.units, out), target) for out in without]
        batch = collate(pairs).to(self.predictor.device)
        assert batch.target_out is not None
        found = target_log_probabilities(model, model.features(batch), batch.target_out)
        return found[:, self.places].sum(-1)

    def looks(self) -> dict[str, Look]:
        predictor, model = self.predictor, self.predictor.model
        if not model.attentions:
            return {}
        batch = collate([self.prediction.pair]).to(predictor.device)
        _, seen = predictor.watched(lambda: model.features(batch))
        across = mean_weights(seen["cross"]).mean(0)[self.places].mean(0)
        found = {ATTENTION: by_unit(across, self.units)}
        if "encoder" in seen:
            found[ROLLOUT] = by_unit(across @ rollout(mean_weights(seen["encoder"])), self.units)
        return found

    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        own = next(place for place, call in enumerate(calls) if not bool((call.asked == BOS).any()))
        found = numbers[own][0, :-1]  # without <eos>; both sides may share an embedding, but no source has <bos>
        if self.predictor.model.reverses_source:
            found = found.flip(0)
        return by_unit(as_array(found.double()), self.units).numbers.tolist()

    def described(self, log_probability: float) -> str:
        whole = f'the target "{self.prediction.text}"'
        named = whole if self.word is None else f'word {self.word}, "{self.targets[self.word].text}", of {whole}'
        return f"{named}, log-probability {log_probability:.2f}"
