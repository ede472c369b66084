"""The methods that explain one thing that a model said, written once for all models.

A subject knows what is explained and by which words: it gives the log-probability of the one
without each of the others, and where the model looked.
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

from regard.alignment import as_array
from regard.attention.weights import Weights
from regard.decoding.steps import NOT_FINITE
from regard.errors import RegardError
from regard.explaining.explanation import ATTENTION, GRADIENT, LEFT_OUT, METHODS, Explanation
from regard.layers.embedding import Call, record_calls
from regard.text.units import Unit

TOKENS = 8192
"""Words, or tokens, of a batch of texts that each lack one."""

DIGITS = 5
"""Of nats. The digits after them differ between batches, and would make an order of words that do not matter."""

NOTED = 0.005
"""A share of attention that is worth a note."""

CUDNN = Lock()
"""Held by the thread that has switched it off."""


class Look(NamedTuple):
    """How much of an attention went to each word, and how much elsewhere."""

    numbers: Float[np.ndarray, " words"]
    elsewhere: float = 0.0


class Subject(ABC):
    """What is explained, and the words by which it is."""

    words: tuple[str, ...]
    embedding: nn.Module  # gives each word its vector
    size: int  # of the whole text, as the model counts it
    without_attention: str  # why there are no weights, where there are none

    @abstractmethod
    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        """Of what is explained, in the text without one of its words; None is the whole text."""

    @abstractmethod
    def looks(self) -> dict[str, Look]:
        """Where the model looked, by the methods that read its attention."""

    @abstractmethod
    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> Sequence[float]:
        """Numbers for all that an embedding gave in some calls -> a number for each word."""

    @abstractmethod
    def described(self, log_probability: float) -> str:
        """What is explained, in words."""


def explained(subject: Subject) -> Explanation:
    """A subject explained by every method that its model knows."""
    with torch.no_grad():
        whole = float(subject.log_probabilities([None]))
        looks = subject.looks()
    if not isfinite(whole):
        raise RegardError(f"explain: {NOT_FINITE}")
    found: dict[str, Sequence[float]] = {method: look.numbers.tolist() for method, look in looks.items()}
    found |= {GRADIENT: gradient_by_input(subject), LEFT_OUT: falls(subject, whole)}
    values = {method: tuple(found[method]) for method in METHODS if method in found}
    return Explanation(subject.words, subject.described(whole), whole, values, tuple(notes(subject, looks)))


def notes(subject: Subject, looks: dict[str, Look]) -> Iterator[str]:
    """What is to be known of the weights, or that there are none."""
    if ATTENTION not in looks:
        yield f"no attention is shown: {subject.without_attention}"
    elif looks[ATTENTION].elsewhere > NOTED:
        yield f"of the attention, {looks[ATTENTION].elsewhere:.2f} went to none of these words"


def gradient_by_input(subject: Subject) -> Sequence[float]:
    """The gradient of the log-probability at the vector of each word, times that vector.

    It is how much the log-probability would fall, were it linear, if the vector were nothing.
    """
    with torch.enable_grad(), without_cudnn(subject.embedding), record_calls(subject.embedding) as calls:
        gradients = torch.autograd.grad(
            subject.log_probabilities([None]).sum(), [call.given for call in calls], materialize_grads=True
        )
    products = [(call.given * each).sum(-1).detach() for call, each in zip(calls, gradients, strict=True)]
    return subject.merged(calls, products)


@torch.no_grad()
def falls(subject: Subject, whole: float) -> list[float]:
    """How much the log-probability falls when each word is left out."""
    words, at_once = list(range(len(subject.words))), max(1, TOKENS // subject.size)
    parts = [subject.log_probabilities(words[at : at + at_once]) for at in range(0, len(words), at_once)]
    return [round(whole - each, DIGITS) + 0.0 for each in torch.cat(parts).tolist()]  # + 0.0: no minus before a zero


@contextmanager
def without_cudnn(module: nn.Module) -> Iterator[None]:
    """Do without cuDNN, which has no gradient of recurrent layers outside of training, where a module is on a GPU.

    It is switched for all threads, so that only one may do so at a time.
    """
    if not next(module.parameters()).is_cuda:
        yield
        return
    with CUDNN, torch.backends.cudnn.flags(enabled=False):
        yield


def check_is_text(text: object) -> None:
    """Raise a `RegardError` for anything but a text."""
    if not isinstance(text, str):
        raise RegardError(f"explain: found {type(text).__name__}; a text is needed")


def chosen(word: int, words: Sequence[object], what: str = "words") -> int:
    """The number of a word, or a `RegardError` if there is no such word."""
    if not 0 <= word < len(words):
        raise RegardError(f"explain: there is no word {word}; there are {len(words)} {what}, counted from 0")
    return word


def left_out(tokens: Sequence[int], units: Sequence[Unit], out: int | None) -> list[int]:
    """Tokens without those of a unit."""
    gone = () if out is None else (*units[out].spaces, *units[out].places)
    return [token for place, token in enumerate(tokens) if place not in gone]


def by_unit(numbers: Float[np.ndarray, " places"], units: Sequence[Unit]) -> Look:
    """The sum of the numbers of each unit's tokens, and of all that belong to none."""
    found = np.array([numbers[list(unit.places)].sum() for unit in units])
    return Look(found, float(numbers.sum() - found.sum()))


def mean_weights(layers: Sequence[Weights]) -> Float[np.ndarray, "layers queries keys"]:
    """The weights of one text in each layer, the mean over its heads."""
    dense = [layer.dense()[0].double() for layer in layers]
    return np.stack([as_array(each.reshape(-1, *each.shape[-2:]).mean(0)) for each in dense])
