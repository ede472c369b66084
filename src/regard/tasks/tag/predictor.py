"""TagPredictor: predict the tags of words, with self-attention weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import plan_epoch
from regard.data.label_batches import build_tag_batch
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError
from regard.schemes import Span, tags_to_spans
from regard.tasks.actions.predict import Shaded
from regard.tasks.predictor import PredictOptions, Predictor, Request
from regard.tasks.progress import Progress
from regard.tasks.tag.options import TagExplainOptions, TagOptions
from regard.text.word_vocabulary import WordVocabulary, split_words
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.attribution.methods import Subject
    from regard.maps.options import LookOptions
    from regard.tasks.tag.actions import PredictTags

TOKENS = 8192
"""Number of words in a batch."""


@dataclass(frozen=True, eq=False)
class Tagging:
    """The predicted tags of a sentence, with probabilities and self-attention weights."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # marginal probability of each tag
    spans: tuple[Span, ...]  # the spans that the tags mark; empty for plain tags
    weights: Float[Tensor, "layers heads words words"] | None = field(default=None, repr=False)

    def record(self) -> dict[str, Any]:
        """Return words, tags and spans as a JSON object, with the attention each word received."""
        record: dict[str, Any] = {
            "words": self.words,
            "tags": self.tags,
            "probabilities": self.probabilities,
            "spans": [
                {**span._asdict(), "text": " ".join(self.words[span.first : span.last + 1])} for span in self.spans
            ],
        }
        return record if self.weights is None or not self.words else {**record, "weights": self.attention_received()}

    def lines(self, options: PredictTags) -> list[str]:
        """Return each word with its tag, with --why the shaded words, and a blank line."""
        lines = [f"{word}\t{tag}" for word, tag in zip(self.words, self.tags, strict=True)]
        if not options.why or not self.words:
            return [*lines, ""]
        from regard.views.words import shade_words

        return [*lines, shade_words(self.words, self.attention_received(), title="attention received"), ""]

    def attention_received(self) -> list[float]:
        """Return the attention each word received, averaged over layers, heads and queries."""
        assert self.weights is not None
        shares: list[float] = self.weights.mean((0, 1, 2)).tolist()
        return shares

    def shaded_words(self) -> list[Shaded]:
        """Return the words with the attention they received, titled with the tags."""
        return [(self.words, self.attention_received(), " ".join(self.tags))] if self.words else []


