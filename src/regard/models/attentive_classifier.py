"""One label or several for a text: attention with a learned query over its words, and a label from what it finds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.normalise import NORMALISERS
from regard.attention.scores import SCORES
from regard.layers.dropout import Dropout
from regard.layers.pooling import POOLINGS, How, Pooling
from regard.layers.recurrent import Recurrent
from regard.layers.source import SourceAttention
from regard.models.model import Model
from regard.models.reader import Reader, ReaderConfig, WordEmbedding
from regard.sentences import LabelBatch, Sentences
from regard.settings import check_known, check_least


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ReaderConfig):
    """How words are read, and how a label is made of them."""

    several: bool = False  # whether a text can have several labels
    pairs: bool = False  # whether two texts are labelled together
    before: int = 0  # utterances before a text that it looks at, too
    pooling: How = "attention"  # of the words of a text: attention, or mean, sum, max, last, to compare it with
    score: str = "additive"  # how well a word answers the query
    queries: int = 1  # learned queries, each of which looks at the text
    heads: int = 1  # attentions of each, side by side
    normaliser: str = "softmax"  # softmax, sparsemax, entmax15 or none

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "queries", "heads")
        check_least(self, 0, "before")
        check_known(self, pooling=POOLINGS, score=SCORES, normaliser=NORMALISERS)


class AttentiveClassifier(Model):
    """Texts in, a logit for each label out.

    Of two texts, a and b, the label is made of [a; b; |a - b|; a b] (Mou et al. 2016). The
    utterances before a text are read like it, and an rnn goes from the oldest of them to the
    text; its last state looks at those before it, and what it finds stands beside it and the text.

    `threshold` is the probability from which on a text has a label, where it can have
    several; validation sets it.
    """

    threshold: Tensor
    residual_attentions = frozenset({"self"})
    context_attention = "look_back"  # path of the attention to the utterances before, where there are some

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.reader = Reader(config)
        self.pool = Pooling(
            config.pooling,
            self.reader.width,
            queries=config.queries,
            score=config.score,
            heads=config.heads,
            normaliser=config.normaliser,
            bidirectional=config.encoder == "rnn",
        )
        width = self.pool.width
        features = 4 * width if config.pairs else width
        if config.before:
            self.turns = Recurrent("gru", width, width)
            self.look_back = SourceAttention(width, width, config.score, project=("values",), learn_width=True)
            features += width + self.look_back.width
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(features, len(config.labels))
        self.register_buffer("threshold", torch.tensor(0.5, dtype=torch.float64))
        pooling = {"pooling": ("pool.attention",)} if config.pooling == "attention" else {}
        self.attentions = {**pooling, **self.reader.attentions("reader")}

    @property
    def input_embedding(self) -> WordEmbedding:
        return self.reader.embedding

    def forward(self, batch: LabelBatch) -> Float[Tensor, "examples labels"]:
        """The logit of each label."""
        vectors = torch.cat([self.summary(group) for group in batch.groups])
        text = vectors[batch.texts]
        found = text
        if self.config.pairs:
            assert batch.seconds is not None, "pairs of texts are labelled"
            second = vectors[batch.seconds]
            found = torch.cat([text, second, (text - second).abs(), text * second], -1)
        if self.config.before:
            assert batch.context is not None, "the texts before are looked at"
            found = torch.cat([found, self._before(text, vectors, batch.context)], -1)
        return self.output(self.dropout(found))

    def summary(self, sentences: Sentences) -> Float[Tensor, "texts width"]:
        """One vector for each text."""
        return self.pool(self.reader(sentences), sentences.lengths)

    def _before(
        self,
        text: Float[Tensor, "examples width"],
        vectors: Float[Tensor, "texts width"],
        context: Int[Tensor, "examples before"],
    ) -> Float[Tensor, "examples features"]:
        """What a text is after those before it, and what it finds in them; nothing where there are none."""
        known = context >= 0
        before = vectors[context.clamp_min(0)].where(known[..., None], 0)
        states, _ = self.turns(torch.cat([before, text[:, None]], 1))
        memory = replace(self.look_back.remember(states[:, :-1]), visible=known[:, None, None])
        found: Tensor = self.look_back(states[:, -1:], memory)
        return torch.cat([states[:, -1], found[:, 0]], -1)

    def probabilities(self, logits: Float[Tensor, "examples labels"]) -> Float[Tensor, "examples labels"]:
        """How probable each label is: all together one, or where there can be several each by itself."""
        return logits.sigmoid() if self.config.several else logits.softmax(-1)


def label_loss(
    logits: Float[Tensor, "examples labels"],
    targets: Int[Tensor, "examples labels"],
    *,
    several: bool,
    smoothing: float = 0.0,
    weights: Float[Tensor, " labels"] | None = None,
) -> Float[Tensor, ""]:
    """The cross-entropy in nats, summed over the examples: of the label, or of each label by itself.

    An example whose label is not known, none of its targets being 1, adds nothing where it must
    have one. Weights are for classes that are rare: of each example, or of each label that it has.
    """
    logits, asked = logits.float(), targets.float()
    if several:
        asked = asked * (1 - smoothing) + smoothing / 2
        return functional.binary_cross_entropy_with_logits(logits, asked, pos_weight=weights, reduction="sum")
    known = asked.sum(-1, keepdim=True)
    asked = (asked * (1 - smoothing) + smoothing / asked.shape[-1]) * known
    if weights is not None:
        asked = asked * (weights * targets).sum(-1, keepdim=True)
    return -(asked * logits.log_softmax(-1)).sum()
