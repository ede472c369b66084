"""Validation of a tagger during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor, nn

from regard.data.batches import plan_epoch
from regard.data.label_batches import build_tag_batch
from regard.data.tagged import TaggedSentence
from regard.metrics.spans import span_report
from regard.models.attentive_tagger import AttentiveTagger
from regard.sentences import TagBatch
from regard.text.word_vocabulary import WordVocabulary
from regard.training.loop import ValidationResult

TOKENS = 8192
"""Number of words in a validation batch."""


@dataclass(frozen=True)
class TagValidation:
    """Loss per word and accuracy of tags; F1 of spans if the tags mark spans."""

    sentences: Sequence[TaggedSentence]  # with known tags only
    gold: Sequence[Sequence[str]]  # the tags of the data
    vocabulary: WordVocabulary
    device: str

    def __call__(self, model: nn.Module) -> ValidationResult:
        assert isinstance(model, AttentiveTagger)
        loss, tags_by_index = 0.0, dict[int, list[str]]()
        for indices in plan_epoch(
            [(len(sentence.words),) * 2 for sentence in self.sentences], batch_tokens=TOKENS
        ).batches:
            batch = build_tag_batch([self.sentences[index] for index in indices], self.vocabulary).to(self.device)
            scores = model(batch)
            loss += float(model.loss(scores, batch))
            tags_by_index |= zip(
                indices, to_tag_names(model.decode(scores, batch), batch, self.vocabulary), strict=True
            )
        predicted = [tags_by_index[index] for index in range(len(self.sentences))]
        pairs = [
            pair
            for predicted_tags, gold_tags in zip(predicted, self.gold, strict=True)
            for pair in zip(predicted_tags, gold_tags, strict=True)
        ]
        metrics = {
            "loss": loss / len(pairs),
            "accuracy": sum(predicted_tag == gold for predicted_tag, gold in pairs) / len(pairs),
        }
        if model.config.scheme != "plain":
            metrics["f1"] = span_report(predicted, self.gold).f1.value
        return ValidationResult(metrics)


def to_tag_names(tags: Int[Tensor, "texts words"], batch: TagBatch, vocabulary: WordVocabulary) -> list[list[str]]:
    """Convert tag ids to names, without padding."""
    rows = zip(tags.tolist(), batch.sentences.lengths.tolist(), strict=True)
    return [[vocabulary.labels[tag] for tag in row[:length]] for row, length in rows]
