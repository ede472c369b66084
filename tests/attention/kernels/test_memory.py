"""Peak memory of the fused paths in a fresh process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from regard import attend, causal, key_indices
from regard.attention import Additive, SoftCap
from regard.attention.analysis import previous, rollout, sink
torch.set_num_threads(1)
name, n = sys.argv[1], int(sys.argv[2])
scores = {"additive": Additive(8, 8, 8), "soft_cap": SoftCap("dot", 5.0), "sink": "dot", "key_indices": "dot"}
def run(n):
    score, sink = scores.get(name, name), torch.ones((), requires_grad=True) if name == "sink" else None
    visible = key_indices(torch.randint(n, (n, 8))) if name == "key_indices" else causal()
    query, keys, values = (torch.randn(n, 8, requires_grad=True) for _ in range(3))
    out, weights = attend(query, keys, values, score, visible=visible, sink=sink, return_weights=True)
    out.sum().backward()
    weights.reduce("top:5", "received", "entropy")
def multiply(n):
    query, keys, values = (torch.randn(n, 8, requires_grad=True) for _ in range(3))
    weights = attend(query, keys, values, visible=causal(), return_weights=True)[1]
    scaled, signed = weights.value_weighted(values), weights.times_gradient(query, values)
    products = weights @ values, weights.mT @ query, scaled.mT @ query, signed @ torch.ones(n), rollout([weights] * 2)
    sum(product.sum() for product in products).backward()
    scaled.reduce("top:5", "received"), signed.received(), sink(4)(weights), previous()(weights)
run = multiply if name == "products" else run
run(64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(n)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

LENGTHS = dict.fromkeys(["scaled_dot", "gaussian", "additive", "epanechnikov", "products"], 8192)
LENGTHS |= dict.fromkeys(["soft_cap", "sink", "key_indices"], 4096)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), LENGTHS.items())
def test_no_path_holds_the_matrix(name, length):
    run = subprocess.run([sys.executable, "-c", PROGRAM, name, str(length)], capture_output=True, text=True, check=True)
    assert int(run.stdout) * 1024 < length**2 * 4 / 3  # kilobytes; the matrix of 8,192 keys alone is 268 MB
