"""Text classification: encode the words, pool them with learned attention, predict one or several labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.normalizers import NORMALIZERS
from regard.attention.scores import SCORES
from regard.bounds import Bounds, Heads, SmallCount
from regard.layers.attention import PROJECTED, get_score_settings
from regard.layers.dropout import Dropout
from regard.layers.pooling import POOLINGS, Pooling, PoolingKind
from regard.layers.recurrent import Recurrent
from regard.layers.source_attention import SourceAttention
from regard.models.model import Model
from regard.models.text_encoder import TextEncoder, TextEncoderConfig, WordEmbedding
from regard.sentences import LabelBatch, Sentences
from regard.settings import check_choices


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TextEncoderConfig):
    """Settings of `AttentiveClassifier`: text encoder, pooling, labels."""

    multi_label: bool = False  # allow several labels per text
    text_pairs: bool = False  # classify pairs of texts
    context_size: SmallCount = 0  # number of preceding utterances the model attends to
    pooling: PoolingKind = "attention"  # how word vectors are pooled into one text vector
    score: str = "additive"  # attention score function
    project: tuple[str, ...] = ("values",)  # which of query, keys and values get a linear projection in the pooling
    queries: Annotated[int, Bounds(1, 1000)] = 1  # number of learned queries in the attention pooling
    heads: Heads = 1  # number of attention heads
    normalizer: str = "softmax"  # how attention scores become weights: softmax, sparsemax, entmax15 or none

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, pooling=POOLINGS, score=SCORES, normalizer=NORMALIZERS, project=PROJECTED)

    @property
    def scores(self) -> tuple[str, ...]:
        return (self.score, self.attention_score)


class AttentiveClassifier(Model):
    """A classifier of texts, text pairs or utterances in a dialog.

    For two texts a and b, the output layer sees [a; b; |a - b|; a * b] (Mou et al. 2016).
    With `context_size`, a GRU runs over the vectors of the preceding utterances and the text;
    its last state attends to the earlier ones, and both are concatenated with the text vector.

    Attributes:
        threshold: With `multi_label`, the probability above which a text gets a label. Set by validation.

    Example:
        >>> config = ClassifierConfig(words=1000, pieces=50, labels=("negative", "positive"))
        >>> model = AttentiveClassifier(config)
    """

    threshold: Tensor
    residual_attentions = frozenset({"self"})
    context_attention = "look_back"  # path of the attention to preceding utterances, with `context_size`

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.reader = TextEncoder(config)
        self.pool = Pooling(
            config.pooling,
            self.reader.width,
            queries=config.queries,
            score=config.score,
            heads=config.heads,
            project=config.project,
            score_settings=get_score_settings(config),
            normalizer=config.normalizer,
            bidirectional=config.encoder == "rnn",
        )
        width = self.pool.width
        features = 4 * width if config.text_pairs else width
        if config.context_size:
            self.turns = Recurrent("gru", width, width)
            self.look_back = SourceAttention(
                width,
                width,
                config.score,
                project=("values",),
                learn_width=True,
                score_settings=get_score_settings(config),
            )
            features += width + self.look_back.width
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(features, len(config.labels))
        self.register_buffer("threshold", torch.tensor(0.5, dtype=torch.float64))
        pooling = {"pooling": ("pool.attention",)} if config.pooling == "attention" else {}
        self.attentions = {**pooling, **self.reader.get_attention_paths("reader")}

    @property
    def input_embedding(self) -> WordEmbedding:
        return self.reader.embedding

    def forward(self, batch: LabelBatch) -> Float[Tensor, "examples labels"]:
        """Return the logit of each label."""
        vectors = torch.cat([self.summarize(group) for group in batch.groups])
        text = vectors[batch.texts]
        features = text
        if self.config.text_pairs:
            assert batch.second_texts is not None, "text_pairs requires second texts"
            second = vectors[batch.second_texts]
            features = torch.cat([text, second, (text - second).abs(), text * second], -1)
        if self.config.context_size:
            assert batch.context is not None, "context_size requires a context"
            features = torch.cat([features, self._attend_context(text, vectors, batch.context)], -1)
        return self.output(self.dropout(features))

    def summarize(self, sentences: Sentences) -> Float[Tensor, "texts width"]:
        """Return one pooled vector per text."""
        return self.pool(self.reader(sentences), sentences.lengths)

    def _attend_context(
        self,
        text: Float[Tensor, "examples width"],
        vectors: Float[Tensor, "texts width"],
        context: Int[Tensor, "examples before"],
    ) -> Float[Tensor, "examples features"]:
        """Return the GRU state after the text and its attention to the context; zeros without context."""
        is_real = context >= 0
        previous = vectors[context.clamp_min(0)].where(is_real[..., None], 0)
        states, _ = self.turns(torch.cat([previous, text[:, None]], 1))
        memory = replace(self.look_back.remember(states[:, :-1]), visible=is_real[:, None, None])
        attended: Tensor = self.look_back(states[:, -1:], memory)
        return torch.cat([states[:, -1], attended[:, 0]], -1)

    def probabilities(self, logits: Float[Tensor, "examples labels"]) -> Float[Tensor, "examples labels"]:
        """Convert logits to probabilities: softmax over the labels, or a sigmoid per label with `multi_label`."""
        return logits.sigmoid() if self.config.multi_label else logits.softmax(-1)


def label_loss(
    logits: Float[Tensor, "examples labels"],
    targets: Int[Tensor, "examples labels"],
    *,
    multi_label: bool,
    smoothing: float = 0.0,
    weights: Float[Tensor, " labels"] | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy in nats, summed over the examples.

    Args:
        logits: As returned by `AttentiveClassifier`.
        targets: 1 for each label of an example, else 0. Without `multi_label`, an example without
            any label is ignored.
        multi_label: Score each label on its own (binary cross-entropy) instead of one label per example.
        smoothing: Label smoothing, from 0 to below 1.
        weights: Weight of each label: of examples that have it, or with `multi_label` of its positive targets.
    """
    logits, target_probabilities = logits.float(), targets.float()
    if multi_label:
        target_probabilities = target_probabilities * (1 - smoothing) + smoothing / 2
        return functional.binary_cross_entropy_with_logits(
            logits, target_probabilities, pos_weight=weights, reduction="sum"
        )
    has_label = target_probabilities.sum(-1, keepdim=True)
    target_probabilities = (
        target_probabilities * (1 - smoothing) + smoothing / target_probabilities.shape[-1]
    ) * has_label
    if weights is not None:
        target_probabilities = target_probabilities * (weights * targets).sum(-1, keepdim=True)
    return -(target_probabilities * logits.log_softmax(-1)).sum()
