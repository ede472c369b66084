"""LabelPredictor: predict the labels of texts, with the weights of their words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.data.label_batches import build_label_batch
from regard.data.labeled import LabeledText
from regard.errors import RegardError
from regard.metrics.labels import select_above
from regard.sentences import LabelBatch, Sentences
from regard.tasks.actions.predict import Shaded
from regard.tasks.label.options import LabelExplainOptions, LabelLookOptions, RankOptions
from regard.tasks.label.record import LabelRecord
from regard.tasks.predictor import PredictOptions, Predictor, Request, build_record
from regard.tasks.progress import Progress
from regard.text.word_vocabulary import WordVocabulary, split_words
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.attribution.methods import Subject
    from regard.tasks.label.actions import PredictLabels

EXAMPLES = 256
"""Number of texts in a batch."""

BLANKS = str.maketrans("\t\n\r", "   ")
"""Replaces tabs and line breaks, which would end a cell or a line."""


class RankedLabel(NamedTuple):
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, eq=False)
class Labeling:
    """The predicted labels of a text, and the weights of its words.

    The weights are those of the attention pooling, averaged over queries and heads. They sum to 1,
    unless the model was trained with the normalizer none.
    """

    text: str
    labels: tuple[str, ...]  # one label; with multi_label those at or above the threshold, maybe none
    ranked: tuple[RankedLabel, ...]  # the most probable labels: all in labels, and at least nbest
    words: tuple[str, ...]
    weights: tuple[float, ...] | None = field(default=None, repr=False)
    second_words: tuple[str, ...] | None = field(default=None, repr=False)  # words of the second text
    second_weights: tuple[float, ...] | None = field(default=None, repr=False)
    context_weights: tuple[float, ...] | None = field(default=None, repr=False)  # of the previous texts, oldest first
    separator: str = field(default="|", repr=False)  # between labels, as in the training data

    def record(self) -> dict[str, Any]:
        """Return the text, labels and weights as a JSON object."""
        return build_record(self, LabelRecord) | {"ranked": [ranked_label._asdict() for ranked_label in self.ranked]}

    def lines(self, options: PredictLabels) -> list[str]:
        """Return the labels, or the ranked labels with probabilities; with --why also the shaded words."""
        if options.nbest > 1:
            best = self.ranked[: options.nbest]
            lines = ["\t".join(f"{label.translate(BLANKS)} {probability:.4f}" for label, probability in best)]
        else:
            lines = [join_labels(self.labels, self.separator)]
        if not options.why:
            return lines
        from regard.views.words import shade_words

        return [*lines, *(shade_words(words, weights) for words, weights, _ in self.shaded_words()), ""]

    def shaded_words(self) -> list[Shaded]:
        """Return the words and weights of the text, and of a second text."""
        texts = ((self.words, self.weights), (self.second_words, self.second_weights))
        return [(words, weights, self.title) for words, weights in texts if words is not None and weights is not None]

    @property
    def title(self) -> str:
        """The labels, with the probability of the best one."""
        best = self.ranked[0]
        others = [label for label in self.labels if label != best.label]
        return ", ".join([f"{best.label} ({best.probability:.0%})", *others]) if self.labels else "no label"


class LabelPredictOptions(PredictOptions, total=False):
    """The options of `LabelPredictor.predict`."""

    second: str | Sequence[str] | None
    context: Sequence[Any] | None
    nbest: int
    threshold: float | None


class LabelPredictor(Predictor[Labeling]):
    """A trained classifier of texts."""

    task_name = "label"

    @property
    def vocabulary(self) -> WordVocabulary:
        """The words and labels that the model knows."""
        return self.tokenizers

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels that the model can predict."""
        return self.vocabulary.labels

    @property
    def summary(self) -> str:
        return f"{len(self.labels)} labels"

    @overload
    def predict(self, texts: str, **options: Unpack[LabelPredictOptions]) -> Labeling: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, texts: Sequence[str], **options: Unpack[LabelPredictOptions]) -> list[Labeling]: ...
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
    ) -> Labeling | list[Labeling]:
        """Predict the labels of one or several texts.

        Args:
            texts: One text or a sequence of texts.
            second: The second text, for a model of text pairs; one for each text.
            context: The previous texts, oldest first, for a model of dialogues; one sequence for each text.
            nbest: Number of labels to rank; predicted labels are always included.
            threshold: Minimum probability of a label, for a model with several labels per text. The default was tuned
                on the validation data.
            return_weights: Whether to return the weights of words.
            progress: Called with the number of texts done.

        Returns:
            One `Labeling` for a single text, otherwise a list of them.

        Raises:
            RegardError: For an option that the model does not support, or a missing second text.

        Example:
            >>> regard.load("runs/questions").predict("Who wrote Emma ?").labels
            ('person',)
        """
        one = isinstance(texts, str)
        if not one and not isinstance(texts, Iterable):
            raise RegardError(f"predict: expected a string or a list of strings, got {type(texts).__name__}")
        text_list = [texts] if one else list(texts)
        self._check_unused(second, context)
        seconds = [second] * len(text_list) if second is None or isinstance(second, str) else list(second)
        contexts = [()] * len(text_list) if context is None else check_contexts([context] if one else context)
        if not len(text_list) == len(seconds) == len(contexts):
            raise RegardError(
                f"predict: expected one second text and one context per text, got {len(text_list)} texts, "
                f"{len(seconds)} second texts, {len(contexts)} contexts"
            )
        options = RankOptions(nbest=nbest, threshold=threshold)
        self.check(options)
        requests = [
            Request(LabeledText(text, (), second_text, previous), options)
            for text, second_text, previous in zip(text_list, seconds, contexts, strict=True)
        ]
        labelings = self.answer(requests, return_weights=return_weights, progress=progress)
        return labelings[0] if one else labelings

    def build_input(self, text: str, **further: Any) -> LabeledText:
        return LabeledText(text, (), further.get("second"), tuple(further.get("context", ())))

    @property
    def accepted_options(self) -> frozenset[str]:
        config = self.model.config
        supported = {"threshold": config.multi_label, "second": config.text_pairs, "context": bool(config.context_size)}
        return frozenset({"nbest", *(name for name, used in supported.items() if used)})

    def check(self, options: RankOptions) -> None:
        if options.threshold is not None and not self.model.config.multi_label:
            raise RegardError("threshold requires a model with several labels per text")

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Labeling]:
        if return_weights:
            self.check_attention()
        examples = [request.input for request in requests]
        self._check_texts(examples)
        separator = self.recipe.data.separator or "|"
        labelings: list[Labeling] = []
        for start in range(0, len(examples), EXAMPLES):
            chunk = requests[start : start + EXAMPLES]
            rows, weights = self._run_batch([request.input for request in chunk], return_weights)
            for row, (example, options), weights_by_name in zip(rows, chunk, weights, strict=True):
                ranked, labels = self._rank_labels(row, options.nbest, options.threshold)
                second = None if example.second is None else self.split_words(example.second)
                labeling = Labeling(example.text, labels, ranked, self.split_words(example.text), second_words=second)
                labelings.append(replace(labeling, separator=separator, **weights_by_name))
            if progress is not None:
                progress(len(labelings))
        return labelings

    def split_words(self, text: str) -> tuple[str, ...]:
        """Split a text into the words that the model reads."""
        return tuple(split_words(text)[: self.recipe.data.max_tokens] or [""])

    def build_batch(self, examples: Sequence[LabeledText]) -> LabelBatch:
        """Build a batch of examples, without targets."""
        config = self.model.config
        return build_label_batch(
            examples,
            self.vocabulary,
            context_size=config.context_size,
            text_pairs=config.text_pairs,
            max_length=self.recipe.data.max_tokens,
            with_targets=False,
        ).to(self.device)

    @torch.no_grad()
    def probabilities(
        self, examples: Sequence[LabeledText], progress: Progress | None = None
    ) -> Float[Tensor, "examples labels"]:
        """Return the probability of every label for every example."""
        self._check_texts(examples)
        batches = []
        for start in range(0, len(examples), EXAMPLES):
            chunk = examples[start : start + EXAMPLES]
            batches.append(self.model.probabilities(self.model(self.build_batch(chunk)).float()).cpu())
            if progress is not None:
                progress(start + len(chunk))
        return torch.cat(batches) if batches else torch.zeros(0, len(self.labels))

    def select_labels(self, probabilities: Float[Tensor, "examples labels"]) -> list[list[str]]:
        """Return the predicted labels of each example: those above the threshold, or the most probable one."""
        if self.model.config.multi_label:
            return [sorted(chosen) for chosen in select_above(probabilities, self.labels, float(self.model.threshold))]
        return [[self.labels[index]] for index in probabilities.argmax(-1).tolist()]

    def attention_map(self, labeling: Labeling) -> AttentionMap:
        """Return the word weights of a text as an attention map."""
        if labeling.weights is None:
            raise RegardError("attention_map requires weights; predict with return_weights=True")
        title = f"{self.name}: {', '.join(labeling.labels) or 'no label'}"
        rows = (", ".join(labeling.labels) or "no label",)
        return AttentionMap(
            rows, labeling.words, torch.tensor(labeling.weights)[None, None, None].numpy(), title, "words"
        )

    def build_map(self, text: str, options: LabelLookOptions) -> AttentionMap:
        from regard.tasks.label.look import look_at_label

        return look_at_label(self, text, options)

    def build_subject(self, text: Any, options: LabelExplainOptions) -> Subject:
        from regard.tasks.label.explain import LabelSubject

        return LabelSubject(self, text, options)

    @property
    def has_word_weights(self) -> bool:
        """Whether the model has normalized weights of words."""
        return self.model.config.pooling == "attention" and self.model.config.normalizer != "none"

    def check_attention(self) -> None:
        """Raise a `RegardError` if the model has no normalized weights of words."""
        if self.model.config.pooling != "attention":
            raise RegardError(
                f"{self.name} has no attention weights to show: pooling is {self.model.config.pooling}; "
                "train with --pooling attention"
            )
        if self.model.config.normalizer == "none":
            raise RegardError(f"{self.name} has no attention weights to show: normalizer is none")

    def _check_unused(self, second: object, context: object) -> None:
        config = self.model.config
        for name, value, used in (
            ("second", second, config.text_pairs),
            ("context", context, bool(config.context_size)),
        ):
            if value is not None and not used:
                raise RegardError(f"predict: {name} is not supported; this model was trained without it")

    def _check_texts(self, examples: Sequence[LabeledText]) -> None:
        for example in examples:
            if not isinstance(example.text, str):
                raise RegardError(f"predict: expected a string, got {type(example.text).__name__}")
            if self.model.config.text_pairs and example.second is None:
                raise RegardError(f'text "{example.text}": second is required; this model classifies text pairs')

    @torch.no_grad()
    def _run_batch(
        self, examples: Sequence[LabeledText], return_weights: bool
    ) -> tuple[list[list[float]], list[dict[str, Any]]]:
        """Return the probabilities of each example, and its weights by the field names of `Labeling`."""
        batch = self.build_batch(examples)
        if not return_weights:
            return self.model.probabilities(self.model(batch).float()).tolist(), [{} for _ in examples]
        with watch(self.model) as recorded:
            rows = self.model.probabilities(self.model(batch).float()).tolist()
        (path,) = self.model.attentions["pooling"]
        groups = zip(recorded[path], batch.groups, strict=True)
        texts = [row for weights, group in groups for row in iter_word_weights(weights, group)]
        weights_by_name: list[dict[str, Any]] = [{"weights": texts[index]} for index in batch.texts.tolist()]
        if batch.second_texts is not None:
            for named_weights, index in zip(weights_by_name, batch.second_texts.tolist(), strict=True):
                named_weights["second_weights"] = texts[index]
        if self.model.config.context_size:
            dense = recorded[self.model.context_attention][0].dense().mean((1, 2)).tolist()
            for named_weights, row, example in zip(weights_by_name, dense, examples, strict=True):
                named_weights["context_weights"] = tuple(row[max(0, len(row) - len(example.context)) :])
        return rows, weights_by_name

    def _rank_labels(
        self, row: Sequence[float], nbest: int, threshold: float | None
    ) -> tuple[tuple[RankedLabel, ...], tuple[str, ...]]:
        """Return the ranked labels, and the predicted labels."""
        order = sorted(range(len(row)), key=lambda index: -row[index])
        ranked = tuple(RankedLabel(self.labels[index], row[index]) for index in order)
        if not self.model.config.multi_label:
            return ranked[:nbest], (ranked[0].label,)
        minimum = float(self.model.threshold) if threshold is None else threshold
        chosen_labels = tuple(ranked_label.label for ranked_label in ranked if ranked_label.probability >= minimum)
        return ranked[: max(nbest, len(chosen_labels))], chosen_labels


def check_contexts(contexts: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return contexts as tuples; raise a `RegardError` for a string in place of a sequence."""
    for context in contexts:
        if isinstance(context, str):
            raise RegardError(f'predict: expected a context of several strings, got "{context}"')
    return [tuple(context) for context in contexts]


def iter_word_weights(weights: Weights, group: Sentences) -> Iterator[tuple[float, ...]]:
    """Yield the word weights of each text in a group."""
    for row, length in zip(weights.dense().mean((1, 2)).tolist(), group.lengths.tolist(), strict=True):
        yield tuple(row[:length])


def join_labels(labels: Sequence[str], separator: str) -> str:
    """Join labels on one line, separated as in the training data."""
    return separator.join(label.translate(BLANKS) for label in labels)
