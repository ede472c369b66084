"""Sequence tagging: encode the words, then predict a consistent sequence of tags."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.crf import Crf
from regard.models.model import Model
from regard.models.text_encoder import EncoderKind, TextEncoder, TextEncoderConfig, WordEmbedding
from regard.schemes import SCHEMES, Scheme, build_transitions
from regard.sentences import NO_TAG, TagBatch
from regard.settings import check_choices


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(TextEncoderConfig):
    """Settings of `AttentiveTagger`: text encoder, tagging scheme, output layer."""

    scheme: Scheme = "plain"  # tagging scheme: how tags mark spans
    encoder: EncoderKind = "both"  # layers on top of the embeddings; both: self-attention on top of an rnn
    crf: bool = True  # learn transitions between tags (CRF); without it, tags are only constrained by the scheme

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, scheme=SCHEMES)


class AttentiveTagger(Model):
    """A tagger of words. Decoded tags always follow the tagging scheme, with or without a CRF.

    Example:
        >>> model = AttentiveTagger(TaggerConfig(words=1000, pieces=50, labels=("O", "B-PER", "I-PER"), scheme="BIO"))
    """

    residual_attentions = frozenset({"self"})

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.config = config
        self.reader = TextEncoder(config)
        self.attentions = self.reader.get_attention_paths("reader")
        self.output = nn.Linear(self.reader.width, len(config.labels))
        start, between, end = build_transitions(config.labels, config.scheme)
        self.crf = Crf(len(config.labels), allowed=between, allowed_start=start, allowed_end=end)
        self.crf.requires_grad_(config.crf)

    @property
    def input_embedding(self) -> WordEmbedding:
        return self.reader.embedding

    def forward(self, batch: TagBatch) -> Float[Tensor, "texts words tags"]:
        """Return the score of each tag at each word: log-probabilities without a CRF."""
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
        """Return the loss in nats, summed over all words; `weights` and `smoothing` apply only without a CRF."""
        assert batch.tags is not None, "the loss requires tags"
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

    def decode(self, scores: Float[Tensor, "texts words tags"], batch: TagBatch) -> Int[Tensor, "texts words"]:
        """Return the most probable sequence of tags (Viterbi)."""
        return self.crf.decode(scores.float(), batch.sentences.lengths)[0]

    def probabilities(
        self, scores: Float[Tensor, "texts words tags"], batch: TagBatch
    ) -> Float[Tensor, "texts words tags"]:
        """Return the marginal probability of each tag at each word, over all sequences the scheme allows."""
        return self.crf.marginals(scores.float(), batch.sentences.lengths)
