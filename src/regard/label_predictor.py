"""What `regard.load` gives for labels and tags: a text in, its labels or tags out, and the words that mattered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.data.batches import plan
from regard.data.label_batches import label_batch, tag_batch
from regard.data.labelled import Labelled
from regard.data.tagged import Tagged
from regard.errors import RegardError
from regard.models.attentive_classifier import AttentiveClassifier
from regard.models.attentive_tagger import AttentiveTagger
from regard.recipe import Recipe
from regard.run import Card
from regard.schemes import Span, spans_of
from regard.sentences import LabelBatch, Sentences
from regard.text.lexicon import Lexicon, words_of

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

EXAMPLES, TOKENS = 256, 8192
"""Of a batch: texts to label, and words to tag."""

Progress = Callable[[int], object]


class Ranked(NamedTuple):
    """A label and how probable it is."""

    label: str
    probability: float


@dataclass(frozen=True, eq=False)
class Labelling:
    """The labels of a text, and how much each of its words mattered.

    Weights are those of the attention that made one vector of the words, the mean over its
    queries and heads. They sum to one, unless the model was trained with the normaliser none.
    """

    text: str
    labels: tuple[str, ...]  # one; or those, none among them, that are at least as probable as the threshold
    ranked: tuple[Ranked, ...]  # the most probable labels: these, and as many as were asked for
    words: tuple[str, ...]
    weights: tuple[float, ...] | None = field(default=None, repr=False)
    second_words: tuple[str, ...] | None = field(default=None, repr=False)  # of the second text of a pair
    second_weights: tuple[float, ...] | None = field(default=None, repr=False)
    context_weights: tuple[float, ...] | None = field(default=None, repr=False)  # of the texts before, oldest first


@dataclass(frozen=True, eq=False)
class Tagging:
    """The tags of a sentence, how probable each is, and where its words looked."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # of each tag, whatever the others are
    spans: tuple[Span, ...]  # what the tags mark; nothing where they mark no spans
    weights: Float[Tensor, "layers heads words words"] | None = field(default=None, repr=False)


class LabelOptions(TypedDict, total=False):
    """What `LabelPredictor.predict` can be told, and describes."""

    second: str | Sequence[str] | None
    context: Sequence[Any] | None
    nbest: int
    threshold: float | None
    return_weights: bool
    progress: Progress | None


class TagOptions(TypedDict, total=False):
    """What `TagPredictor.predict` can be told, and describes."""

    return_weights: bool
    progress: Progress | None


