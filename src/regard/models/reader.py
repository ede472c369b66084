"""What labels and tags are made of: a vector for every word of a text, that knows the words around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.scores import SCORES
from regard.attention.visible import lengths as visible_lengths
from regard.batch import PAD, UNKNOWN
from regard.errors import RegardError
from regard.layers.dropout import Dropout, VariationalDropout
from regard.layers.embedding import new_embedding, tell_listeners
from regard.layers.positions import Positions
from regard.layers.recurrent import Cell, Recurrent
from regard.layers.spelling import REACHES, SPELT, LetterRuns, Spelling, Spelt, check_reading
from regard.layers.transformer import LayerConfig, TransformerStack
from regard.sentences import Sentences
from regard.settings import check_known, check_least, check_shares

Encoder = Literal["embedding", "rnn", "attention", "both"]
ENCODERS: tuple[Encoder, ...] = get_args(Encoder)


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """How words are read."""

    words: int  # how many there are
    pieces: int  # how many letters, or other pieces of words
    labels: tuple[str, ...]  # what is to be told of a text, or of a word
    vectors: int = 0  # how many words have a vector that was learnt elsewhere
    vectors_width: int = 0  # width of such a vector
    unlabelled: int = 0  # how many of the words, the last ones, only unlabelled text has
    tune_vectors: bool = False  # go on learning the vectors that were learnt elsewhere
    embedding: int = 100  # width of a word
    spelling: Spelt = "max"  # whether the letters of a word are read, and how: max or attention of convolutions, or rnn
    spelling_width: int = 50  # width of what is made of them
    spelling_reaches: tuple[int, ...] = REACHES  # letters that convolutions read together, side by side: 2,3,4,5
    spelling_edges: bool = False  # tell the beginning and the end of a word from its middle
    spelling_dropout: float = 0.0  # on letters as they come in
    letter_runs: int = 0  # vectors for runs of two to four letters, shared by a hash, as fastText's; 0 has none
    encoder: Encoder = "rnn"  # what tells words of each other: nothing, an rnn, self-attention, or one upon the other
    cell: Cell = "lstm"  # rnn (tanh), gru or lstm
    hidden: int = 100  # width of a state, of each direction
    layers: int = 1  # recurrent layers
    attention_layers: int = 1  # of self-attention
    attention_heads: int = 4  # attentions of such a layer, side by side
    attention_score: str = "scaled_dot"  # how well one word answers another, in these layers
    dropout: float = 0.5  # on words as they come in, between layers, and on what comes out
    variational: bool = False  # drop the same numbers of all words of a text, but within self-attention
    weight_dropout: float = 0.0  # on the weights from state to state of an rnn
    word_dropout: float = 0.1  # the share of words that are made unknown, in training
    rare_word_dropout: float = 0.0  # the same of the rarer half of the known words, where it is more

    def __post_init__(self) -> None:
        counts = ("words", "pieces", "embedding", "spelling_width", "hidden", "layers", "attention_layers")
        check_least(self, 1, *counts, "attention_heads")
        check_least(self, 0, "letter_runs")
        if not 0 <= self.unlabelled <= self.words:
            raise RegardError(f"unlabelled is {self.unlabelled}; a number from 0 to {self.words}, of words, is needed")
        if self.vectors:
            check_least(self, 1, "vectors_width")
        if self.tune_vectors and not self.vectors:
            raise RegardError("tune_vectors is true, but there are no vectors; give --vectors FILE, or leave it out")
        if len(self.labels) < 2:
            raise RegardError(f"labels are {list(self.labels)}; two that differ are the least")
        check_known(self, encoder=ENCODERS, spelling=SPELT, attention_score=SCORES)
        check_reading(self.spelling, self.spelling_width, self.spelling_reaches)
        check_shares(self, "dropout", "spelling_dropout", "weight_dropout", "word_dropout", "rare_word_dropout")
        if self.cell == "rnn" and (self.variational or self.weight_dropout):
            raise RegardError("cell is rnn, which variational and weight_dropout are not made for; take gru or lstm")
        if self.encoder in ("attention", "both") and 2 * self.hidden % self.attention_heads:
            raise RegardError(
                f"attention_heads: {self.attention_heads} do not divide 2 * hidden, which is {2 * self.hidden}"
            )


class WordEmbedding(nn.Module):
    """Each word by itself: its vector, the one that was learnt elsewhere, and those of its spelling.

    `vectors` are those that were learnt elsewhere; the first is nothing, for words without one. Unless they are
    tuned they are a buffer: what is no parameter is neither learnt, nor decayed, nor counted.
    """

    vectors: Tensor | None

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.words = new_embedding(config.words, config.embedding, PAD, is_output=True)
        self.width = config.embedding
        vectors = torch.zeros(config.vectors + 1, config.vectors_width) if config.vectors else None
        if vectors is not None and config.tune_vectors:
            self.vectors = nn.Parameter(vectors)
            self.vectors.learnt_elsewhere = True  # type: ignore[attr-defined]
        else:
            self.register_buffer("vectors", vectors)
        self.width += 0 if vectors is None else config.vectors_width
        self.spelling = self.runs = None
        if config.spelling != "none":
            self.spelling = Spelling(
                config.spelling,
                config.pieces,
                config.spelling_width,
                padding=PAD,
                reaches=config.spelling_reaches,
                edges=config.spelling_edges,
                dropout=config.spelling_dropout,
            )
            self.width += config.spelling_width
        if config.letter_runs:
            self.runs = LetterRuns(config.pieces, config.letter_runs, config.embedding, padding=PAD)
            self.width += config.embedding

    def forward(
        self, sentences: Sentences, unknown: Float[Tensor, " known"] | None = None
    ) -> Float[Tensor, "texts words embedding"]:
        """A vector for each word.

        A word that is made unknown keeps the one learnt elsewhere, as one that was never seen in training has it.
        How many are made so is told by the settings, or for each word, by its number, by `unknown`.
        """
        words = [self.words(self._some_unknown(sentences.words, unknown))]
        if self.vectors is not None:
            assert sentences.vectors is not None, "the numbers of the vectors are needed"
            words.append(functional.embedding(sentences.vectors, self.vectors, padding_idx=0))
        if self.spelling is not None:
            words.append(self.spelling(sentences.spellings, sentences.pieces)[sentences.spelt])
        if self.runs is not None:
            words.append(self.runs(sentences.spellings)[sentences.spelt])
        return tell_listeners(self, sentences, torch.cat(words, -1))

    def take_vectors(self, vectors: Float[Tensor, "words width"]) -> None:
        """Begin with vectors that were learnt elsewhere, as they are, without a copy; the first is nothing."""
        assert self.vectors is not None and vectors.shape == self.vectors.shape
        self.vectors.data = vectors

    def _some_unknown(
        self, words: Int[Tensor, "texts words"], unknown: Float[Tensor, " known"] | None = None
    ) -> Int[Tensor, "texts words"]:
        """In training, some words are made unknown, so that it is learnt what to do with such.

        About half of the words of a corpus are seen there once; their own vectors would be learnt by heart.
        """
        share = self.config.word_dropout
        rare = max(share, self.config.rare_word_dropout)
        if not self.training or (unknown is None and not rare):
            return words
        labelled = self.config.words - self.config.unlabelled  # which are numbered by how frequent they are
        shares = torch.where(words < labelled // 2, share, rare) if unknown is None else unknown[words]
        return words.masked_fill((torch.rand(words.shape, device=words.device) < shares) & (words != PAD), UNKNOWN)


class Reader(nn.Module):
    """Words and their spelling in, a vector of width `self.width` for each word out."""

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = WordEmbedding(config)
        width = self.embedding.width
        self.dropout = (VariationalDropout if config.variational else Dropout)(config.dropout)
        self.recurrent = self.project = self.stack = None
        if config.encoder in ("rnn", "both"):
            self.recurrent = Recurrent(
                config.cell,
                width,
                config.hidden,
                config.layers,
                bidirectional=True,
                dropout=config.dropout,
                variational=config.variational,
                weight_dropout=config.weight_dropout,
            )
            width = self.recurrent.width
        if config.encoder in ("attention", "both"):
            layer = LayerConfig(
                width=2 * config.hidden,
                heads=config.attention_heads,
                score=config.attention_score,
                norm="pre",
                dropout=config.dropout,
            )
            if self.recurrent is None:  # the states of an rnn know their places, and pass as they are
                self.project = nn.Linear(width, layer.width)
                self.positions = Positions("sinusoidal", layer.width, head_width=layer.head_width, scale=0.5)
            self.stack = TransformerStack(layer, config.attention_layers, adding=self.recurrent is not None)
            width = layer.width
        self.width = width

    def attentions(self, own: str) -> dict[str, tuple[str, ...]]:
        """Where words look at words, as `Model.attentions` of a model that has the reader at the path `own`."""
        return {} if self.stack is None else {"self": self.stack.paths(f"{own}.stack", "attention")}

    def forward(self, sentences: Sentences) -> Float[Tensor, "texts words width"]:
        """A vector for each word; what stands at padding means nothing."""
        x = self.dropout(self.embedding(sentences))
        if self.recurrent is not None:
            x, _ = self.recurrent(x, sentences.lengths)
        if self.project is not None:
            x = self.project(x)
            places = self.positions(x.shape[1], x).added
            assert places is not None
            x = x + places
        if self.stack is not None:
            x = self.stack(x, visible=visible_lengths(sentences.lengths.on_device))
        return self.dropout(x)
