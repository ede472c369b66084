"""TagPredictor: words in, their tags out, and where the words looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import plan
from regard.data.label_batches import tag_batch
from regard.data.tagged import Tagged
from regard.errors import RegardError
from regard.schemes import Span, spans_of
from regard.tasks.actions.predict import Shaded
from regard.tasks.predictor import Answering, Predictor, Request
from regard.tasks.progress import Progress
from regard.tasks.tag.options import TagExplainOptions, TagOptions
from regard.text.lexicon import Lexicon, words_of
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.explaining.methods import Subject
    from regard.looking.options import LookOptions
    from regard.tasks.tag.actions import PredictTags

TOKENS = 8192
"""Words of a batch."""


@dataclass(frozen=True, eq=False)
class Tagging:
    """The tags of a sentence, how probable each is, and where its words looked."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # of each tag, whatever the others are
    spans: tuple[Span, ...]  # what the tags mark; nothing where they mark no spans
    weights: Float[Tensor, "layers heads words words"] | None = field(default=None, repr=False)

    def record(self) -> dict[str, Any]:
        """Words, tags and spans; with how much attention each word received."""
        record: dict[str, Any] = {
            "words": self.words,
            "tags": self.tags,
            "probabilities": self.probabilities,
            "spans": [
                {**span._asdict(), "text": " ".join(self.words[span.first : span.last + 1])} for span in self.spans
            ],
        }
        return record if self.weights is None or not self.words else {**record, "weights": self.received()}

    def lines(self, options: PredictTags) -> list[str]:
        """Each word with its tag; below them the words, shaded; and a blank line."""
        lines = [f"{word}\t{tag}" for word, tag in zip(self.words, self.tags, strict=True)]
        if not options.why or not self.words:
            return [*lines, ""]
        from regard.views.words import shade_words

        return [*lines, shade_words(self.words, self.received(), title="attention received"), ""]

    def received(self) -> list[float]:
        """How much attention each word got, the mean over layers, heads and the words that looked."""
        assert self.weights is not None
        shares: list[float] = self.weights.mean((0, 1, 2)).tolist()
        return shares

    def shaded(self) -> list[Shaded]:
        """The words with the attention each got, and the tags as a title."""
        return [(self.words, self.received(), " ".join(self.tags))] if self.words else []


class TagPredictor(Predictor[Tagging]):
    """Tags words."""

    task_name = "tag"

    @property
    def lexicon(self) -> Lexicon:
        """Its words and tags."""
        return self.tokenizers

    @property
    def tags(self) -> tuple[str, ...]:
        """All that can be told of a word."""
        return self.lexicon.labels

    @property
    def summary(self) -> str:
        return f"{len(self.tags)} tags"

    @overload
    def predict(self, sentences: str, **options: Unpack[Answering]) -> Tagging: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def predict(self, sentences: Sequence[str | Sequence[str]], **options: Unpack[Answering]) -> list[Tagging]: ...
    def predict(
        self, sentences: Any, *, return_weights: bool = False, progress: Progress | None = None
    ) -> Tagging | list[Tagging]:
        """The tags of a sentence, or of each of several.

        Args:
            sentences: One text, which is cut into words; or several, each a text or a sequence of words of your own.
            return_weights: Also give where the words looked, for a model with self-attention.
            progress: Told how many sentences are done.
        """
        one = isinstance(sentences, str)
        requests = [Request(words_to_tag(each), TagOptions()) for each in ([sentences] if one else sentences)]
        found = self.answer(requests, return_weights=return_weights, progress=progress)
        return found[0] if one else found

    def subject(self, text: str, **further: Any) -> tuple[str, ...]:
        return words_to_tag(text)

    def check(self, options: TagOptions) -> None:
        """There are no options."""

    @torch.no_grad()
    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Tagging]:
        if return_weights:
            self.check_attention()
        words = [request.subject for request in requests]
        found: dict[int, Tagging] = {place: Tagging((), (), (), ()) for place, each in enumerate(words) if not each}
        rest = [place for place, each in enumerate(words) if each]
        for batch in plan([(len(words[place]),) * 2 for place in rest], tokens=TOKENS).batches:
            places = [rest[place] for place in batch]
            taggings = self._tagged([words[place] for place in places], return_weights)
            found.update(zip(places, taggings, strict=True))
            if progress is not None:
                progress(len(found))
        return [found[place] for place in range(len(words))]

    def attention_map(self, tagging: Tagging) -> AttentionMap:
        """The weights of a sentence as a record that every view draws."""
        if tagging.weights is None:
            raise RegardError("attention_map: there are no weights; predict with return_weights=True")
        title = f"{self.name}: {' '.join(tagging.words)}"
        return AttentionMap(tagging.words, tagging.words, tagging.weights.numpy(), title, "words")

    def look(self, text: str, options: LookOptions) -> AttentionMap:
        from regard.tasks.words.look import look_at_words

        self.check_attention()
        options.kind_of(self.name, self.model.attentions)
        return look_at_words(self, words_to_tag(text), text, options)

    def explain(self, text: str | Sequence[str], options: TagExplainOptions) -> Subject:
        from regard.tasks.tag.explain import TagSubject

        return TagSubject(self, text, options)

    @property
    def weighs(self) -> bool:
        """Whether there are weights of words to show."""
        return bool(self.model.attentions)

    def check_attention(self) -> None:
        if not self.weighs:
            raise RegardError(
                f"{self.name}: has no self-attention, so no weights to show; train it with --encoder both"
            )

    def _tagged(self, words: Sequence[tuple[str, ...]], return_weights: bool) -> list[Tagging]:
        """The tags of some sentences at once."""
        batch = tag_batch([Tagged(each, ("",) * len(each)) for each in words], self.lexicon, tags=False).to(self.device)
        weights = None
        if return_weights:
            scores, seen = self.watched(lambda: self.model(batch))
            weights = torch.stack([layer.dense() for layer in seen["self"]], 1).float().cpu()
        else:
            scores = self.model(batch)
        best, each = self.model.best(scores, batch), self.model.probabilities(scores, batch)
        chosen, probable = best.tolist(), each.gather(-1, best[..., None])[..., 0].tolist()
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
