"""The encoder of classifiers and taggers: a contextual vector for every word of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.scores import SCORE_ACTIVATIONS, SCORES
from regard.attention.visible import lengths as visible_lengths
from regard.batch import PAD, UNKNOWN
from regard.bounds import Bounds, Count, Heads, Layers, Power, Share, VocabularySize, Width, check_bounds
from regard.errors import RegardError
from regard.layers.attention import SCORE_SETTINGS, check_score_settings
from regard.layers.character_encoder import (
    CHARACTER_ENCODERS,
    KERNEL_SIZES,
    CharacterEncoder,
    CharacterEncoderKind,
    CharacterNgrams,
    check_character_encoder,
)
from regard.layers.dropout import Dropout, VariationalDropout
from regard.layers.embedding import call_embedding_hooks, new_embedding
from regard.layers.positions import PositionalEncoding
from regard.layers.recurrent import Cell, Recurrent
from regard.layers.transformer import LayerConfig, TransformerStack
from regard.sentences import Sentences
from regard.settings import check_choices

EncoderKind = Literal["embedding", "rnn", "attention", "both"]
KernelSize = Annotated[int, Bounds(1, 1000)]
ENCODERS: tuple[EncoderKind, ...] = get_args(EncoderKind)


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig:
    """Settings of `TextEncoder`."""

    words: VocabularySize  # number of words in the vocabulary
    pieces: VocabularySize  # number of characters (or other pieces of words) in the vocabulary
    labels: tuple[str, ...]  # labels to predict
    vectors: Count = 0  # number of words with a pretrained vector
    vectors_width: Annotated[int, Bounds(0, 100_000)] = 0  # width of the pretrained vectors
    unlabeled: Count = 0  # number of words, at the end of the vocabulary, that occur only in unlabeled text
    fine_tune_vectors: bool = False  # update the pretrained vectors in training
    embedding: Width = 100  # width of the embeddings
    char_encoder: CharacterEncoderKind = "max"  # character encoder: max or attention pooling of convolutions, or an rnn
    char_width: Width = 50  # output width of the character encoder
    char_kernel_sizes: tuple[KernelSize, ...] = KERNEL_SIZES  # kernel sizes of the character convolutions
    char_boundaries: bool = False  # mark the start and end of a word in the character encoder
    char_dropout: Share = 0.0  # dropout on character embeddings
    char_ngrams: Count = 0  # number of hashed vectors of character n-grams (length 2 to 4), as in fastText; 0 for none
    encoder: EncoderKind = "rnn"  # layers on top of the embeddings; both: self-attention on top of an rnn
    cell: Cell = "lstm"  # recurrent cell; rnn is a plain tanh cell, rnn-sigmoid a plain sigmoid cell
    hidden: Annotated[int, Bounds(1, 50_000)] = 100  # width of the recurrent state, per direction
    layers: Layers = 1  # number of recurrent layers
    attention_layers: Layers = 1  # number of self-attention layers
    attention_heads: Heads = 4  # number of heads in each self-attention layer
    attention_score: str = "scaled_dot"  # score function of the self-attention layers
    score_rank: Width | None = None  # rank of the score reduced_rank; a quarter of the smaller width by default
    score_hidden: Width | None = None  # hidden width of the scores additive and concat; that of the query by default
    score_activation: Literal["tanh", "relu", "sigmoid"] = "tanh"  # activation of the score additive
    score_power: Power = 1.0  # power of the score epanechnikov; 2 is the kernel of textbooks
    dropout: Share = 0.5  # dropout on embeddings, between layers, and before the output layer
    variational_dropout: bool = False  # use the same dropout mask at all positions, except inside self-attention
    weight_dropout: Share = 0.0  # dropout on the recurrent weights
    word_dropout: Share = 0.1  # share of words replaced by <unk> in training
    rare_word_dropout: Share = 0.0  # word_dropout of the rarer half of the vocabulary, if higher

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.unlabeled > self.words:
            raise RegardError(f"unlabeled must be at most words ({self.words}), got {self.unlabeled}")
        if self.vectors and not self.vectors_width:
            raise RegardError("vectors_width must be at least 1, got 0")
        if self.fine_tune_vectors and not self.vectors:
            raise RegardError("fine_tune_vectors requires pretrained vectors; pass --vectors FILE")
        if len(self.labels) < 2:
            raise RegardError(f"expected at least 2 different labels, got {list(self.labels)}")
        check_choices(self, encoder=ENCODERS, char_encoder=CHARACTER_ENCODERS, attention_score=SCORES)
        check_choices(self, score_activation=SCORE_ACTIVATIONS)
        check_score_settings(self, *self.scores)
        check_character_encoder(self.char_encoder, self.char_width, self.char_kernel_sizes)
        if self.cell.startswith("rnn") and (self.variational_dropout or self.weight_dropout):
            raise RegardError(
                f'variational_dropout and weight_dropout require cell = "gru" or "lstm", got "{self.cell}"'
            )
        if self.encoder in ("attention", "both") and 2 * self.hidden % self.attention_heads:
            raise RegardError(f"attention_heads must divide 2 * hidden ({2 * self.hidden}), got {self.attention_heads}")

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of all scores, to which the settings of scores apply."""
        return (self.attention_score,)


