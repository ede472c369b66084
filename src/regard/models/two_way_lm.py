"""A reader that learns from text without labels, as a language model in both directions (Peters et al. 2018)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.dropout import drop
from regard.models.reader import Reader
from regard.sentences import Sentences

OTHER, EDGE = 0, 1
"""What is told of a word that is none of the commonest, and where there is no word, before a text and after it."""


class Told(NamedTuple):
    """How badly words were told: in nats, summed over all of them; and how many they are."""

    forwards: Float[Tensor, ""]
    backwards: Float[Tensor, ""]
    words: Int[Tensor, ""]


class TwoWayLm(nn.Module):
    """The states of a reader's first recurrent layer tell the words around them.

    Those that have read from the beginning tell the next word, those from the end the word before. The layers upon it
    are not run, as they would see what they are to tell.

    Args:
        reader: What learns; it needs a recurrent layer.
        classes: What is told of each word, by its number; 1 is the edge of a text.
        unknown: The share of each word, by its number, that is made unknown in training.
        dropout: On words as they come in, and on the states that tell.
    """

    classes: Tensor
    unknown: Tensor

    def __init__(
        self,
        reader: Reader,
        classes: Int[Tensor, " words"],
        unknown: Float[Tensor, " words"],
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        assert reader.recurrent is not None, "a recurrent layer is needed"
        self.reader, self.dropout = reader, dropout
        self.register_buffer("classes", classes, persistent=False)
        self.register_buffer("unknown", unknown, persistent=False)
        self.hidden, told = reader.config.hidden, max(EDGE, int(classes.max())) + 1
        self.next, self.before = nn.Linear(self.hidden, told), nn.Linear(self.hidden, told)

    def forward(self, sentences: Sentences) -> Told:
        """How badly both neighbours of every word are told."""
        size = sentences.words.shape[1]
        real, places = sentences.lengths.real(size)[..., 0], sentences.lengths.places(size)
        states = drop(self.states(sentences), self.dropout, self.training)
        forwards, backwards = states.flatten(0, 1)[places].split(self.hidden, -1)
        after, before = (each.flatten()[places] for each in self.targets(sentences.words, real))
        return Told(
            functional.cross_entropy(self.next(forwards).float(), after, reduction="sum"),
            functional.cross_entropy(self.before(backwards).float(), before, reduction="sum"),
            real.sum(),
        )

    def states(self, sentences: Sentences) -> Float[Tensor, "texts words both"]:
        """The states of the first recurrent layer, of both directions."""
        assert self.reader.recurrent is not None
        inputs = drop(self.reader.embedding(sentences, self.unknown), self.dropout, self.training)
        return self.reader.recurrent.first_layer(inputs, sentences.lengths)

    def targets(
        self, words: Int[Tensor, "texts words"], real: Bool[Tensor, "texts words"]
    ) -> tuple[Int[Tensor, "texts words"], Int[Tensor, "texts words"]]:
        """What is to be told at each word: of the next one, and of the one before."""
        told = self.classes[words].where(real, EDGE)
        edge = torch.full_like(told[:, :1], EDGE)
        return torch.cat([told[:, 1:], edge], 1), torch.cat([edge, told[:, :-1]], 1)
