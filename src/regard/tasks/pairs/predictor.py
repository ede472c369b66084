"""PairPredictor: sources in, predictions with their weights out."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from jaxtyping import Float
from torch import Tensor

from regard.batch import EOS, Pair, collate
from regard.data.batches import plan
from regard.decoding import Hypothesis, decode_all, forced_weights, score_targets
from regard.decoding.beam import Search, check_beam, search_steps
from regard.decoding.steps import limits_of
from regard.errors import RegardError
from regard.tasks.actions.predict import in_line
from regard.tasks.pairs.batches import lengths_of
from regard.tasks.pairs.options import SearchOptions, TargetOptions
from regard.tasks.pairs.record import TargetRecord
from regard.tasks.predictor import Answering, Part, Predictor, Request, as_record, as_texts
from regard.tasks.progress import Progress
from regard.text import Encoded
from regard.text.tokenizer import END
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.explaining.methods import Subject
    from regard.looking.options import TargetLookOptions
    from regard.tasks.pairs.actions import PredictPairs

NOTHING = Hypothesis((EOS,), 0.0, True)
TOKENS = 8192
"""Places of a batch on its longer side."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """A target, how probable it is, and where the model looked while it wrote it.

    The tokens of both sides end in <eos> (the target's only if the model ended it), as
    the axes of the weights do. A source token that the model does not know is shown as
    it stands in the text.
    """

    source: str
    text: str
    written: str = field(repr=False)  # as the model wrote it, before it was made readable
    log_probability: float
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_words: tuple[int | None, ...] = field(repr=False)  # the word each token belongs to
    target_words: tuple[int | None, ...] = field(repr=False)
    pair: Pair = field(repr=False)  # both sides as numbers, without <eos>
    weights: Float[Tensor, "layers heads target source"] | None = field(default=None, repr=False)
    alternatives: tuple[Prediction, ...] = field(default=(), repr=False)  # the n best, itself first

    def record(self) -> dict[str, Any]:
        """The best target, and all that were asked for, itself first."""
        targets = [as_record(each, TargetRecord) for each in self.alternatives]
        return {"source": self.source, **targets[0], "alternatives": targets}

    def lines(self, options: PredictPairs) -> list[str]:
        """As many lines as targets were asked for, so that it is known which belong to which source."""
        targets = [(each.log_probability, in_line(each.text)) for each in self.alternatives]
        targets += [(float("-inf"), "")] * (options.nbest - len(targets))
        return [f"{value:.4f}\t{text}" if options.log_probabilities else text for value, text in targets]


class Options(Answering, total=False):
    """What `PairPredictor.predict` can be told, and describes."""

    beam: int | None
    nbest: int
    length_penalty: float | None
    longest: int | None


class PairPredictor(Predictor[Prediction]):
    """Answers a source by a target."""

    task_name = "pairs"

    @property
    def summary(self) -> str:
        return f"{self.tokenizers.source.kind} to {self.tokenizers.target.kind}"

    @overload
    def predict(self, texts: str, **options: Unpack[Options]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, texts: Sequence[str], **options: Unpack[Options]) -> list[Prediction]: ...
    def predict(
        self, texts: Any, *, return_weights: bool = False, progress: Progress | None = None, **options: Any
    ) -> Prediction | list[Prediction]:
        """The best target for a source, or for each of several. An empty source has an empty target.

        Args:
            texts: One source or several.
            return_weights: Also give the attention of every target that is returned.
            progress: Told how many sources are done.
            options: `beam`: hypotheses kept at each step, 1 is greedy; that of the recipe unless told otherwise, and
                no less than `nbest`. `nbest`: how many targets to give for each source, as `alternatives`; fewer where
                there are no more, or where different tokens make the same text. `length_penalty`: 0 prefers short
                targets; that of the recipe unless told otherwise. `longest`: tokens of a target at the most; twice
                those of its source and 50 more unless told otherwise.
        """
        search = SearchOptions(**options)
        self.check(search)
        requests = [Request(text, search) for text in as_texts("predict", texts)]
        predictions = self.answer(requests, return_weights=return_weights, progress=progress)
        return predictions[0] if isinstance(texts, str) else predictions

    def subject(self, text: str, **further: Any) -> str:
        return text

    def check(self, options: SearchOptions) -> None:
        usual = self.recipe.decoding
        options.check_search(usual.beam)
        check_beam(options.width(usual.beam), options.nbest, self._penalty(options))

    def _penalty(self, options: SearchOptions) -> float:
        """The length penalty: that of the recipe unless it is set."""
        return self.recipe.decoding.length_penalty if options.length_penalty is None else options.length_penalty

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Prediction]:
        if return_weights:
            self.check_attention()
        if not requests:
            return []
        options: SearchOptions = requests[0].options
        self.check(options)
        texts = [request.subject for request in requests]
        sources = [self.tokenizers.source.encoded(text) for text in texts]
        self._check_places(sources)
        best = decode_all(
            self.model,
            [Pair(source.ids) for text, source in zip(texts, sources, strict=True) if text.strip()],
            width=options.width(self.recipe.decoding.beam),
            nbest=options.nbest,
            length_penalty=self._penalty(options),
            longest=options.longest,
            device=self.device,
            progress=progress,
        )
        rest = iter(best)
        predictions = [
            self._different(text, source, next(rest) if text.strip() else [NOTHING])
            for text, source in zip(texts, sources, strict=True)
        ]
        return self._finished(predictions, return_weights)

    @property
    def defaults(self) -> dict[str, Any]:
        return {"beam": self.recipe.decoding.beam, "length_penalty": self.recipe.decoding.length_penalty}

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """A beam that is shown while it grows is that of one source."""
        return None if streamed else request.options

    def limited(self, options: Any, subject: str, most_tokens: int) -> Any:
        batch = collate([Pair(self.tokenizers.source.encode(subject))])
        usual = int(limits_of(self.model, batch, None))
        return replace(options, longest=most_tokens) if options.longest is None and usual > most_tokens else options

    def steps(self, requests: Sequence[Request], *, streamed: bool = False) -> Iterator[list[Prediction | Part | None]]:
        """The beam of one source after every step, and the answer that it has found; or all answers at once."""
        request, options = requests[0], requests[0].options
        if not streamed or not request.subject.strip():
            yield list(self.answer(requests))
            return
        for search in self.search(request.subject, options):
            live = [(self.tokenizers.target.decode(each.target), each.log_probability) for each in search.alive()[0]]
            yield [Part({"beam": [{"text": text, "log_probability": value} for text, value in live]})]
        yield [self.found(request.subject, search)]

    def search(self, text: str, options: SearchOptions) -> Iterator[Search]:
        """The search that `predict` makes for one source that is not empty, after each of its steps."""
        self.check(options)
        source, width = self.tokenizers.source.encoded(text), options.width(self.recipe.decoding.beam)
        self._check_places([source])
        return search_steps(
            self.model,
            collate([Pair(source.ids)]).to(self.device),
            width,
            options.nbest,
            self._penalty(options) if width > 1 else 0.0,  # a beam of one is greedy
            longest=options.longest,
        )

    def found(self, text: str, search: Search) -> Prediction:
        """The best target that a search for one source has found, which knows the others."""
        predictions = self._different(text, self.tokenizers.source.encoded(text), search.results()[0])
        return self._finished([predictions], return_weights=False)[0]

    def force(self, texts: Sequence[str], targets: Sequence[str], *, return_weights: bool = False) -> list[Prediction]:
        """Given targets as predictions: how probable the model finds them, and where it looks while it reads them."""
        texts, targets = as_texts("force", texts), as_texts("force", targets)
        if len(texts) != len(targets):
            raise RegardError(f"force: there are {len(texts)} sources and {len(targets)} targets; each needs one")
        if return_weights:
            self.check_attention()
        source, target = self.tokenizers.source, self.tokenizers.target
        found = [
            new_prediction(text, source.encoded(text), wanted, target.steps.apply(wanted), target.encoded(wanted))
            for text, wanted in zip(texts, targets, strict=True)
        ]
        values = self._log_probabilities([prediction.pair for prediction in found])
        scored = [[replace(each, log_probability=value)] for each, value in zip(found, values, strict=True)]
        return self._finished(scored, return_weights)

    def check_attention(self) -> None:
        if not self.model.attentions:
            raise RegardError(f"{self.name}: this model has no attention from target to source, so no weights to show")

    def _check_places(self, sources: Sequence[Encoded]) -> None:
        """Raise a `RegardError` for a source with more tokens than the model has positions for."""
        most = self.model.most_places
        for number, source in enumerate(sources, start=1):
            if most is not None and len(source.ids) >= most:
                raise RegardError(f"source {number}: has {len(source.ids)} tokens; {self.name} reads up to {most - 1}")

    def _different(self, text: str, source: Encoded, hypotheses: Sequence[Hypothesis]) -> list[Prediction]:
        """The predictions of some hypotheses, without repeats."""
        return different([self._predicted(text, source, hypothesis) for hypothesis in hypotheses])

    def _predicted(self, text: str, source: Encoded, hypothesis: Hypothesis) -> Prediction:
        tokenizer = self.tokenizers.target
        ids = [token for token in hypothesis.tokens if token != EOS]
        target = Encoded(ids, tokenizer.tokens_of(ids), tokenizer.words_of(ids))
        found = new_prediction(
            text, source, tokenizer.decode(ids), tokenizer.written(ids), target, ended=hypothesis.ended
        )
        return replace(found, log_probability=hypothesis.log_probability)

    def _log_probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        found: dict[int, float] = {}
        for places in batches_of(pairs):
            batch = collate([pairs[place] for place in places]).to(self.device)
            found.update(zip(places, score_targets(self.model, batch), strict=True))
        return [found[place] for place in range(len(pairs))]

    def _finished(self, predictions: Sequence[Sequence[Prediction]], return_weights: bool) -> list[Prediction]:
        """The best prediction for each source, which knows the others; each with its weights if these are wanted."""
        flat = [prediction for several in predictions for prediction in several]
        found = iter(self._with_weights(flat) if return_weights else flat)
        kept = [tuple(next(found) for _ in several) for several in predictions]
        return [replace(several[0], alternatives=several) for several in kept]

    def _with_weights(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Each with its attention, by one pass that reads what was written."""
        pairs = [prediction.pair for prediction in predictions]
        found: dict[int, Prediction] = {}
        for places in batches_of(pairs):
            whole = forced_weights(self.model, collate([pairs[place] for place in places]).to(self.device)).cpu()
            for row, place in enumerate(places):
                prediction = predictions[place]
                rows, columns = len(prediction.target_tokens), len(prediction.source_tokens)
                found[place] = replace(prediction, weights=whole[row, :, :, :rows, :columns].float().clone())
        return [found[place] for place in range(len(pairs))]

    def attention_map(self, prediction: Prediction, *, words: bool = False) -> AttentionMap:
        """The weights of a prediction as a record that every view draws, by tokens or merged to words."""
        from regard.alignment import merge_words

        if not isinstance(prediction, Prediction):
            raise RegardError(f"attention_map: found {type(prediction).__name__}; one Prediction is needed")
        if prediction.weights is None:
            raise RegardError("attention_map: the prediction has no weights; predict with return_weights=True")
        weights, title = prediction.weights.numpy(), f"{self.name}: {prediction.source} → {prediction.text}"
        if not words:
            return AttentionMap(prediction.target_tokens, prediction.source_tokens, weights, title, "tokens")
        rows, columns = prediction.written.split(), self.tokenizers.source.steps.apply(prediction.source).split()
        for side, found in (("source", columns), ("prediction", rows)):
            if not found:
                raise RegardError(f"attention_map: the {side} has no words; show it by tokens")
        merged = merge_words(weights, prediction.source_words, prediction.target_words)
        return AttentionMap(tuple(rows), tuple(columns), merged, title, "words")

    def look(self, text: str, options: TargetLookOptions) -> AttentionMap:
        from regard.tasks.pairs.look import look_at_pair

        return look_at_pair(self, text, options)

    def explain(self, text: Any, options: TargetOptions) -> Subject:
        from regard.tasks.pairs.explain import PairSubject

        return PairSubject(self, text, options)


def new_prediction(
    text: str, source: Encoded, readable: str, written: str, target: Encoded, *, ended: bool = True
) -> Prediction:
    """A prediction of which neither probability nor weights are known yet."""
    return Prediction(
        source=text,
        text=readable,
        written=written,
        log_probability=0.0,
        source_tokens=(*source.tokens, END),
        target_tokens=(*target.tokens, END) if ended else tuple(target.tokens),
        source_words=(*source.words, None),
        target_words=(*target.words, None) if ended else tuple(target.words),
        pair=Pair(source.ids, target.ids),
    )


def different(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Those whose text was not given before: different tokens may make the same text."""
    found: dict[str, Prediction] = {}
    for each in predictions:
        found.setdefault(each.text, each)
    return list(found.values())


def batches_of(pairs: Sequence[Pair]) -> Sequence[Sequence[int]]:
    """Pairs in batches of like length."""
    return plan(lengths_of(pairs), tokens=TOKENS).batches