class LabelPredictor:
    """A trained classifier with its words and labels."""

    def __init__(
        self,
        model: AttentiveClassifier,
        lexicon: Lexicon,
        recipe: Recipe,
        card: Card,
        device: str | torch.device = "cpu",
    ) -> None:
        self.model = model.to(device).eval()
        self.lexicon, self.recipe, self.card, self.device = lexicon, recipe, card, str(device)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"LabelPredictor({self.name}, {len(self.labels)} labels, {parameters:,} parameters, on {self.device})"

    @property
    def name(self) -> str:
        """The preset of the model."""
        return str(self.recipe.model["name"])

    @property
    def labels(self) -> tuple[str, ...]:
        """All that can be told of a text."""
        return self.lexicon.labels

    @overload
    def predict(self, texts: str, **options: Unpack[LabelOptions]) -> Labelling: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, texts: Sequence[str], **options: Unpack[LabelOptions]) -> list[Labelling]: ...
    def predict(
        self,
        texts: Any,
        *,
        second: str | Sequence[str] | None = None,
        context: Sequence[Any] | None = None,
        nbest: int = 1,
        threshold: float | None = None,
        return_weights: bool = False,
        progress: Progress | None = None,
    ) -> Labelling | list[Labelling]:
        """The labels of a text, or of each of several.

        Args:
            texts: One text or several.
            second: For a model of pairs, the second text, or that of each.
            context: For a model of dialogues, the texts before, the oldest first; or those of each.
            nbest: How many labels to rank; those that a text has are ranked in any case.
            threshold: Where a text can have several labels, how probable they must be; as it was tuned on the
                validation data unless told otherwise.
            return_weights: Also give how much each word mattered.
            progress: Told how many texts are done.
        """
        one = isinstance(texts, str)
        if not one and not isinstance(texts, Iterable):
            raise RegardError(f"predict: found {type(texts).__name__}; one text or several are needed")
        given = [texts] if one else list(texts)
        self._refuse_useless(second, context)
        seconds = [second] * len(given) if second is None or isinstance(second, str) else list(second)
        before = [()] * len(given) if context is None else texts_before([context] if one else context)
        if not len(given) == len(seconds) == len(before):
            raise RegardError(
                f"predict: {len(given)} texts, {len(seconds)} second ones, {len(before)} contexts; each has its own"
            )
        examples = [Labelled(text, (), other, known) for text, other, known in zip(given, seconds, before, strict=True)]
        found = self.label(examples, nbest, threshold, return_weights=return_weights, progress=progress)
        return found[0] if one else found

    def label(
        self,
        examples: Sequence[Labelled],
        nbest: int = 1,
        threshold: float | None = None,
        *,
        return_weights: bool = False,
        progress: Progress | None = None,
    ) -> list[Labelling]:
        """The same for examples as data files have them; their own labels do not matter."""
        self._check(examples, nbest, threshold, return_weights)
        found: list[Labelling] = []
        for start in range(0, len(examples), EXAMPLES):
            some = examples[start : start + EXAMPLES]
            rows, weights = self._run(some, return_weights)
            for row, example, weighed in zip(rows, some, weights, strict=True):
                ranked, labels = self._ranked(row, nbest, threshold)
                second = None if example.second is None else self.words(example.second)
                whole = Labelling(example.text, labels, ranked, self.words(example.text), second_words=second)
                found.append(replace(whole, **weighed))
            if progress is not None:
                progress(len(found))
        return found

    def words(self, text: str) -> tuple[str, ...]:
        """The words of a text, as the model reads them."""
        return tuple(words_of(text)[: self.recipe.data.most_tokens] or [""])

    def batch(self, examples: Sequence[Labelled]) -> LabelBatch:
        """Examples as the model takes them."""
        config = self.model.config
        return label_batch(
            examples,
            self.lexicon,
            before=config.before,
            pairs=config.pairs,
            longest=self.recipe.data.most_tokens,
            targets=False,
        ).to(self.device)

    @torch.no_grad()
    def probabilities(
        self, examples: Sequence[Labelled], progress: Progress | None = None
    ) -> Float[Tensor, "examples labels"]:
        """How probable every label of every example is."""
        self._check(examples, 1, None, False)
        found = []
        for start in range(0, len(examples), EXAMPLES):
            some = examples[start : start + EXAMPLES]
            found.append(self.model.probabilities(self.model(self.batch(some)).float()).cpu())
            if progress is not None:
                progress(start + len(some))
        return torch.cat(found) if found else torch.zeros(0, len(self.labels))

    def attention_map(self, labelling: Labelling) -> AttentionMap:
        """The weights of a text as a record that every view draws."""
        from regard.views.attention_map import AttentionMap

        if labelling.weights is None:
            raise RegardError("attention_map: there are no weights; predict with return_weights=True")
        title = f"{self.name}: {', '.join(labelling.labels) or 'no label'}"
        rows = (", ".join(labelling.labels) or "no label",)
        return AttentionMap(
            rows, labelling.words, torch.tensor(labelling.weights)[None, None, None].numpy(), title, "words"
        )

    @property
    def weighs(self) -> bool:
        """Whether there are weights of words to show."""
        return self.model.config.pooling == "attention" and self.model.config.normaliser != "none"

    def check_attention(self) -> None:
        """Raise a `RegardError` if the words are pooled without attention, or by weights that are no shares."""
        if self.model.config.pooling != "attention":
            raise RegardError(
                f"{self.name}: pools words by {self.model.config.pooling}, so has no weights to show; "
                "train it with --pooling attention"
            )
        if self.model.config.normaliser == "none":
            raise RegardError(f"{self.name}: its weights are not normalised, so they are no shares to show")

    def _refuse_useless(self, second: object, context: object) -> None:
        config = self.model.config
        for name, found, used in (("second", second, config.pairs), ("context", context, bool(config.before))):
            if found is not None and not used:
                raise RegardError(f"predict: {name} is given; this model was trained without, so leave it out")

    def _check(self, examples: Sequence[Labelled], nbest: int, threshold: float | None, weights: bool) -> None:
        if nbest < 1:
            raise RegardError(f"nbest is {nbest}; 1 is the least")
        if threshold is not None and not self.model.config.several:
            raise RegardError("threshold: is for models of several labels; this one tells one of each text")
        if threshold is not None and not 0 <= threshold <= 1:
            raise RegardError(f"threshold is {threshold}; a number from 0 to 1 is needed")
        if weights:
            self.check_attention()
        for example in examples:
            if not isinstance(example.text, str):
                raise RegardError(f"predict: found {type(example.text).__name__}; a text is needed")
            if self.model.config.pairs and example.second is None:
                raise RegardError(f'text: "{example.text}" has no second text; this model labels pairs of texts')

    @torch.no_grad()
    def _run(
        self, examples: Sequence[Labelled], return_weights: bool
    ) -> tuple[list[list[float]], list[dict[str, Any]]]:
        """Of each example the probabilities, and the weights by the names that a `Labelling` has for them."""
        batch = self.batch(examples)
        if not return_weights:
            return self.model.probabilities(self.model(batch).float()).tolist(), [{} for _ in examples]
        with watch(self.model) as seen:
            rows = self.model.probabilities(self.model(batch).float()).tolist()
        (path,) = self.model.attentions["pooling"]
        groups = zip(seen[path], batch.groups, strict=True)
        texts = [row for weights, group in groups for row in word_weights(weights, group)]
        found: list[dict[str, Any]] = [{"weights": texts[place]} for place in batch.texts.tolist()]
        if batch.seconds is not None:
            for each, place in zip(found, batch.seconds.tolist(), strict=True):
                each["second_weights"] = texts[place]
        if self.model.config.before:
            dense = seen[self.model.context_attention][0].dense().mean((1, 2)).tolist()
            for each, row, example in zip(found, dense, examples, strict=True):
                each["context_weights"] = tuple(row[max(0, len(row) - len(example.context)) :])
        return rows, found

    def _ranked(
        self, row: Sequence[float], nbest: int, threshold: float | None
    ) -> tuple[tuple[Ranked, ...], tuple[str, ...]]:
        """The most probable labels, and those that a text has."""
        order = sorted(range(len(row)), key=lambda place: -row[place])
        ranked = tuple(Ranked(self.labels[place], row[place]) for place in order)
        if not self.model.config.several:
            return ranked[:nbest], (ranked[0].label,)
        least = float(self.model.threshold) if threshold is None else threshold
        chosen = tuple(each.label for each in ranked if each.probability >= least)
        return ranked[: max(nbest, len(chosen))], chosen


