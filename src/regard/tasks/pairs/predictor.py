"""PairPredictor: predict targets for sources, with attention weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack, overload

from regard.batch import EOS, Pair, collate
from regard.data.batches import plan_epoch
from regard.decoding import Hypothesis, decode_all, forced_weights, generate_probabilities, score_targets
from regard.decoding.beam import BeamSearch, check_beam, iter_beam_search
from regard.decoding.steps import resolve_limits
from regard.errors import RegardError
from regard.tasks.pairs.batches import compute_lengths
from regard.tasks.pairs.encode import EncodedSource, SourceEncoder
from regard.tasks.pairs.options import PairExplainOptions, SearchOptions
from regard.tasks.pairs.prediction import (
    Prediction,
    add_log_probability,
    build_prediction,
    decode_prediction,
    drop_duplicates,
)
from regard.tasks.predictor import PartialAnswer, PredictOptions, Predictor, Request, as_texts
from regard.tasks.progress import Progress
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.attribution.methods import Subject
    from regard.maps.options import TargetLookOptions

EMPTY_HYPOTHESIS = Hypothesis((EOS,), 0.0, True)
TOKENS = 8192
"""Batch size in tokens, padding included, on the longer side."""


class PairPredictOptions(PredictOptions, total=False):
    """Keyword arguments of `PairPredictor.predict`."""

    beam: int | None
    nbest: int
    length_penalty: float | None
    max_length: int | None


class PairPredictor(Predictor[Prediction]):
    """A trained sequence-to-sequence model.

    Example:
        >>> model = regard.load("runs/dates")
        >>> model.predict("vendredi 3 mars 2017").text
        '2017-03-03'
    """

    task_name = "pairs"

    @property
    def summary(self) -> str:
        return f"{self.tokenizers.source.description} to {self.tokenizers.target.description}"

    @overload
    def predict(self, texts: str, **options: Unpack[PairPredictOptions]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, texts: Sequence[str], **options: Unpack[PairPredictOptions]) -> list[Prediction]: ...
    def predict(
        self,
        texts: Any,
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        max_length: int | None = None,
        return_weights: bool = False,
        progress: Progress | None = None,
    ) -> Prediction | list[Prediction]:
        """Predict the best target for a source, or for each of several sources.

        Args:
            texts: One source or a sequence of sources; an empty source has an empty target.
            beam: The beam width, 1 for greedy search; taken from the recipe by default, and at least `nbest`.
            nbest: How many targets to return for each source, in `alternatives`; there may be fewer.
            length_penalty: 0 favors short targets; taken from the recipe by default.
            max_length: The maximum number of target tokens; by default 50 more than twice the source tokens.
            return_weights: Also return the attention weights of every target.
            progress: Called with the number of sources done.

        Returns:
            A prediction for one source, a list of predictions for a sequence of sources.

        Example:
            >>> regard.load("runs/dates").predict("3 mars 2017", beam=5).text
            '2017-03-03'
        """
        search = SearchOptions(beam=beam, nbest=nbest, length_penalty=length_penalty, max_length=max_length)
        self.check(search)
        requests = [Request(text, search) for text in as_texts("predict", texts)]
        predictions = self.answer(requests, return_weights=return_weights, progress=progress)
        return predictions[0] if isinstance(texts, str) else predictions

    def build_input(self, text: str, **further: Any) -> str:
        self.tokenizers.source.check_text(text)
        return text

    def check(self, options: SearchOptions) -> None:
        defaults = self.recipe.decoding
        options.check_search(defaults.beam)
        check_beam(options.resolve_beam(defaults.beam), options.nbest, self._get_length_penalty(options))

    def _get_length_penalty(self, options: SearchOptions) -> float:
        """Return the length penalty of the options, or of the recipe."""
        return self.recipe.decoding.length_penalty if options.length_penalty is None else options.length_penalty

    def _get_ranking_penalty(self, options: SearchOptions) -> float:
        """Return the length penalty that ranks hypotheses; none for a beam of one, which is greedy."""
        width = options.resolve_beam(self.recipe.decoding.beam)
        return self._get_length_penalty(options) if width > 1 else 0.0

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Prediction]:
        if return_weights:
            self.check_attention()
        if not requests:
            return []
        options: SearchOptions = requests[0].options
        self.check(options)
        sources = [self.encoder.encode(request.input) for request in requests]
        self._check_lengths(sources)
        best = decode_all(
            self.model,
            [source.pair for source in sources if source.text.strip()],
            width=options.resolve_beam(self.recipe.decoding.beam),
            nbest=options.nbest,
            length_penalty=self._get_length_penalty(options),
            max_length=options.max_length,
            device=self.device,
            progress=progress,
        )
        hypotheses, length_penalty = iter(best), self._get_ranking_penalty(options)
        predictions = [
            self._build_predictions(
                source, next(hypotheses) if source.text.strip() else [EMPTY_HYPOTHESIS], length_penalty
            )
            for source in sources
        ]
        return self._attach_alternatives(predictions, return_weights)

    @property
    def default_options(self) -> dict[str, Any]:
        return {"beam": self.recipe.decoding.beam, "length_penalty": self.recipe.decoding.length_penalty}

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """Return the options; None for a streamed request, whose beam is shown step by step."""
        return None if streamed else request.options

    def limit_tokens(self, options: Any, input_: str, max_tokens: int) -> Any:
        batch = collate([self.encoder.encode(input_).pair])
        default_limit = int(resolve_limits(self.model, batch, None))
        return (
            replace(options, max_length=max_tokens)
            if options.max_length is None and default_limit > max_tokens
            else options
        )

    def answer_in_steps(
        self, requests: Sequence[Request], *, streamed: bool = False
    ) -> Iterator[list[Prediction | PartialAnswer | None]]:
        """Yield the beam of a streamed request after every step, then its answer; otherwise all answers at once."""
        request, options = requests[0], requests[0].options
        if not streamed or not request.input.strip():
            yield list(self.answer(requests))
            return
        tokenizer = self.encoder.encode(request.input).target_tokenizer
        for search in self.search(request.input, options):
            hypotheses = [
                (tokenizer.decode(hypothesis.target), hypothesis.log_probability) for hypothesis in search.get_live()[0]
            ]
            yield [PartialAnswer({"beam": [{"text": text, "log_probability": value} for text, value in hypotheses]})]
        yield [self.finish_search(request.input, search, options)]

    def search(self, text: str, options: SearchOptions) -> Iterator[BeamSearch]:
        """Yield the search of `predict` for one source, which must not be empty, after each step."""
        self.check(options)
        source, width = self.encoder.encode(text), options.resolve_beam(self.recipe.decoding.beam)
        self._check_lengths([source])
        return iter_beam_search(
            self.model,
            collate([source.pair]).to(self.device),
            width,
            options.nbest,
            self._get_ranking_penalty(options),
            max_length=options.max_length,
        )

    def finish_search(self, text: str, search: BeamSearch, options: SearchOptions) -> Prediction:
        """Return the best target of a finished search, with the others as its alternatives."""
        source, length_penalty = self.encoder.encode(text), self._get_ranking_penalty(options)
        predictions = self._build_predictions(source, search.get_results()[0], length_penalty)
        return self._attach_alternatives([predictions], return_weights=False)[0]

    def force(self, texts: Sequence[str], targets: Sequence[str], *, return_weights: bool = False) -> list[Prediction]:
        """Score given targets: return them as predictions with log-probabilities and, on request, weights.

        Args:
            texts: The sources.
            targets: One target for each source.
            return_weights: Also return the attention weights.
        """
        texts, targets = as_texts("force", texts), as_texts("force", targets)
        if len(texts) != len(targets):
            raise RegardError(
                f"force: expected one target per source, got {len(texts)} sources and {len(targets)} targets"
            )
        if return_weights:
            self.check_attention()
        sources, steps = map(self.encoder.encode, texts), self.tokenizers.target.steps
        predictions = [
            build_prediction(source, target, steps.prepare(target), source.encode_target(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        values = self._compute_log_probabilities([prediction.pair for prediction in predictions])
        length_penalty = self.recipe.decoding.length_penalty
        scored = [
            [add_log_probability(prediction, value, length_penalty)]
            for prediction, value in zip(predictions, values, strict=True)
        ]
        return self._attach_alternatives(scored, return_weights)

    def check_attention(self) -> None:
        if not self.model.attentions:
            raise RegardError(f"{self.name} has no attention from target to source")

    @cached_property
    def encoder(self) -> SourceEncoder:
        """What encodes sources for the model."""
        return SourceEncoder.of(self.tokenizers, copies=self.model.copies)

    def _check_lengths(self, sources: Sequence[EncodedSource]) -> None:
        """Raise a `RegardError` for a source with more tokens than the model has positions."""
        max_positions = self.model.max_length
        for index, source in enumerate(sources, start=1):
            if max_positions is not None and len(source.tokens.ids) >= max_positions:
                raise RegardError(
                    f"source {index} has {len(source.tokens.ids)} tokens; {self.name} reads at most {max_positions - 1}"
                )

    def _build_predictions(
        self, source: EncodedSource, hypotheses: Sequence[Hypothesis], length_penalty: float
    ) -> list[Prediction]:
        """Return the predictions of some hypotheses, without duplicates."""
        predictions = [decode_prediction(source, hypothesis) for hypothesis in hypotheses]
        pairs = zip(predictions, hypotheses, strict=True)
        return drop_duplicates([add_log_probability(p, h.log_probability, length_penalty) for p, h in pairs])

    def _compute_log_probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        scores: dict[int, float] = {}
        for indices in plan_pair_batches(pairs):
            batch = collate([pairs[index] for index in indices]).to(self.device)
            scores.update(zip(indices, score_targets(self.model, batch), strict=True))
        return [scores[index] for index in range(len(pairs))]

    def _attach_alternatives(
        self, predictions: Sequence[Sequence[Prediction]], return_weights: bool
    ) -> list[Prediction]:
        """Return the best prediction for each source, with all of them as its alternatives."""
        flat = self._add_generated([prediction for group in predictions for prediction in group])
        flat_iterator = iter(self._add_weights(flat) if return_weights else flat)
        groups = [tuple(next(flat_iterator) for _ in group) for group in predictions]
        return [replace(group[0], alternatives=group) for group in groups]

    def _add_generated(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the predictions with the probability of each step to generate its token, if the model copies.

        It is that of the first member of an ensemble, as the attention is.
        """
        if not self.model.copies:
            return list(predictions)
        model = self.model.members[0] if self.is_ensemble else self.model
        pairs = [prediction.pair for prediction in predictions]
        by_index: dict[int, Prediction] = {}
        for indices in plan_pair_batches(pairs):
            gates = generate_probabilities(model, collate([pairs[index] for index in indices]).to(self.device))
            for row, index in zip(gates.tolist(), indices, strict=True):
                prediction = predictions[index]
                by_index[index] = replace(prediction, generated=tuple(row[: len(prediction.target_tokens)]))
        return [by_index[index] for index in range(len(pairs))]

    def _add_weights(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the predictions with their attention weights, from one forward pass over each target."""
        pairs = [prediction.pair for prediction in predictions]
        by_index: dict[int, Prediction] = {}
        for indices in plan_pair_batches(pairs):
            weights = forced_weights(self.model, collate([pairs[index] for index in indices]).to(self.device)).cpu()
            for row, index in enumerate(indices):
                prediction = predictions[index]
                rows, columns = len(prediction.target_tokens), len(prediction.source_tokens)
                by_index[index] = replace(prediction, weights=weights[row, :, :, :rows, :columns].float().clone())
        return [by_index[index] for index in range(len(pairs))]

    def attention_map(self, prediction: Prediction, *, words: bool = False) -> AttentionMap:
        """Return the attention weights of a prediction as a map, by tokens or merged into words.

        Args:
            prediction: A prediction made with `return_weights=True`.
            words: Merge subwords into words.
        """
        from regard.alignment import merge_words

        if not isinstance(prediction, Prediction):
            raise RegardError(f"attention_map: expected a Prediction, got {type(prediction).__name__}")
        if prediction.weights is None:
            raise RegardError("attention_map: the prediction has no weights; pass return_weights=True to predict")
        weights, title = prediction.weights.numpy(), f"{self.name}: {prediction.source} → {prediction.text}"
        if not words:
            return AttentionMap(prediction.target_tokens, prediction.source_tokens, weights, title, "tokens")
        rows, columns = prediction.raw_text.split(), self.tokenizers.source.steps.prepare(prediction.source).split()
        for side, words_of_side in (("source", columns), ("prediction", rows)):
            if not words_of_side:
                raise RegardError(f"attention_map: the {side} has no words; pass words=False")
        merged = merge_words(weights, prediction.source_words, prediction.target_words)
        return AttentionMap(tuple(rows), tuple(columns), merged, title, "words")

    def build_map(self, text: str, options: TargetLookOptions) -> AttentionMap:
        from regard.tasks.pairs.look import look_at_pair

        return look_at_pair(self, text, options)

    def build_subject(self, text: Any, options: PairExplainOptions) -> Subject:
        from regard.tasks.pairs.explain import PairSubject

        return PairSubject(self, text, options)


def plan_pair_batches(pairs: Sequence[Pair]) -> Sequence[Sequence[int]]:
    """Group pairs of similar length into batches."""
    return plan_epoch(compute_lengths(pairs), batch_tokens=TOKENS).batches
