"""What `regard.load` gives for pairs: text in, prediction with its weights out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import EOS, Pair, collate
from regard.data.batches import plan
from regard.decoding import Hypothesis, Search, decode_all, forced_weights, score_targets, search_steps
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Recipe
from regard.run import Card
from regard.text import Encoded, Tokenizers

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

END = "<eos>"
NOTHING = Hypothesis((EOS,), 0.0, True)
TOKENS = 8192
"""Places of a batch on its longer side."""

WIDEST, LONGEST = 1000, 100_000
"""The widest beam and the longest target that can be asked for; the memory for more is hardly meant."""


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


class Options(TypedDict, total=False):
    """What `Predictor.predict` can be told, and describes."""

    beam: int | None
    nbest: int
    length_penalty: float | None
    longest: int | None
    return_weights: bool
    progress: Callable[[int], object] | None


class Predictor:
    """A trained model with its tokenizers."""

    def __init__(
        self, model: Seq2Seq, tokenizers: Tokenizers, recipe: Recipe, card: Card, device: str | torch.device = "cpu"
    ) -> None:
        self.model = model.to(device).eval()
        self.tokenizers, self.recipe, self.card, self.device = tokenizers, recipe, card, str(device)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        sides = f"{self.tokenizers.source.kind} to {self.tokenizers.target.kind}"
        return f"Predictor({self.name}, {sides}, {parameters:,} parameters, on {self.device})"

    @property
    def name(self) -> str:
        """The preset of the model."""
        return str(self.recipe.model["name"])

    @overload
    def predict(self, texts: str, **options: Unpack[Options]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, texts: Sequence[str], **options: Unpack[Options]) -> list[Prediction]: ...
    def predict(
        self,
        texts: Any,
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        longest: int | None = None,
        return_weights: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Prediction | list[Prediction]:
        """The best target for a source, or for each of several. An empty source has an empty target.

        Args:
            texts: One source or several.
            beam: Hypotheses kept at each step, 1 is greedy; that of the recipe unless told otherwise, and no less
                than `nbest`.
            nbest: How many targets to give for each source, as `alternatives`; fewer where there are no more, or
                where different tokens make the same text.
            length_penalty: 0 prefers short targets; that of the recipe unless told otherwise.
            longest: Tokens of a target at the most; twice those of its source and 50 more unless told otherwise.
            return_weights: Also give the attention of every target that is returned.
            progress: Told how many sources are done.
        """
        width, penalty = self._search_settings(beam, nbest, length_penalty, longest)
        if return_weights:
            self.check_attention()
        several = as_texts("predict", texts)
        sources = [self.tokenizers.source.encoded(text) for text in several]
        self._check_places(sources)
        found = decode_all(
            self.model,
            [Pair(source.ids) for text, source in zip(several, sources, strict=True) if text.strip()],
            width=width,
            nbest=nbest,
            length_penalty=penalty,
            longest=longest,
            device=self.device,
            progress=progress,
        )
        rest = iter(found)
        hypotheses = [next(rest) if text.strip() else [NOTHING] for text in several]
        predictions = [
            different([self._predicted(text, source, each) for each in best])
            for text, source, best in zip(several, sources, hypotheses, strict=True)
        ]
        finished = self._finished(predictions, return_weights)
        return finished[0] if isinstance(texts, str) else finished

    def search(
        self,
        text: str,
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        longest: int | None = None,
    ) -> Iterator[Search]:
        """The search that `predict` makes for one source that is not empty, after each of its steps."""
        width, penalty = self._search_settings(beam, nbest, length_penalty, longest)
        source = self.tokenizers.source.encoded(text)
        self._check_places([source])
        batch = collate([Pair(source.ids)]).to(self.device)
        penalty = penalty if width > 1 else 0.0  # a beam of one is greedy
        return search_steps(self.model, batch, width, nbest, penalty, longest=longest)

    def found(self, text: str, search: Search) -> Prediction:
        """The best target that a search for one source has found, which knows the others."""
        source = self.tokenizers.source.encoded(text)
        (hypotheses,) = search.results()
        predictions = different([self._predicted(text, source, each) for each in hypotheses])
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
        """Raise a `RegardError` if the model has no attention to show."""
        if not self.model.attended:
            raise RegardError(f"{self.name}: this model has no attention from target to source, so no weights to show")

    def _search_settings(
        self, beam: int | None, nbest: int, length_penalty: float | None, longest: int | None
    ) -> tuple[int, float]:
        """The width and the length penalty of a search: those of the recipe unless told otherwise."""
        usual = self.recipe.decoding
        width = max(usual.beam, nbest) if beam is None else beam
        check_search(width, nbest, longest)
        return width, usual.length_penalty if length_penalty is None else length_penalty

    def _check_places(self, sources: Sequence[Encoded]) -> None:
        """Raise a `RegardError` for a source with more tokens than the model has positions for."""
        most = self.model.most_places
        for number, source in enumerate(sources, start=1):
            if most is not None and len(source.ids) >= most:
                raise RegardError(f"source {number}: has {len(source.ids)} tokens; {self.name} reads up to {most - 1}")

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
        from regard.views.attention_map import AttentionMap

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


def as_texts(what: str, found: Any) -> list[str]:
    """One text or several as a list, or a `RegardError`."""
    if isinstance(found, str):
        return [found]
    if not isinstance(found, Iterable):
        raise RegardError(f"{what}: found {type(found).__name__}; a text or a list of texts is needed")
    texts = list(found)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise RegardError(f"{what}: text {number} is {text!r}; a text is needed")
    return texts


def check_search(beam: int, nbest: int, longest: int | None) -> None:
    """Raise a `RegardError` for a search that cannot be made."""
    for name, value, most in (("beam", beam, WIDEST), ("nbest", nbest, WIDEST), ("longest", longest, LONGEST)):
        if value is not None and not 1 <= value <= most:
            raise RegardError(f"predict: {name} is {value}; a number from 1 to {most} is needed")
    if nbest > beam:
        raise RegardError(f"predict: {nbest} best of a beam of {beam} are too many; set beam to {nbest} or more")


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
    return plan([(len(source) + 1, len(target or ()) + 1) for source, target in pairs], tokens=TOKENS).batches