def texts_before(contexts: Sequence[Any]) -> list[tuple[str, ...]]:
    """The texts before each of several; a text alone is no sequence of texts."""
    for each in contexts:
        if isinstance(each, str):
            raise RegardError(f'predict: found the context "{each}"; a sequence of texts is needed')
    return [tuple(each) for each in contexts]


def word_weights(weights: Weights, group: Sentences) -> Iterator[tuple[float, ...]]:
    """How much each word of each text of a group mattered."""
    for row, length in zip(weights.dense().mean((1, 2)).tolist(), group.lengths.tolist(), strict=True):
        yield tuple(row[:length])


class TagPredictor:
    """A trained tagger with its words and tags."""

    def __init__(
        self, model: AttentiveTagger, lexicon: Lexicon, recipe: Recipe, card: Card, device: str | torch.device = "cpu"
    ) -> None:
        self.model = model.to(device).eval()
        self.lexicon, self.recipe, self.card, self.device = lexicon, recipe, card, str(device)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"TagPredictor({self.name}, {len(self.tags)} tags, {parameters:,} parameters, on {self.device})"

    @property
    def name(self) -> str:
        """The preset of the model."""
        return str(self.recipe.model["name"])

    @property
    def tags(self) -> tuple[str, ...]:
        """All that can be told of a word."""
        return self.lexicon.labels

    @overload
    def predict(self, sentences: str, **options: Unpack[TagOptions]) -> Tagging: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, sentences: Sequence[str | Sequence[str]], **options: Unpack[TagOptions]) -> list[Tagging]: ...
    @torch.no_grad()
    def predict(
        self, sentences: Any, *, return_weights: bool = False, progress: Progress | None = None
    ) -> Tagging | list[Tagging]:
        """The tags of a sentence, or of each of several.

        Args:
            sentences: One text, which is cut into words; or several, each a text or a sequence of words of your own.
            return_weights: Also give where the words looked, for a model with self-attention.
            progress: Told how many sentences are done.
        """
        if return_weights:
            self.check_attention()
        one = isinstance(sentences, str)
        words = [words_to_tag(each) for each in ([sentences] if one else sentences)]
        found: dict[int, Tagging] = {place: Tagging((), (), (), ()) for place, each in enumerate(words) if not each}
        rest = [place for place, each in enumerate(words) if each]
        for batch in plan([(len(words[place]),) * 2 for place in rest], tokens=TOKENS).batches:
            places = [rest[place] for place in batch]
            taggings = self._tagged([words[place] for place in places], return_weights)
            found.update(zip(places, taggings, strict=True))
            if progress is not None:
                progress(len(found))
        return found[0] if one else [found[place] for place in range(len(words))]

    def attention_map(self, tagging: Tagging) -> AttentionMap:
        """The weights of a sentence as a record that every view draws."""
        from regard.views.attention_map import AttentionMap

        if tagging.weights is None:
            raise RegardError("attention_map: there are no weights; predict with return_weights=True")
        title = f"{self.name}: {' '.join(tagging.words)}"
        return AttentionMap(tagging.words, tagging.words, tagging.weights.numpy(), title, "words")

    def check_attention(self) -> None:
        """Raise a `RegardError` if the words do not look at each other."""
        if not self.model.attended:
            raise RegardError(
                f"{self.name}: has no self-attention, so no weights to show; train it with --encoder both"
            )

    def _tagged(self, words: Sequence[tuple[str, ...]], return_weights: bool) -> list[Tagging]:
        """The tags of some sentences at once."""
        batch = tag_batch([Tagged(each, ("",) * len(each)) for each in words], self.lexicon, tags=False).to(self.device)
        with watch(self.model) as seen:
            scores = self.model(batch)
        best, each = self.model.best(scores, batch), self.model.probabilities(scores, batch)
        chosen, probable = best.tolist(), each.gather(-1, best[..., None])[..., 0].tolist()
        weights = None
        if return_weights:
            weights = torch.stack([seen[path][0].dense() for path in self.model.attended], 1).float().cpu()
        found = []
        for row, own in enumerate(words):
            size = len(own)
            tags = tuple(self.tags[tag] for tag in chosen[row][:size])
            spans = () if self.model.config.scheme == "plain" else tuple(spans_of(tags))
            looks = None if weights is None else weights[row, :, :, :size, :size]
            found.append(Tagging(own, tags, tuple(probable[row][:size]), spans, looks))
        return found


def words_to_tag(sentence: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a text, or those that are given."""
    if isinstance(sentence, str):
        return tuple(words_of(sentence))
    words = tuple(sentence)
    for word in words:
        if not isinstance(word, str) or not word:
            raise RegardError(f"predict: found {word!r} among the words of a sentence; each is a text")
    return words
