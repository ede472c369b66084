"""Attribution methods, shared by all models.

A `Subject` is a prediction to explain: it returns the log-probability of the prediction with
and without each input word, and the attention of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.alignment import to_numpy
from regard.attention.weights import Weights
from regard.attribution.explanation import ATTENTION, GRADIENT_X_INPUT, LEAVE_ONE_OUT, METHODS, Explanation
from regard.decoding.steps import NOT_FINITE
from regard.errors import RegardError
from regard.layers.embedding import EmbeddingCall, record_calls
from regard.text.units import TextUnit

TOKENS = 8192
"""Maximum number of words or tokens in a leave-one-out batch."""

DIGITS = 5
"""Digits to keep of scores in nats. Further digits vary with the batch and would rank irrelevant words."""

NOTED = 0.005
"""Share of attention outside of the words above which a note is added."""

CUDNN = Lock()
"""Held by the thread that disabled cuDNN."""


class AttentionShares(NamedTuple):
    """Shares of the attention on each word, and on everything else."""

    shares: Float[np.ndarray, " words"]
    elsewhere: float = 0.0


class Subject(ABC):
    """A prediction to explain, and the words of its input."""

    words: tuple[str, ...]
    embedding: nn.Module  # embeds the words
    size: int  # length of the text in words or tokens of the model
    without_attention: str  # reason for missing attention weights
    unit: str = "word"  # what `words` are: words or characters

    @abstractmethod
    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        """Return the log-probability of the prediction without each of the given words; None keeps all words."""

    @abstractmethod
    def compute_attention(self) -> dict[str, AttentionShares]:
        """Return the attention shares by method; empty for a model without attention."""

    @abstractmethod
    def merge_by_word(self, calls: Sequence[EmbeddingCall], numbers: Sequence[Float[Tensor, "..."]]) -> Sequence[float]:
        """Sum the scores of all embedded tokens per word."""

    @abstractmethod
    def describe(self, log_probability: float) -> str:
        """Describe the prediction in words."""


def explain_subject(subject: Subject) -> Explanation:
    """Explain a prediction by all methods that its model supports."""
    with torch.no_grad():
        whole = float(subject.log_probabilities([None]))
        attention = subject.compute_attention()
    if not isfinite(whole):
        raise RegardError(f"explain: {NOT_FINITE}")
    scores: dict[str, Sequence[float]] = {method: look.shares.tolist() for method, look in attention.items()}
    scores |= {
        GRADIENT_X_INPUT: compute_gradient_x_input(subject),
        LEAVE_ONE_OUT: compute_leave_one_out(subject, whole),
    }
    values = {method: tuple(scores[method]) for method in METHODS if method in scores}
    notes = tuple(collect_notes(subject, attention))
    return Explanation(subject.words, subject.describe(whole), whole, values, notes, subject.unit)


def collect_notes(subject: Subject, attention: dict[str, AttentionShares]) -> Iterator[str]:
    """Yield notes about attention that is missing or outside of the words."""
    if ATTENTION not in attention:
        yield f"attention is not shown: {subject.without_attention}"
    elif attention[ATTENTION].elsewhere > NOTED:
        yield f"{attention[ATTENTION].elsewhere:.2f} of the attention is outside of these {subject.unit}s"


def compute_gradient_x_input(subject: Subject) -> Sequence[float]:
    """Return the gradient of the log-probability with respect to each word embedding, times the embedding.

    To first order, this is how much the log-probability drops when the embedding is set to zero.
    """
    with torch.enable_grad(), disable_cudnn(subject.embedding), record_calls(subject.embedding) as calls:
        gradients = torch.autograd.grad(
            subject.log_probabilities([None]).sum(), [call.vectors for call in calls], materialize_grads=True
        )
    products = [(call.vectors * gradient).sum(-1).detach() for call, gradient in zip(calls, gradients, strict=True)]
    return subject.merge_by_word(calls, products)


@torch.no_grad()
def compute_leave_one_out(subject: Subject, whole: float) -> list[float]:
    """Return how much the log-probability drops when each word is removed."""
    words, at_once = list(range(len(subject.words))), max(1, TOKENS // subject.size)
    parts = [subject.log_probabilities(words[at : at + at_once]) for at in range(0, len(words), at_once)]
    return [
        round(whole - log_probability, DIGITS) + 0.0 for log_probability in torch.cat(parts).tolist()
    ]  # + 0.0 turns -0.0 into 0.0


@contextmanager
def disable_cudnn(module: nn.Module) -> Iterator[None]:
    """Disable cuDNN if the module is on a GPU: its recurrent layers have no backward pass in evaluation mode.

    The flag is global, so a lock allows one thread at a time.
    """
    if not next(module.parameters()).is_cuda:
        yield
        return
    with CUDNN, torch.backends.cudnn.flags(enabled=False):
        yield


def check_is_text(text: object) -> None:
    """Raise `RegardError` unless the value is a string."""
    if not isinstance(text, str):
        raise RegardError(f"explain: expected a string, got {type(text).__name__}")


def check_word_index(word: int, words: Sequence[object], unit: str = "word", side: str = "") -> int:
    """Return the index of a word, or raise `RegardError` if it is out of range; `side` may be "of the target"."""
    if not 0 <= word < len(words):
        name = f"{unit} {side}".rstrip()
        raise RegardError(f"explain: {name} must be from 0 to {len(words) - 1}, got {word}")
    return word


def drop_unit(tokens: Sequence[int], units: Sequence[TextUnit], index: int | None) -> list[int]:
    """Return the tokens without those of one unit."""
    removed = () if index is None else (*units[index].space_indices, *units[index].token_indices)
    return [token for position, token in enumerate(tokens) if position not in removed]


def sum_by_unit(shares: Float[np.ndarray, " positions"], units: Sequence[TextUnit]) -> AttentionShares:
    """Sum the shares per unit, and those of tokens that belong to none."""
    unit_shares = np.array([shares[list(unit.token_indices)].sum() for unit in units])
    return AttentionShares(unit_shares, float(shares.sum() - unit_shares.sum()))


def mean_weights(layers: Sequence[Weights]) -> Float[np.ndarray, "layers queries keys"]:
    """Return the weights of the first text per layer, averaged over heads."""
    dense = [layer.dense()[0].double() for layer in layers]
    return np.stack([to_numpy(layer_weights.reshape(-1, *layer_weights.shape[-2:]).mean(0)) for layer_weights in dense])
