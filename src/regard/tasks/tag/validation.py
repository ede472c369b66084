"""How good a tagger is while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor, nn

from regard.data.batches import plan
from regard.data.label_batches import tag_batch
from regard.data.tagged import Tagged
from regard.metrics.spans import span_report
from regard.models.attentive_tagger import AttentiveTagger
from regard.sentences import TagBatch
from regard.text.lexicon import Lexicon
from regard.training.loop import Findings

TOKENS = 8192
"""Words of a batch, where nothing is learnt."""


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