class WordEmbedding(nn.Module):
    """A vector per word, without context: embedding, pretrained vector and character encoding, concatenated.

    Attributes:
        vectors: Pretrained vectors; row 0 is zeros, for words without one. A buffer, or a parameter
            with `fine_tune_vectors`.
    """

    vectors: Tensor | None

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.words = new_embedding(config.words, config.embedding, PAD, is_output=True)
        self.width = config.embedding
        vectors = torch.zeros(config.vectors + 1, config.vectors_width) if config.vectors else None
        if vectors is not None and config.fine_tune_vectors:
            self.vectors = nn.Parameter(vectors)
            self.vectors.learned_elsewhere = True  # type: ignore[attr-defined]
        else:
            self.register_buffer("vectors", vectors)
        self.width += 0 if vectors is None else config.vectors_width
        self.char_encoder = self.char_ngrams = None
        if config.char_encoder != "none":
            self.char_encoder = CharacterEncoder(
                config.char_encoder,
                config.pieces,
                config.char_width,
                padding=PAD,
                kernel_sizes=config.char_kernel_sizes,
                edges=config.char_boundaries,
                dropout=config.char_dropout,
            )
            self.width += config.char_width
        if config.char_ngrams:
            self.char_ngrams = CharacterNgrams(config.pieces, config.char_ngrams, config.embedding, padding=PAD)
            self.width += config.embedding

    def forward(
        self, sentences: Sentences, unknown: Float[Tensor, " known"] | None = None
    ) -> Float[Tensor, "texts words embedding"]:
        """Return a vector for each word.

        In training, some words are replaced by <unk> but keep their pretrained vector, like
        unseen words at test time. How often is set by the config, or per word id by `unknown`.
        """
        words = [self.words(self._drop_words(sentences.word_ids, unknown))]
        if self.vectors is not None:
            assert sentences.vector_ids is not None, "pretrained vectors require vector_ids"
            words.append(functional.embedding(sentences.vector_ids, self.vectors, padding_idx=0))
        if self.char_encoder is not None:
            words.append(self.char_encoder(sentences.spellings, sentences.piece_lengths)[sentences.spelling_rows])
        if self.char_ngrams is not None:
            words.append(self.char_ngrams(sentences.spellings)[sentences.spelling_rows])
        return call_embedding_hooks(self, sentences, torch.cat(words, -1))

    def set_vectors(self, vectors: Float[Tensor, "words width"]) -> None:
        """Set the pretrained vectors, without copying them; row 0 must be zeros."""
        assert self.vectors is not None and vectors.shape == self.vectors.shape
        self.vectors.data = vectors

    def _drop_words(
        self, words: Int[Tensor, "texts words"], unknown: Float[Tensor, " known"] | None = None
    ) -> Int[Tensor, "texts words"]:
        """Replace some words by <unk> in training, so that the model learns to handle unseen words.

        About half of the words of a corpus occur only once; the model would memorize their vectors.
        """
        share = self.config.word_dropout
        rare = max(share, self.config.rare_word_dropout)
        if not self.training or (unknown is None and not rare):
            return words
        labeled = self.config.words - self.config.unlabeled  # their ids are ordered by frequency
        shares = torch.where(words < labeled // 2, share, rare) if unknown is None else unknown[words]
        return words.masked_fill((torch.rand(words.shape, device=words.device) < shares) & (words != PAD), UNKNOWN)


def get_settings_of_score(config: TextEncoderConfig, score: str) -> dict[str, Any]:
    """Return the settings of a config that apply to a score."""
    return {name: getattr(config, name) for name, scores in SCORE_SETTINGS.items() if score in scores}


class TextEncoder(nn.Module):
    """An encoder of words and their characters: a contextual vector of width `self.width` per word."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = WordEmbedding(config)
        width = self.embedding.width
        self.dropout = (VariationalDropout if config.variational_dropout else Dropout)(config.dropout)
        self.recurrent = self.project = self.stack = None
        if config.encoder in ("rnn", "both"):
            self.recurrent = Recurrent(
                config.cell,
                width,
                config.hidden,
                config.layers,
                bidirectional=True,
                dropout=config.dropout,
                variational=config.variational_dropout,
                weight_dropout=config.weight_dropout,
            )
            width = self.recurrent.width
        if config.encoder in ("attention", "both"):
            layer = LayerConfig(
                width=2 * config.hidden,
                heads=config.attention_heads,
                score=config.attention_score,
                **get_settings_of_score(config, config.attention_score),
                norm="pre",
                dropout=config.dropout,
            )
            if self.recurrent is None:  # recurrent states need neither positions nor a projection
                self.project = nn.Linear(width, layer.width)
                self.positions = PositionalEncoding(
                    "sinusoidal", layer.width, head_width=layer.width_per_head, scale=0.5
                )
            self.stack = TransformerStack(layer, config.attention_layers, gated=self.recurrent is not None)
            width = layer.width
        self.width = width

    def get_attention_paths(self, prefix: str) -> dict[str, tuple[str, ...]]:
        """Return the self-attention entry of `Model.attentions`, for an encoder at the path `prefix`."""
        return {} if self.stack is None else {"self": self.stack.get_attention_paths(f"{prefix}.stack", "attention")}

    def forward(self, sentences: Sentences) -> Float[Tensor, "texts words width"]:
        """Return a vector for each word; values at padding are meaningless."""
        x = self.dropout(self.embedding(sentences))
        if self.recurrent is not None:
            x, _ = self.recurrent(x, sentences.lengths)
        if self.project is not None:
            x = self.project(x)
            positions = self.positions(x.shape[1], x).added
            assert positions is not None
            x = x + positions
        if self.stack is not None:
            x = self.stack(x, visible=visible_lengths(sentences.lengths.on_device))
        return self.dropout(x)
