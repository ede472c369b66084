"""Pretrain a text encoder on unlabeled text, as a bidirectional language model (Peters et al. 2018)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.dropout import drop
from regard.models.text_encoder import TextEncoder
from regard.sentences import Sentences

OTHER, EDGE = 0, 1
"""Target classes of rare words, and of the positions before and after a text."""


class BidirectionalLoss(NamedTuple):
    """The losses of both directions in nats, summed over all words, and the number of words."""

    forwards: Float[Tensor, ""]
    backwards: Float[Tensor, ""]
    words: Int[Tensor, ""]


class BidirectionalLm(nn.Module):
    """A bidirectional language model on the first recurrent layer of a text encoder.

    Forward states predict the next word, backward states the previous one. Higher layers
    are not run: they would see the words to predict.

    Args:
        reader: The text encoder to train; requires a recurrent layer.
        classes: The target class of each word id; 1 marks the edges of a text.
        unknown: For each word id, how often it is replaced by <unk> in training.
        dropout: Dropout on the word vectors and on the states.
    """

    classes: Tensor
    unknown: Tensor

    def __init__(
        self,
        reader: TextEncoder,
        classes: Int[Tensor, " words"],
        unknown: Float[Tensor, " words"],
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        assert reader.recurrent is not None, "requires a recurrent layer"
        self.reader, self.dropout = reader, dropout
        self.register_buffer("classes", classes, persistent=False)
        self.register_buffer("unknown", unknown, persistent=False)
        self.hidden, class_count = reader.config.hidden, max(EDGE, int(classes.max())) + 1
        self.next, self.before = nn.Linear(self.hidden, class_count), nn.Linear(self.hidden, class_count)

    def forward(self, sentences: Sentences) -> BidirectionalLoss:
        """Return the loss of predicting both neighbors of every word."""
        size = sentences.word_ids.shape[1]
        real, indices = sentences.lengths.real(size)[..., 0], sentences.lengths.real_indices(size)
        states = drop(self.states(sentences), self.dropout, self.training)
        forwards, backwards = states.flatten(0, 1)[indices].split(self.hidden, -1)
        after, before = (targets.flatten()[indices] for targets in self.targets(sentences.word_ids, real))
        return BidirectionalLoss(
            functional.cross_entropy(self.next(forwards).float(), after, reduction="sum"),
            functional.cross_entropy(self.before(backwards).float(), before, reduction="sum"),
            real.sum(),
        )

    def states(self, sentences: Sentences) -> Float[Tensor, "texts words both"]:
        """Return the states of the first recurrent layer, both directions concatenated."""
        assert self.reader.recurrent is not None
        inputs = drop(self.reader.embedding(sentences, self.unknown), self.dropout, self.training)
        return self.reader.recurrent.run_first_layer(inputs, sentences.lengths)

    def targets(
        self, words: Int[Tensor, "texts words"], real: Bool[Tensor, "texts words"]
    ) -> tuple[Int[Tensor, "texts words"], Int[Tensor, "texts words"]]:
        """Return the target classes at each word: of the next word, and of the previous one."""
        word_classes = self.classes[words].where(real, EDGE)
        edge = torch.full_like(word_classes[:, :1], EDGE)
        return torch.cat([word_classes[:, 1:], edge], 1), torch.cat([edge, word_classes[:, :-1]], 1)
