"""LabelPredictor: a text in, its labels out, and the words that mattered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.data.label_batches import label_batch
from regard.data.labelled import Labelled
from regard.errors import RegardError
from regard.sentences import LabelBatch, Sentences
from regard.tasks.actions.predict import Shaded
from regard.tasks.label.options import LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.label.record import LabelRecord
from regard.tasks.predictor import Answering, Predictor, Request, as_record
from regard.tasks.progress import Progress
from regard.text.lexicon import Lexicon, words_of
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.explaining.methods import Subject
    from regard.tasks.label.actions import PredictLabels

EXAMPLES = 256
"""Texts of a batch."""

BLANKS = str.maketrans("\t\n\r", "   ")
"""What would end a cell or a line."""


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
    separator: str = field(default="|", repr=False)  # between several labels, as in the data of the training

    def record(self) -> dict[str, Any]:
        """The text and its labels; with the weights of words, of a second text and of texts before that it has."""
        return as_record(self, LabelRecord) | {"ranked": [each._asdict() for each in self.ranked]}

    def lines(self, options: PredictLabels) -> list[str]:
        """The labels side by side, or ranked with their probabilities; below them the words, shaded."""
        if options.nbest > 1:
            best = self.ranked[: options.nbest]
            lines = ["\t".join(f"{label.translate(BLANKS)} {probability:.4f}" for label, probability in best)]
        else:
            lines = [side_by_side(self.labels, self.separator)]
        if not options.why:
            return lines
        from regard.views.words import shade_words

        return [*lines, *(shade_words(words, weights) for words, weights, _ in self.shaded()), ""]

    def shaded(self) -> list[Shaded]:
        """The words of the text, and of a second one, with their weights."""
        texts = ((self.words, self.weights), (self.second_words, self.second_weights))
        return [(words, weights, self.title) for words, weights in texts if words is not None and weights is not None]

    @property
    def title(self) -> str:
        """The labels, the most probable with its probability."""
        best = self.ranked[0]
        others = [label for label in self.labels if label != best.label]
        return ", ".join([f"{best.label} ({best.probability:.0%})", *others]) if self.labels else "no label"


class LabelOptions(Answering, total=False):
    """What `LabelPredictor.predict` can be told, and describes."""

    second: str | Sequence[str] | None
    context: Sequence[Any] | None
    nbest: int
    threshold: float | None


class LabelPredictor(Predictor[Labelling]):
    """Labels texts."""

    task_name = "label"

    @property
    def lexicon(self) -> Lexicon:
        """Its words and labels."""
        return self.tokenizers

    @property
    def labels(self) -> tuple[str, ...]:
        """All that can be told of a text."""
        return self.lexicon.labels

    @property
    def summary(self) -> str:
        return f"{len(self.labels)} labels"

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
        options = RankOptions(nbest=nbest, threshold=threshold)
        self.check(options)
        requests = [
            Request(Labelled(text, (), other, known), options)
            for text, other, known in zip(given, seconds, before, strict=True)
        ]
        found = self.answer(requests, return_weights=return_weights, progress=progress)
        return found[0] if one else found

    def subject(self, text: str, **further: Any) -> Labelled:
        return Labelled(text, (), further.get("second"), tuple(further.get("context", ())))

    @property
    def takes(self) -> frozenset[str]:
        config = self.model.config
        further = {"threshold": config.several, "second": config.pairs, "context": bool(config.before)}
        return frozenset({"nbest", *(name for name, used in further.items() if used)})

    def check(self, options: RankOptions) -> None:
        if options.nbest < 1:
            raise RegardError(f"nbest is {options.nbest}; 1 is the least")
        if options.threshold is not None and not self.model.config.several:
            raise RegardError("threshold: is for models of several labels; this one tells one of each text")
        if options.threshold is not None and not 0 <= options.threshold <= 1:
            raise RegardError(f"threshold is {options.threshold}; a number from 0 to 1 is needed")

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Labelling]:
        if return_weights:
            self.check_attention()
        examples = [request.subject for request in requests]
        self._check_texts(examples)
        separator = self.recipe.data.separator or "|"
        found: list[Labelling] = []
        for start in range(0, len(examples), EXAMPLES):
            some = requests[start : start + EXAMPLES]
            rows, weights = self._run([request.subject for request in some], return_weights)
            for row, (example, options), weighed in zip(rows, some, weights, strict=True):
                ranked, labels = self._ranked(row, options.nbest, options.threshold)
                second = None if example.second is None else self.words(example.second)
                whole = Labelling(example.text, labels, ranked, self.words(example.text), second_words=second)
                found.append(replace(whole, separator=separator, **weighed))
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
        self._check_texts(examples)
        found = []
        for start in range(0, len(examples), EXAMPLES):
            some = examples[start : start + EXAMPLES]
            found.append(self.model.probabilities(self.model(self.batch(some)).float()).cpu())
            if progress is not None:
                progress(start + len(some))
        return torch.cat(found) if found else torch.zeros(0, len(self.labels))

    def attention_map(self, labelling: Labelling) -> AttentionMap:
        """The weights of a text as a record that every view draws."""
        if labelling.weights is None:
            raise RegardError("attention_map: there are no weights; predict with return_weights=True")
        title = f"{self.name}: {', '.join(labelling.labels) or 'no label'}"
        rows = (", ".join(labelling.labels) or "no label",)
        return AttentionMap(
            rows, labelling.words, torch.tensor(labelling.weights)[None, None, None].numpy(), title, "words"
        )

    def look(self, text: str, options: LabelLookOptions) -> AttentionMap:
        from regard.tasks.label.look import look_at_label

        return look_at_label(self, text, options)

    def explain(self, text: Any, options: LabelExplainOptions) -> Subject:
        from regard.tasks.label.explain import LabelSubject

        return LabelSubject(self, text, options)

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

    def _check_texts(self, examples: Sequence[Labelled]) -> None:
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


def side_by_side(labels: Sequence[str], separator: str) -> str:
    """Labels on one line, separated as in the data of the training."""
    return separator.join(label.translate(BLANKS) for label in labels)
