import subprocess
import sys
from threading import Thread

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.layers.embedding import Embedding, check_at_each_step, hook_embeddings, new_embedding, record_calls

TOKENS = torch.tensor([[1, 0, 3]])


def test_nobody_listens_and_it_is_torchs_own():
    embedding = new_embedding(4, 5, 0, is_output=False)
    assert torch.equal(embedding(TOKENS), functional.embedding(TOKENS, embedding.weight))


@pytest.mark.parametrize(("is_output", "deviation"), [(False, 1.0), (True, 0.1)])
def test_how_large_the_first_vectors_are(is_output, deviation):
    torch.manual_seed(0)
    padded, whole = (new_embedding(300, 100, padding, is_output=is_output) for padding in (7, None))
    assert not padded.weight[7].any()
    assert whole.weight[7].any()
    for embedding in (padded, whole):
        assert embedding.weight.std().item() == pytest.approx(deviation, rel=0.02)


def test_listeners_have_their_say_in_turn_and_only_meanwhile():
    embedding, calls = Embedding(4, 2), []

    def double(module, inputs, vectors):
        calls.append((module, inputs))
        return 2 * vectors

    with hook_embeddings(double), hook_embeddings(lambda module, inputs, vectors: vectors + 1):
        assert torch.equal(embedding(TOKENS), 2 * embedding.weight[TOKENS] + 1)
    assert calls == [(embedding, TOKENS)]
    assert torch.equal(embedding(TOKENS), embedding.weight[TOKENS])


def test_recorded_calls_are_leaves_of_one_embedding_alone():
    first, second = Embedding(4, 2), Embedding(4, 2)
    with record_calls(first) as calls:
        total = (first(TOKENS) * second(TOKENS)).sum()
    ((inputs, given),) = calls
    assert inputs is TOKENS
    assert torch.equal(given, first.weight[TOKENS])
    (gradient,) = torch.autograd.grad(total, [given])
    assert torch.equal(gradient, second.weight[TOKENS])
    assert total.requires_grad
    assert first.weight.grad is None


def test_another_thread_hears_nothing():
    embedding = Embedding(4, 2)
    results = []
    with record_calls(embedding) as calls, check_at_each_step(lambda: results.append("step")):
        other = Thread(target=lambda: results.append(embedding(TOKENS)))
        other.start()
        other.join()
        assert (calls, len(results)) == ([], 1)
        assert results[0].grad_fn is not None  # no leaf
        embedding(TOKENS)
    assert (len(calls), len(results)) == (1, 2)


def test_a_step_can_be_stopped():
    class StopError(Exception):
        pass

    def stop():
        raise StopError

    model = nn.Sequential(Embedding(4, 2), nn.Linear(2, 2))
    with pytest.raises(StopError), check_at_each_step(stop):
        model(TOKENS)
    assert model(TOKENS).shape == (1, 3, 2)


COMPILED = """
import torch
from regard.layers.embedding import Embedding

tokens, embedding = torch.tensor([[1, 0, 3]]), Embedding(4, 2)
compiled = torch.compile(embedding, backend="eager", fullgraph=True)
assert torch.equal(compiled(tokens), embedding(tokens))
"""


@pytest.mark.slow
def test_a_compiled_embedding_is_one_graph():
    subprocess.run([sys.executable, "-c", COMPILED], check=True)  # in a new process: type checks break the graph
