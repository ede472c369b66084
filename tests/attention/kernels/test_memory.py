"""Peak memory of the fused paths in a fresh process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from regard import attend, causal
from regard.attention import Additive
torch.set_num_threads(1)
name, n = sys.argv[1], int(sys.argv[2])
score = Additive(8, 8, 8) if name == "additive" else name
def run(n):
    query, keys, values = (torch.randn(n, 8, requires_grad=True) for _ in range(3))
    out, weights = attend(query, keys, values, score, visible=causal(), return_weights=True)
    out.sum().backward()
    weights.reduce("top:5", "received", "entropy")
run(64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(n)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive", "epanechnikov"])
def test_no_path_holds_the_matrix(name):
    run = subprocess.run([sys.executable, "-c", PROGRAM, name, "8192"], capture_output=True, text=True, check=True)
    assert int(run.stdout) * 1024 < 8192 * 8192 * 4 / 3  # kilobytes; the matrix alone is 268 MB
