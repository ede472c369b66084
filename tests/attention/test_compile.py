"""`attend` compiles as one graph, forward and backward, for lengths that change, with the results of eager code."""

import subprocess
import sys

import pytest

from .compile_cases import get_cases

DROPOUT = """
import torch
from regard import attend
from regard.attention import Additive
from regard.attention.kernels import reference

reference.SMALL = -1  # tiles
query, keys, values = (torch.randn(2, 20, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
score = Additive(4, 4, 3).double()
compiled = torch.compile(
    lambda q, k, v: attend(q, k, v, score, dropout=0.5), backend="aot_eager", fullgraph=True, dynamic=True
)
torch.manual_seed(3)
out = compiled(query, keys, values)
assert not torch.equal(out, compiled(query, keys, values))
torch.manual_seed(3)
assert torch.equal(out, compiled(query, keys, values))
(of_values,) = torch.autograd.grad(out.sum(), values)
torch.testing.assert_close((of_values * values).sum(), out.sum())  # backward drops the same weights
"""

HALF = """
import torch
from regard import attend, causal
from regard.attention import Additive

query, keys, values = (torch.randn(2, 20, 4) for _ in range(3))

@torch.compile(backend="aot_eager", fullgraph=True)
def run(score):
    with torch.autocast("cpu", torch.bfloat16):
        return attend(query, keys, values, score, visible=causal())

for score in ("scaled_dot", "gaussian", Additive(4, 4, 3)):
    out = run(score)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), attend(query, keys, values, score, visible=causal()), atol=0.05, rtol=0.05)
"""


def run_python(*arguments: str) -> None:
    """Run Python in a new process, without type checks; they break the graph."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("group", ["scores", "rules", "settings"])
def test_attend_is_one_graph(group):
    assert len(get_cases(group)) > 10
    run_python("-m", "tests.attention.compile_cases", "aot_eager", group)


@pytest.mark.slow
def test_attend_compiles_to_machine_code():
    run_python("-m", "tests.attention.compile_cases", "inductor", "inductor")


@pytest.mark.slow
@pytest.mark.parametrize("program", [DROPOUT, HALF], ids=["dropout", "autocast"])
def test_programs_with_compiled_attention(program):
    run_python("-c", program)
