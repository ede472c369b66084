"""What `regard.load` gives: text in, prediction with its weights out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import EOS, Pair, collate
from regard.data.batches import plan
from regard.decoding import Hypothesis, decode_all, forced_weights, score_targets
from regard.decoding.settings import DecodingSettings
from regard.errors import RegardError
from regard.models import build
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Recipe, to_recipe
from regard.run import Card, Run
from regard.text import Tokenizers

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

END = "<eos>"
TOKENS = 8192
"""Places of a batch on its longer side."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """A target, how probable it is, and where the model looked while it wrote it.

    The tokens of both sides end in <eos> (the target's only if the model ended it), as
    the axes of the weights do.
    """

    source: str
    text: str
    written: str = field(repr=False)  # as the model wrote it, before it was made readable
    log_probability: float
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_words: tuple[int | None, ...] = field(repr=False)  # the word each token belongs to
    target_words: tuple[int | None, ...] = field(repr=False)
    weights: Float[Tensor, "layers heads target source"] | None = field(default=None, repr=False)
    alternatives: tuple[Prediction, ...] = field(default=(), repr=False)  # the n best, itself first


class Predictor:
    """A trained model with its tokenizers."""

    def __init__(
        self, model: Seq2Seq, tokenizers: Tokenizers, recipe: Recipe, card: Card, device: str | torch.device = "cpu"
    ) -> None:
        self.model = model.to(device).eval()
        self.tokenizers, self.recipe, self.card, self.device = tokenizers, recipe, card, str(device)

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        texts: str,
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        longest: int | None = None,
        return_weights: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Prediction: ...
    @overload
    def predict(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        longest: int | None = None,
        return_weights: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]: ...
    @torch.inference_mode()
    def predict(
        self,
        texts: str | Sequence[str],
        *,
        beam: int | None = None,
        nbest: int = 1,
        length_penalty: float | None = None,
        longest: int | None = None,
        return_weights: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Prediction | list[Prediction]:
        """The best target for a source, or for each of several. An empty source has an empty target.

        Args:
            texts: One source or several.
            beam: Hypotheses kept at each step, 1 is greedy; that of the recipe unless told otherwise.
            nbest: How many targets to give for each source, as `alternatives`.
            length_penalty: 0 prefers short targets; that of the recipe unless told otherwise.
            longest: Tokens of a target at the most.
            return_weights: Also give the attention of every target that is returned.
            progress: Told how many sources are done.
        """
        if isinstance(texts, str):
            return self.predict(
                [texts],
                beam=beam,
                nbest=nbest,
                length_penalty=length_penalty,
                longest=longest,
                return_weights=return_weights,
                progress=progress,
            )[0]
        usual: DecodingSettings = self.recipe.decoding
        beam = max(usual.beam, nbest) if beam is None else beam
        if nbest > beam:
            raise RegardError(f"predict: {nbest} best of a beam of {beam} are too many; set beam to {nbest} or more")
        sources = [tuple(ids) for ids in self.tokenizers.source.encode_all(texts)]
        found = decode_all(
            self.model,
            [Pair(source) for source in sources if source],
            width=beam,
            nbest=nbest,
            length_penalty=usual.length_penalty if length_penalty is None else length_penalty,
            longest=longest,
            device=self.device,
            progress=progress,
        )
        rest = iter(found)
        nothing = [Hypothesis((EOS,), 0.0, True)]
        hypotheses = [next(rest) if source else nothing for source in sources]
        return self._predictions(texts, sources, hypotheses, return_weights)

    @torch.inference_mode()
    def force(self, texts: Sequence[str], targets: Sequence[str], *, return_weights: bool = False) -> list[Prediction]:
        """Given targets as predictions: how probable the model finds them, and where it looks while it reads them."""
        if len(texts) != len(targets):
            raise RegardError(f"force: there are {len(texts)} sources and {len(targets)} targets; each needs one")
        sources = [tuple(ids) for ids in self.tokenizers.source.encode_all(texts)]
        wanted = [tuple(ids) for ids in self.tokenizers.target.encode_all(targets)]
        pairs = [Pair(source, target) for source, target in zip(sources, wanted, strict=True)]
        found = [0.0] * len(pairs)
        for places in batches_of(pairs):
            batch = collate([pairs[place] for place in places]).to(self.device)
            for place, value in zip(places, score_targets(self.model, batch), strict=True):
                found[place] = value
        hypotheses = [[Hypothesis((*target, EOS), value, True)] for target, value in zip(wanted, found, strict=True)]
        return self._predictions(texts, sources, hypotheses, return_weights)

    def _predictions(
        self,
        texts: Sequence[str],
        sources: Sequence[tuple[int, ...]],
        hypotheses: Sequence[Sequence[Hypothesis]],
        return_weights: bool,
    ) -> list[Prediction]:
        flat = [(text, source, each) for text, source, n in zip(texts, sources, hypotheses, strict=True) for each in n]
        seen = self._weights([(source, each) for _, source, each in flat]) if return_weights else [None] * len(flat)
        weights = iter(seen)
        found = []
        for text, source, several in zip(texts, sources, hypotheses, strict=True):
            best, *others = [self._prediction(text, source, each, next(weights)) for each in several]
            found.append(Prediction(**{**vars(best), "alternatives": (best, *others)}))
        return found

    def _prediction(
        self, text: str, source: tuple[int, ...], hypothesis: Hypothesis, weights: Tensor | None
    ) -> Prediction:
        ids = [token for token in hypothesis.tokens if token != EOS]
        end = (END,) if hypothesis.ended else ()
        mine, theirs = self.tokenizers.source, self.tokenizers.target
        return Prediction(
            source=text,
            text=theirs.decode(ids),
            written=theirs.written(ids),
            log_probability=hypothesis.log_probability,
            source_tokens=(*mine.tokens_of(source), END),
            target_tokens=(*theirs.tokens_of(ids), *end),
            source_words=(*mine.words_of(source), None),
            target_words=(*theirs.words_of(ids), *[None for _ in end]),
            weights=weights,
        )

    def _weights(self, written: Sequence[tuple[tuple[int, ...], Hypothesis]]) -> list[Tensor]:
        """The attention of each hypothesis, by one pass that reads it."""
        pairs = [Pair(source, [t for t in each.tokens if t != EOS]) for source, each in written]
        found: dict[int, Tensor] = {}
        for places in batches_of(pairs):
            whole = forced_weights(self.model, collate([pairs[place] for place in places]).to(self.device)).cpu()
            for row, place in enumerate(places):
                rows, columns = len(written[place][1].tokens), len(pairs[place].source) + 1
                found[place] = whole[row, :, :, :rows, :columns].float().clone()
        return [found[place] for place in range(len(pairs))]

    def attention_map(self, prediction: Prediction, *, words: bool = False) -> AttentionMap:
        """The weights of a prediction as a record that every view draws, by tokens or merged to words."""
        from regard.alignment import merge_words
        from regard.views.attention_map import AttentionMap

        if prediction.weights is None:
            raise RegardError("attention_map: the prediction has no weights; predict with return_weights=True")
        title = f"{self.card.get('model', '')}: {prediction.source} → {prediction.text}"
        if not words:
            return AttentionMap(
                prediction.target_tokens, prediction.source_tokens, prediction.weights.numpy(), title, "tokens"
            )
        merged = merge_words(prediction.weights.numpy(), prediction.source_words, prediction.target_words)
        columns = self.tokenizers.source.steps.apply(prediction.source).split()
        return AttentionMap(tuple(prediction.written.split()), tuple(columns), merged, title, "words")


def batches_of(pairs: Sequence[Pair]) -> Sequence[Sequence[int]]:
    """Pairs in batches of like length."""
    return plan([(len(source) + 1, len(target or ()) + 1) for source, target in pairs], tokens=TOKENS).batches


def load(path: str | Path, device: str | torch.device = "cpu") -> Predictor:
    """The trained model of a run folder.

    Example:
        >>> model = regard.load("runs/dates")
        >>> model.predict("vendredi 3 mars 2017").text
        '2017-03-03'
    """
    run = Run(Path(path))
    card = run.read_card()
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    run.check(run.tokenizer_file)
    tokenizers = Tokenizers.load(run.tokenizer_file)
    settings = {name: value for name, value in recipe.model.items() if name != "name"}
    model = build(
        recipe.model["name"], source_size=tokenizers.source.size, target_size=tokenizers.target.size, **settings
    )
    parameters = run.read_parameters()
    if {n: t.shape for n, t in parameters.items()} != {n: t.shape for n, t in model.state_dict().items()}:
        raise RegardError(f"{run.model_file}: does not hold the parameters that recipe.toml describes")
    model.load_state_dict(parameters)
    return Predictor(model, tokenizers, recipe, card, device)
