"""Embeddings that can be listened to: a context hears what they give, and may replace it, in its own thread alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.shared import holding

Listener = Callable[[nn.Module, Any, Tensor], Tensor]
"""An embedding, what it was asked for and the vectors that it found -> the vectors that it gives."""

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("regard_embedding", default=())


class Embedding(nn.Embedding):
    """A vector for each token, told to those that listen."""

    def forward(self, tokens: Int[Tensor, "*places"]) -> Float[Tensor, "*places width"]:
        """The vectors of some tokens."""
        return tell_listeners(self, tokens, super().forward(tokens))


def new_embedding(size: int, width: int, padding: int | None = None, *, is_output: bool) -> Embedding:
    """Nothing for padding, else numbers of variance one; where it is the output too, vectors of about length one."""
    embedding = Embedding(size, width, padding_idx=padding)
    nn.init.normal_(embedding.weight, std=width**-0.5 if is_output else 1.0)
    if padding is not None:
        nn.init.zeros_(embedding.weight[padding])
    return embedding


def tell_listeners(
    module: nn.Module, asked: Any, vectors: Float[Tensor, "*places width"]
) -> Float[Tensor, "*places width"]:
    """What an embedding gives, after all that listen in this thread or task had their say; compiled, none has."""
    if torch.compiler.is_compiling():  # a ContextVar would break the graph
        return vectors
    for listener in _listeners.get():
        vectors = listener(module, asked, vectors)
    return vectors


def listen(listener: Listener) -> AbstractContextManager[None]:
    """Tell a function of every call of an embedding in this thread or task."""
    return holding(_listeners, (*_listeners.get(), listener))


class Call(NamedTuple):
    """What an embedding was asked for, and what it gave."""

    asked: Any
    given: Float[Tensor, "..."]


@contextmanager
def record_calls(embedding: nn.Module) -> Iterator[list[Call]]:
    """Collect the calls of one embedding; what it gives are leaves, at which a gradient can be taken."""
    calls: list[Call] = []

    def record(module: nn.Module, asked: Any, vectors: Tensor) -> Tensor:
        if module is not embedding:
            return vectors
        calls.append(Call(asked, vectors.detach().requires_grad_()))
        return calls[-1].given

    with listen(record):
        yield calls


def at_each_step(check: Callable[[], object]) -> AbstractContextManager[None]:
    """Call a function at every step of every model, all of which begin with an embedding; it may raise to stop one."""

    def call(module: nn.Module, asked: Any, vectors: Tensor) -> Tensor:
        check()
        return vectors

    return listen(call)
