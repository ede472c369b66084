"""A tag for every word: contextual vectors from an rnn, from self-attention or both, and tags that fit together."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.crf import Crf
from regard.models.model import Model
from regard.models.reader import Encoder, Reader, ReaderConfig, WordEmbedding
from regard.schemes import SCHEMES, Scheme, allowed_transitions
from regard.sentences import NO_TAG, TagBatch
from regard.settings import check_known


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(ReaderConfig):
    """How words are read, and how tags are made of them."""

    scheme: Scheme = "plain"  # how the tags mark spans
    encoder: Encoder = "both"  # what tells words of each other: nothing, an rnn, self-attention, or one upon the other
    crf: bool = True  # learn which tag follows which; without it, tags are only kept to their scheme

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known(self, scheme=SCHEMES)


class AttentiveTagger(Model):
    """Sentences in, a score for each tag of each word out.

    What is answered keeps to the scheme of the tags, with a conditional random field and without.
    """

    residual_attentions = frozenset({"self"})

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.config = config
        self.reader = Reader(config)
        self.attentions = self.reader.attentions("reader")
        self.output = nn.Linear(self.reader.width, len(config.labels))
        start, between, end = allowed_transitions(config.labels, config.scheme)
        self.crf = Crf(len(config.labels), allowed=between, allowed_start=start, allowed_end=end)
        self.crf.requires_grad_(config.crf)

    @property
    def input_embedding(self) -> WordEmbedding:
        return self.reader.embedding

    def forward(self, batch: TagBatch) -> Float[Tensor, "texts words tags"]:
        """The score of each tag at each word."""
        scores: Tensor = self.output(self.reader(batch.sentences))
        return scores if self.config.crf else scores.log_softmax(-1)

    def loss(
        self,
        scores: Float[Tensor, "texts words tags"],
        batch: TagBatch,
        *,
        smoothing: float = 0.0,
        weights: Float[Tensor, " tags"] | None = None,
    ) -> Float[Tensor, ""]:
        """In nats, summed over all words; weights and smoothing are for tags that are chosen each for itself."""
        assert batch.tags is not None, "the tags are needed to learn from"
        if self.config.crf:
            return -self.crf.log_likelihood(scores.float(), batch.tags, batch.sentences.lengths).sum()
        return functional.cross_entropy(
            scores.flatten(0, 1).float(),
            batch.tags.flatten(),
            weight=weights,
            ignore_index=NO_TAG,
            label_smoothing=smoothing,
            reduction="sum",
        )

    def best(self, scores: Float[Tensor, "texts words tags"], batch: TagBatch) -> Int[Tensor, "texts words"]:
        """The tags that fit best, and together."""
        return self.crf.best(scores.float(), batch.sentences.lengths)[0]

    def probabilities(
        self, scores: Float[Tensor, "texts words tags"], batch: TagBatch
    ) -> Float[Tensor, "texts words tags"]:
        """How probable each tag of each word is, among all sequences of tags that keep to the scheme."""
        return self.crf.marginals(scores.float(), batch.sentences.lengths)