class TagPredictor(Predictor[Tagging]):
    """A trained tagger of words."""

    task_name = "tag"

    @property
    def vocabulary(self) -> WordVocabulary:
        """The words and tags that the model knows."""
        return self.tokenizers

    @property
    def tags(self) -> tuple[str, ...]:
        """All tags that the model can predict."""
        return self.vocabulary.labels

    @property
    def summary(self) -> str:
        return f"{len(self.tags)} tags"

    @overload
    def predict(self, sentences: str, **options: Unpack[PredictOptions]) -> Tagging: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, sentences: Sequence[str | Sequence[str]], **options: Unpack[PredictOptions]) -> list[Tagging]: ...
    def predict(
        self, sentences: Any, *, return_weights: bool = False, progress: Progress | None = None
    ) -> Tagging | list[Tagging]:
        """Predict the tags of one or several sentences.

        Args:
            sentences: One text, or a sequence of texts or word sequences. Texts are split into words.
            return_weights: Whether to return self-attention weights.
            progress: Called with the number of sentences done.

        Returns:
            One `Tagging` for a single text, otherwise a list of them.

        Raises:
            RegardError: If a word is empty or not a string, or weights are requested from a model without
                self-attention.

        Example:
            >>> regard.load("runs/ner").predict("Ann lives in York").tags
            ('B-PER', 'O', 'O', 'B-LOC')
        """
        one = isinstance(sentences, str)
        if not isinstance(sentences, Iterable):
            raise RegardError(
                f"predict: expected a string or a list of strings or of lists of words, got {type(sentences).__name__}"
            )
        sentence_list: Sequence[Any] = [sentences] if one else list(sentences)
        requests = [Request(to_words(sentence), TagOptions()) for sentence in sentence_list]
        taggings = self.answer(requests, return_weights=return_weights, progress=progress)
        return taggings[0] if one else taggings

    def build_input(self, text: str, **further: Any) -> tuple[str, ...]:
        return to_words(text)

    def check(self, options: TagOptions) -> None:
        """Do nothing, since taggers have no request options."""

    @torch.no_grad()
    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Tagging]:
        if return_weights:
            self.check_attention()
        words = [request.input for request in requests]
        taggings_by_index: dict[int, Tagging] = {
            index: Tagging((), (), (), ()) for index, sentence in enumerate(words) if not sentence
        }
        nonempty = [index for index, sentence in enumerate(words) if sentence]
        for batch in plan_epoch([(len(words[index]),) * 2 for index in nonempty], batch_tokens=TOKENS).batches:
            indices = [nonempty[index] for index in batch]
            taggings = self._tag_batch([words[index] for index in indices], return_weights)
            taggings_by_index.update(zip(indices, taggings, strict=True))
            if progress is not None:
                progress(len(taggings_by_index))
        return [taggings_by_index[index] for index in range(len(words))]

    def attention_map(self, tagging: Tagging) -> AttentionMap:
        """Return the self-attention weights of a sentence as an attention map."""
        if tagging.weights is None:
            raise RegardError("attention_map requires weights; predict with return_weights=True")
        title = f"{self.name}: {' '.join(tagging.words)}"
        return AttentionMap(tagging.words, tagging.words, tagging.weights.numpy(), title, "words")

    def build_map(self, text: str, options: LookOptions) -> AttentionMap:
        from regard.tasks.words.look import look_at_words

        self.check_attention()
        options.resolve_kind(self.name, self.model.attentions)
        return look_at_words(self, to_words(text), text, options)

    def build_subject(self, text: str | Sequence[str], options: TagExplainOptions) -> Subject:
        from regard.tasks.tag.explain import TagSubject

        return TagSubject(self, text, options)

    @property
    def has_word_weights(self) -> bool:
        """Whether the model has self-attention weights."""
        return bool(self.model.attentions)

    def check_attention(self) -> None:
        if not self.has_word_weights:
            raise RegardError(f"{self.name} has no self-attention weights to show; train with --encoder both")

    def _tag_batch(self, sentences: Sequence[tuple[str, ...]], return_weights: bool) -> list[Tagging]:
        """Tag one batch of sentences."""
        batch = build_tag_batch(
            [TaggedSentence(sentence, ("",) * len(sentence)) for sentence in sentences],
            self.vocabulary,
            with_tags=False,
        ).to(self.device)
        weights = None
        if return_weights:
            scores, recorded = self.run_watched(lambda: self.model(batch))
            weights = torch.stack([layer.dense() for layer in recorded["self"]], 1).float().cpu()
        else:
            scores = self.model(batch)
        best, probabilities = self.model.decode(scores, batch), self.model.probabilities(scores, batch)
        tag_ids, tag_probabilities = best.tolist(), probabilities.gather(-1, best[..., None])[..., 0].tolist()
        taggings = []
        for row, sentence in enumerate(sentences):
            size = len(sentence)
            tags = tuple(self.tags[tag] for tag in tag_ids[row][:size])
            spans = () if self.model.config.scheme == "plain" else tuple(tags_to_spans(tags))
            sentence_weights = None if weights is None else weights[row, :, :, :size, :size]
            taggings.append(Tagging(sentence, tags, tuple(tag_probabilities[row][:size]), spans, sentence_weights))
        return taggings

    def list_spans(self, tags: Sequence[str]) -> list[Hashable]:
        """Return what a tagging is scored by: its spans, or each tag with its index if tags are plain."""
        return list(enumerate(tags)) if self.model.config.scheme == "plain" else list(tags_to_spans(tags))


def to_words(sentence: str | Sequence[str]) -> tuple[str, ...]:
    """Split a text into words, or check and return given words."""
    if isinstance(sentence, str):
        return tuple(split_words(sentence))
    if not isinstance(sentence, Iterable):
        raise RegardError(f"predict: expected a string or a list of words, got {type(sentence).__name__}")
    words = tuple(sentence)
    for word in words:
        if not isinstance(word, str) or not word:
            raise RegardError(f"predict: expected words as non-empty strings, got {word!r}")
    return words
