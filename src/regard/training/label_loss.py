"""The loss of labels and of tags, as one module with the model; and how good both are while they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import plan
from regard.data.label_batches import label_batch, tag_batch
from regard.data.labelled import Labelled
from regard.data.tagged import Tagged
from regard.metrics.labels import best_threshold, label_report
from regard.metrics.spans import span_report
from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.models.attentive_tagger import AttentiveTagger
from regard.models.language import Carried
from regard.sentences import NO_TAG, LabelBatch, TagBatch
from regard.text.lexicon import Lexicon
from regard.training.loop import Findings
from regard.training.loss import Loss, TrainingStep

EXAMPLES, TOKENS = 256, 8192
"""Of a batch, where nothing is learnt: texts to label, and words to tag."""


class LabelStep(TrainingStep):
    """A classifier and its loss, summed over the examples, and how many they are."""

    model: AttentiveClassifier

    def forward(self, batch: LabelBatch, carried: Carried = ()) -> Loss:
        assert batch.targets is not None
        several, logits = self.model.config.several, self.model(batch)
        loss = label_loss(logits, batch.targets, several=several, smoothing=self.smoothing, weights=self.weights)
        return Loss(loss, loss.new_full((), len(batch), dtype=torch.long))


class TagStep(TrainingStep):
    """A tagger and its loss, summed over the words, and how many they are."""

    model: AttentiveTagger

    def forward(self, batch: TagBatch, carried: Carried = ()) -> Loss:
        assert batch.tags is not None
        loss = self.model.loss(self.model(batch), batch, smoothing=self.smoothing, weights=self.weights)
        return Loss(loss, (batch.tags != NO_TAG).sum())


def class_weights(counts: Sequence[int], power: float) -> Float[Tensor, " labels"] | None:
    """What an example of each label counts: the rarer the more, such that all together count as before.

    With a power of 1 every label counts the same in all; with 0 every example does.
    """
    if not power:
        return None
    numbers = torch.tensor(counts, dtype=torch.float64)
    weights = numbers.clamp_min(1) ** -power
    return (weights * numbers.sum() / (weights * numbers).sum()).float()


def positive_weights(counts: Sequence[int], examples: int, power: float) -> Float[Tensor, " labels"] | None:
    """What having a label counts, beside not having it, where a text can have several."""
    if not power:
        return None
    numbers = torch.tensor(counts, dtype=torch.float64).clamp_min(1)
    return (((examples - numbers).clamp_min(1) / numbers) ** power).float()


def label_logits(
    model: AttentiveClassifier,
    examples: Sequence[Labelled],
    lexicon: Lexicon,
    *,
    longest: int,
    device: str,
    targets: bool = False,
) -> Iterator[tuple[LabelBatch, Float[Tensor, "examples labels"]]]:
    """The logits of examples, in their order, in batches."""
    config = model.config
    together = partial(label_batch, before=config.before, pairs=config.pairs, longest=longest, targets=targets)
    for start in range(0, len(examples), EXAMPLES):
        batch = together(examples[start : start + EXAMPLES], lexicon).to(device)
        yield batch, model(batch)


@dataclass(frozen=True)
class LabelValidation:
    """Loss an example, accuracy and macro F1; of several labels micro F1, at the best threshold."""

    examples: Sequence[Labelled]
    lexicon: Lexicon
    longest: int
    device: str

    def __call__(self, model: nn.Module) -> Findings:
        assert isinstance(model, AttentiveClassifier)
        loss, found = 0.0, []
        parts = label_logits(model, self.examples, self.lexicon, longest=self.longest, device=self.device, targets=True)
        for batch, logits in parts:
            assert batch.targets is not None
            loss += float(label_loss(logits, batch.targets, several=model.config.several))
            found.append(model.probabilities(logits.float()).cpu())
        probabilities, labels = torch.cat(found), self.lexicon.labels
        each = {"loss": loss / len(self.examples)}
        gold = [example.labels for example in self.examples]
        if model.config.several:
            threshold, f1 = best_threshold(probabilities, gold, labels)
            return Findings(each | {"f1": f1.value}, {"threshold": threshold})
        report = label_report([labels[place] for place in probabilities.argmax(-1).tolist()], [one for (one,) in gold])
        return Findings(each | {"accuracy": report.accuracy.value, "macro_f1": report.macro_f1.value})


@dataclass(frozen=True)
class TagValidation:
    """Loss a word, the share of tags that are right, and where tags mark spans the F1 of these."""

    sentences: Sequence[Tagged]  # with tags that the model knows
    gold: Sequence[Sequence[str]]  # the tags as they are
    lexicon: Lexicon
    device: str

    def __call__(self, model: nn.Module) -> Findings:
        assert isinstance(model, AttentiveTagger)
        loss, found_at = 0.0, dict[int, list[str]]()
        for places in plan([(len(sentence.words),) * 2 for sentence in self.sentences], tokens=TOKENS).batches:
            batch = tag_batch([self.sentences[place] for place in places], self.lexicon).to(self.device)
            scores = model(batch)
            loss += float(model.loss(scores, batch))
            found_at |= zip(places, tags_in_words(model.best(scores, batch), batch, self.lexicon), strict=True)
        predicted = [found_at[place] for place in range(len(self.sentences))]
        pairs = [
            pair for ours, theirs in zip(predicted, self.gold, strict=True) for pair in zip(ours, theirs, strict=True)
        ]
        found = {"loss": loss / len(pairs), "accuracy": sum(ours == gold for ours, gold in pairs) / len(pairs)}
        if model.config.scheme != "plain":
            found["f1"] = span_report(predicted, self.gold).f1.value
        return Findings(found)


def tags_in_words(tags: Int[Tensor, "texts words"], batch: TagBatch, lexicon: Lexicon) -> list[list[str]]:
    """The tags of each sentence by their names."""
    rows = zip(tags.tolist(), batch.sentences.lengths.tolist(), strict=True)
    return [[lexicon.labels[tag] for tag in row[:length]] for row, length in rows]
