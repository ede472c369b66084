"""Memory and time of computing with attention weights: `python benchmarks/products.py [TOKENS ...]`.

Each line is a fresh process on one core that computes one result for one head of width 16 under a causal rule, in
float32: its seconds, and its peak memory above that of query, keys and values. `backward` is the gradient of the
product for query, keys and the factor; rollout carries the last position through two layers.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard import Weights, attend, causal
from regard.attention.analysis import rollout, span

WIDTH = 16
TOKENS = (4096, 16_384, 65_536)

Inputs = tuple[Tensor, Tensor, Tensor]


def get_weights(inputs: Inputs) -> Weights:
    """Return the lazy weights of one call."""
    return attend(*inputs, visible=causal(), return_weights=True)[1]


def differentiate(product: Callable[[Weights, Tensor], Tensor], inputs: Inputs) -> Any:
    """Return the gradients of a product for query, keys and its factor."""
    query, keys, factor = (tensor.requires_grad_() for tensor in inputs)
    result = product(get_weights((query, keys, factor.detach())), factor)
    return torch.autograd.grad(result.sum(), (query, keys, factor))


RESULTS: dict[str, Callable[[Inputs], Any]] = {
    "attend": lambda inputs: attend(*inputs, visible=causal()),
    "weights @ u": lambda inputs: get_weights(inputs) @ inputs[2],
    "weights.mT @ w": lambda inputs: get_weights(inputs).mT @ inputs[2],
    "weights @ u, backward": lambda inputs: differentiate(lambda weights, factor: weights @ factor, inputs),
    "weights.mT @ w, backward": lambda inputs: differentiate(lambda weights, factor: weights.mT @ factor, inputs),
    "received": lambda inputs: get_weights(inputs).received(),
    "value_weighted, top:8": lambda inputs: get_weights(inputs).value_weighted(inputs[2]).top(8),
    "times_gradient, received": lambda inputs: get_weights(inputs).times_gradient(inputs[0], inputs[2]).received(),
    "span(3, 9)": lambda inputs: span(3, 9)(get_weights(inputs)),
    "rollout, 2 layers": lambda inputs: rollout([get_weights(inputs)] * 2),
}


def measure(name: str, tokens: int) -> dict[str, float]:
    """Return seconds and peak memory in bytes of one result, after a small one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    RESULTS[name](tuple(torch.randn(3, 64, WIDTH).unbind()))  # type: ignore[arg-type]
    query, keys, values = torch.randn(3, tokens, WIDTH)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    kept = RESULTS[name]((query, keys, values))
    seconds = time.perf_counter() - start
    del kept
    return {"seconds": seconds, "bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024}


def main() -> None:
    """Print a table with a line for each result and columns for each number of tokens."""
    lengths = [int(tokens) for tokens in sys.argv[1:]] or list(TOKENS)
    print(f"{'':26}", *(f"{tokens:>20,}" for tokens in lengths))
    for name in RESULTS:
        cells = []
        for tokens in lengths:
            run = subprocess.run(
                [sys.executable, __file__, "--one", name, str(tokens)], capture_output=True, text=True, check=True
            )
            result = json.loads(run.stdout)
            cells.append(f"{result['seconds']:8.2f} s {result['bytes'] / 2**20:6.0f} MB")
        print(f"{name:26}", *(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
