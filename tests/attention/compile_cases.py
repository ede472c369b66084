"""Compile calls of `attend` as one graph, and compare with uncompiled ones: `python -m ... BACKEND GROUP`.

It runs in a process of its own, because the type checks of tests break graphs.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard import attend, causal, documents, lengths, window
from regard.attention import Additive, Epanechnikov, Gaussian, SoftCap
from regard.attention.kernels import reference
from regard.attention.visible import key_indices

from .cases import NAMES, WIDTH, make_score

SIZES = ((5, 6), (9, 12))
LENGTHS = torch.tensor([3, 0])


@dataclass
class Case:
    """A score and settings of `attend`, which may depend on the numbers of queries and keys."""

    score: Any
    settings: Callable[[int, int], dict[str, Any]] = field(default=lambda n, m: {})
    small: bool = False  # whether the matrix may be saved for backward


def learned(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


RULES: dict[str, Callable[[int, int], Any]] = {
    "causal": lambda n, m: causal(),
    "strict": lambda n, m: causal(strict=True),
    "lengths": lambda n, m: lengths(LENGTHS),
    "both": lambda n, m: causal() & lengths(LENGTHS),
    "window": lambda n, m: window(2, 1) & window(None, 3),
    "documents": lambda n, m: documents(torch.arange(m) // 3) & lengths(LENGTHS),
    "not": lambda n, m: ~causal() | window(1, 1),
    "tensor": lambda n, m: torch.ones(n, m, dtype=torch.bool).tril(),
    "indices": lambda n, m: key_indices(torch.zeros(2, n, 2, dtype=torch.long)),
}


def get_rule_settings(rule: Callable[[int, int], Any]) -> Callable[[int, int], dict[str, Any]]:
    return lambda n, m: {"visible": rule(n, m)}


def get_cases(group: str) -> dict[str, Case]:
    """Return the cases of a group by name."""
    scores = {name: make_score(name) for name in NAMES}
    if group == "scores":
        return {name: Case(score) for name, score in scores.items()} | {"name": Case("gaussian", small=True)}
    if group == "rules":
        return {
            f"{name} {rule}": Case(scores[name], get_rule_settings(RULES[rule]))
            for name, rules in (("scaled_dot", RULES), ("additive", ("window", "documents", "not")))
            for rule in rules
        }
    if group == "inductor":
        return {
            "causal": Case(scores["scaled_dot"], get_rule_settings(RULES["causal"])),
            "tiles": Case(scores["additive"], get_rule_settings(RULES["lengths"])),
            "formula": Case(scores["additive"], small=True),
        }
    assert group == "settings", group
    learnable = Epanechnikov(2.0, learnable=True, heads=3).double()
    return {
        "bias": Case(scores["scaled_dot"], lambda n, m: {"bias": learned(n, m), "visible": causal()}),
        "key bias": Case(scores["gaussian"], lambda n, m: {"bias": learned(2, 1, 1, m)}),
        "bias of tiles": Case(scores["additive"], lambda n, m: {"bias": learned(n, 1)}),
        "fixed bias": Case(scores["scaled_dot"], lambda n, m: {"bias": learned(n, m).detach()}),
        "sink": Case(scores["dot"], lambda n, m: {"sink": learned(3), "visible": causal()}),
        "sink of tiles": Case(scores["additive"], lambda n, m: {"sink": learned(3)}),
        "weights": Case(scores["additive"], lambda n, m: {"return_weights": True, "visible": causal()}),
        "weights of dot": Case(scores["scaled_dot"], lambda n, m: {"return_weights": True}),
        "sparsemax": Case(scores["dot"], lambda n, m: {"normalizer": "sparsemax"}),
        "entmax15": Case(scores["additive"], lambda n, m: {"normalizer": "entmax15"}),
        "none": Case(scores["epanechnikov"], lambda n, m: {"normalizer": "none"}),
        "none of gaussian": Case(scores["gaussian"], lambda n, m: {"normalizer": "none"}),
        "sdpa": Case(scores["bilinear"], lambda n, m: {"path": "sdpa"}),
        "tiled": Case(scores["scaled_dot"], lambda n, m: {"path": "tiled"}, small=True),
        "reference": Case(scores["scaled_dot"], lambda n, m: {"path": "reference"}),
        "cap": Case(SoftCap("scaled_dot", 5.0)),
        "function": Case(lambda q, k: -torch.cdist(q, k)),
        "learned width": Case(Gaussian(0.7, learnable=True).double()),
        "widths of heads": Case(learnable),
        "energies of heads": Case(Additive(WIDTH, WIDTH, 4, heads=3).double()),
        "activation": Case(Additive(WIDTH, WIDTH, 4, activation=torch.relu).double()),
    }


def compute(case: Case, attention: Callable[..., Any], inputs: list[Tensor], settings: dict[str, Any]) -> list[Tensor]:
    """Return output, weights if asked for, and the gradients of all that is differentiable."""
    results = attention(*inputs, settings)
    results = [results[0], results[1].dense()] if isinstance(results, tuple) else [results]
    parameters = list(case.score.parameters()) if isinstance(case.score, nn.Module) else []
    sources = [tensor for tensor in (*inputs, *settings.values(), *parameters) if isinstance(tensor, Tensor)]
    sources = [tensor for tensor in sources if tensor.requires_grad]
    loss = torch.stack([result.square().sum() for result in results]).sum()
    gradients = torch.autograd.grad(loss, sources, allow_unused=True)
    return results + [torch.zeros_like(t) if g is None else g for t, g in zip(sources, gradients, strict=True)]


def check(case: Case, backend: str) -> None:
    """Compile a case once for all sizes, as one graph, and compare it with uncompiled code."""
    torch.compiler.reset()
    reference.SMALL = 2**18 if case.small else -1

    def run(query: Tensor, keys: Tensor, values: Tensor, settings: dict[str, Any]) -> Any:
        return attend(query, keys, values, case.score, **settings)

    compiled = torch.compile(run, backend=backend, fullgraph=True, dynamic=True)
    for n, m in SIZES:
        torch.manual_seed(n)
        inputs = [(0.5 * torch.randn(2, 3, size, WIDTH, dtype=torch.float64)).requires_grad_() for size in (n, m, m)]
        settings = case.settings(n, m)
        results = compute(case, compiled, inputs, settings)
        torch.testing.assert_close(results, compute(case, run, inputs, settings))


if __name__ == "__main__":
    for name, case in get_cases(sys.argv[2]).items():
        print(name, flush=True)  # the last name printed is the one that failed
        check(case, sys.argv[1])
