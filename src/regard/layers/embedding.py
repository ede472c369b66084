"""Embeddings with hooks that observe or replace their output in the current thread or task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.shared_context import set_variable

EmbeddingHook = Callable[[nn.Module, Any, Tensor], Tensor]
"""A function called with an embedding, its inputs and its vectors; returns the vectors to use."""

_listeners: ContextVar[tuple[EmbeddingHook, ...]] = ContextVar("regard_embedding", default=())


class Embedding(nn.Embedding):
    """A token embedding that calls the active hooks."""

    def forward(self, tokens: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions width"]:
        """Return the vectors of tokens."""
        return call_embedding_hooks(self, tokens, super().forward(tokens))


def new_embedding(size: int, width: int, padding: int | None = None, *, is_output: bool) -> Embedding:
    """Create an embedding with zeros for padding, of unit variance, or of about unit length if `is_output`."""
    embedding = Embedding(size, width, padding_idx=padding)
    nn.init.normal_(embedding.weight, std=width**-0.5 if is_output else 1.0)
    if padding is not None:
        nn.init.zeros_(embedding.weight[padding])
    return embedding


def call_embedding_hooks(
    module: nn.Module, inputs: Any, vectors: Float[Tensor, "*positions width"]
) -> Float[Tensor, "*positions width"]:
    """Return the vectors after calling the hooks of this thread or task; compiled code calls none."""
    if torch.compiler.is_compiling():  # a ContextVar would break the graph
        return vectors
    for listener in _listeners.get():
        vectors = listener(module, inputs, vectors)
    return vectors


def hook_embeddings(listener: EmbeddingHook) -> AbstractContextManager[None]:
    """Return a context that calls a function at every embedding call in this thread or task."""
    return set_variable(_listeners, (*_listeners.get(), listener))


class EmbeddingCall(NamedTuple):
    """The inputs and the vectors of an embedding call."""

    inputs: Any
    vectors: Float[Tensor, "..."]


@contextmanager
def record_calls(embedding: nn.Module) -> Iterator[list[EmbeddingCall]]:
    """Record the calls of an embedding; its vectors become leaves, so that they can get a gradient."""
    calls: list[EmbeddingCall] = []

    def record_call(module: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        if module is not embedding:
            return vectors
        calls.append(EmbeddingCall(inputs, vectors.detach().requires_grad_()))
        return calls[-1].vectors

    with hook_embeddings(record_call):
        yield calls


def check_at_each_step(check: Callable[[], object]) -> AbstractContextManager[None]:
    """Return a context that calls a function at every model step; it may raise to stop the model.

    It relies on every model step starting with an embedding.
    """

    def run_check(module: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        check()
        return vectors

    return hook_embeddings(run_check)
