"""Benchmark cases: every score function in regard and in plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention import Boxcar, Epanechnikov, Gaussian, Score, attend, build_score
from regard.bench.settings import AttentionBench

DROPOUT = 0.1
SDPA = "SDPA"
NAIVE = "plain torch"

Attention = Callable[[Any, Tensor, Tensor, Tensor], Any]
"""(score, query, keys, values) -> output. Any, since each function reads the parameters of its own score."""

DotInputs = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor, float]]
"""(score, query, keys) -> query, keys and scale of the equivalent dot product."""


@dataclass(frozen=True)
class BenchCase:
    """One way to compute the attention of a group."""

    name: str
    attention: Attention
    peak_matrices: tuple[float, float] = (
        0,
        0,
    )  # approximate number of queries x keys matrices in memory, forward and with backward
    same_result: bool = True  # computes the same result as the others of its group

    @property
    def ours(self) -> bool:
        """Whether regard computes this case."""
        return self.name.startswith(("attend", "weights"))


@dataclass(frozen=True)
class CaseGroup:
    """Candidates timed against each other; targets are relative to the first."""

    name: str
    cases: tuple[BenchCase, ...]
    score: str = "scaled_dot"
    on_weights: bool = False  # cases get the weights instead of the score, and have no backward pass

    @property
    def directions(self) -> tuple[str, ...]:
        """The measured directions; "backward" includes the forward pass."""
        return ("forward",) if self.on_weights else ("forward", "backward")

    def find_case(self, name: str) -> BenchCase:
        """Return a case by name."""
        return next(case for case in self.cases if case.name == name)


def build_groups(settings: AttentionBench) -> dict[str, CaseGroup]:
    """Return all groups by name, in the order of the table."""
    groups = [
        *(build_dot_group(name, inputs) for name, inputs in DOT_PRODUCTS.items()),
        CaseGroup("gaussian", (*GAUSSIAN_PEERS, *make_attend_cases("tiled", "reference")), "gaussian"),
        CaseGroup("uniform", (*UNIFORM_PEERS, *make_attend_cases("tiled", "reference")), "uniform"),
        *(build_pairwise_group(name, settings.width) for name in PAIRWISE),
        *(build_kernel_group(name) for name in KERNELS),
        CaseGroup("hard", (BenchCase(NAIVE, hard_attention, (1, 2)), *make_attend_cases("reference")), "hard"),
        CaseGroup("dropout", (*DROPOUT_PEERS, *make_attend_cases("reference", dropout=DROPOUT))),
        *(
            CaseGroup(name, make_attend_cases("reference", normalizer=name, peak_matrices=(8, 12)))
            for name in ("sparsemax", "entmax15")
        ),
        CaseGroup("weights", WEIGHTS, on_weights=True),
    ]
    return {group.name: group for group in groups}


def make_score(group: CaseGroup, settings: AttentionBench) -> Score:
    """Build the score function of a group, always with the same parameters."""
    torch.manual_seed(0)
    distance = math.sqrt(2 * settings.width)  # typical distance between two random vectors
    kernels = {"boxcar": Boxcar, "epanechnikov": Epanechnikov, "gaussian": Gaussian}
    if group.score in kernels:
        score: Score = kernels[group.score](distance)
    else:
        score = build_score(group.score, settings.width, settings.width)
    return score.to(settings.device, getattr(torch, settings.dtype))


def make_inputs(settings: AttentionBench) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return query, keys, values and a gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, settings.heads, settings.length, settings.width)
    tensors = (torch.randn(shape, generator=generator) for _ in range(4))
    query, keys, values, gradient = (t.to(settings.device, getattr(torch, settings.dtype)) for t in tensors)
    return query, keys, values, gradient


def make_calls(group: CaseGroup, case: BenchCase, settings: AttentionBench) -> dict[str, Callable[[], object]]:
    """Return the functions to time, by direction."""
    score, (query, keys, values, gradient) = make_score(group, settings), make_inputs(settings)
    if group.on_weights:
        _, weights = attend(query, keys, values, score, return_weights=True)
        return {"forward": torch.no_grad()(partial(case.attention, weights, query, keys, values))}
    leaves = [tensor.requires_grad_() for tensor in (query, keys, values)]
    leaves += [parameter for parameter in score.parameters() if parameter.requires_grad]

    def backward() -> object:
        output = case.attention(score, query, keys, values)
        return torch.autograd.grad(output, leaves, gradient, allow_unused=True)

    return {"forward": torch.no_grad()(partial(case.attention, score, query, keys, values)), "backward": backward}


def make_attend_cases(
    *paths: str, peak_matrices: tuple[float, float] = (4, 8), **options: Any
) -> tuple[BenchCase, ...]:
    """Return cases of `attend` with its default path and with each of the given paths."""

    def make_attention(path: Any) -> Attention:
        return lambda score, query, keys, values: attend(query, keys, values, score, path=path, **options)

    return (
        BenchCase("attend", make_attention(None)),
        *(
            BenchCase(f"attend, {path}", make_attention(path), peak_matrices if path == "reference" else (0, 0))
            for path in paths
        ),
    )


def build_dot_group(name: str, inputs: DotInputs) -> CaseGroup:
    """Build the group of a score that is equivalent to a dot product."""
    peers = (BenchCase(SDPA, make_sdpa(inputs)), BenchCase(NAIVE, make_softmax(inputs), (2, 4)))
    return CaseGroup(name, (*peers, *make_attend_cases("tiled", "reference")), name)


DOT_PRODUCTS: dict[str, DotInputs] = {
    "dot": lambda score, query, keys: (query, keys, 1.0),
    "scaled_dot": lambda score, query, keys: (query, keys, query.shape[-1] ** -0.5),
    "bilinear": lambda score, query, keys: (query @ score.weight, keys, 1.0),
    "reduced_rank": lambda score, query, keys: (query @ score.query_weight.mT, keys @ score.key_weight, 1.0),
}


def make_sdpa(inputs: DotInputs) -> Attention:
    """Compute a dot-product score with PyTorch's fused attention."""

    def attention(score: object, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query, keys, scale = inputs(score, query, keys)
        return functional.scaled_dot_product_attention(query, keys, values, scale=scale)

    return attention


def make_softmax(inputs: DotInputs) -> Attention:
    """Compute a dot-product score with the whole matrix in plain PyTorch."""

    def attention(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query, keys, scale = inputs(score, query, keys)
        return torch.softmax(scale * query @ keys.mT, -1) @ values

    return attention


def gaussian_bias(score: Gaussian, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute the Gaussian kernel with SDPA; its mask holds the norm of each key."""
    precision = score.width**-2
    key_bias = keys.square().sum(-1)[..., None, :] * (precision / -2)
    return functional.scaled_dot_product_attention(query * precision, keys, values, key_bias, scale=1.0)


def gaussian_distance(score: Gaussian, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute the Gaussian kernel by its formula."""
    return torch.softmax(torch.cdist(query, keys).square() * (score.width**-2 / -2), -1) @ values


def mean_of_values(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute uniform attention: the mean of the values."""
    return values.mean(-2, keepdim=True).expand(*query.shape[:-1], values.shape[-1])


PLAIN_SDPA = BenchCase(SDPA, make_sdpa(DOT_PRODUCTS["scaled_dot"]), same_result=False)
GAUSSIAN_PEERS = (
    PLAIN_SDPA,
    BenchCase("SDPA, key bias", gaussian_bias, (1, 4)),
    BenchCase(NAIVE, gaussian_distance, (2, 5)),
)
UNIFORM_PEERS = (PLAIN_SDPA, BenchCase("mean of the values", mean_of_values))


def build_pairwise_group(name: str, width: int) -> CaseGroup:
    """Build the group of a score with a hidden layer per pair; plain PyTorch holds all of them at once."""
    reference = (2 * width, 3 * width) if name == "additive" else (4 * width, 7 * width)
    peer = BenchCase(NAIVE, PAIRWISE[name], (2 * width, 3 * width))
    return CaseGroup(name, (peer, *make_attend_cases("reference", peak_matrices=reference)), name)


def additive(score: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute softmax(w·tanh(W q + V k)) in plain PyTorch."""
    return softmax_of_tanh(query @ score.query_weight.mT, keys @ score.key_weight.mT, score.energy, values)


def concat(score: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute softmax(w·tanh(W [q; k])) in plain PyTorch, with W split in two."""
    query_weight, key_weight = score.weight.split(score.weight.shape[-1] // 2, -1)
    return softmax_of_tanh(query @ query_weight.mT, keys @ key_weight.mT, score.energy, values)


PAIRWISE: dict[str, Attention] = {"additive": additive, "concat": concat}


def softmax_of_tanh(query: Tensor, keys: Tensor, energy: Tensor, values: Tensor) -> Tensor:
    """Compute attention with the score w·tanh(query + key)."""
    mixed = torch.tanh(query[..., :, None, :] + keys[..., None, :, :])  # (*batch, queries, keys, hidden)
    return torch.softmax(mixed @ energy, -1) @ values


def build_kernel_group(name: str) -> CaseGroup:
    """Build the group of a kernel with finite support; the reference holds the distances of all pairs."""
    return CaseGroup(
        name, (BenchCase(NAIVE, make_kernel_attention(KERNELS[name]), (3, 6)), *make_attend_cases("reference")), name
    )


def make_kernel_attention(kernel: Callable[[Any, Tensor, Tensor], Tensor]) -> Attention:
    """Compute attention with a kernel that is normalized by its sum."""

    def attention(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = kernel(score, query, keys)
        return (weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)) @ values

    return attention


KERNELS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "boxcar": lambda score, query, keys: (torch.cdist(query, keys) <= score.width).to(query.dtype),
    "epanechnikov": lambda score, query, keys: (1 - torch.cdist(query, keys) / score.width).clamp_min(0),
    "exact": lambda score, query, keys: (torch.cdist(query, keys, p=0) == 0).to(query.dtype),
}


def hard_attention(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the value of the best key."""
    best = (query @ keys.mT).argmax(-1)
    return values.gather(-2, best[..., None].expand(*best.shape, values.shape[-1]))


def sdpa_with_dropout(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute PyTorch's SDPA, which keeps the whole matrix with dropout on a CPU."""
    return functional.scaled_dot_product_attention(query, keys, values, dropout_p=DROPOUT)


def softmax_with_dropout(score: Score, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute attention with dropout by its formula."""
    weights = torch.softmax(query.shape[-1] ** -0.5 * query @ keys.mT, -1)
    return functional.dropout(weights, DROPOUT) @ values


DROPOUT_PEERS = (BenchCase(SDPA, sdpa_with_dropout, (4, 7)), BenchCase(NAIVE, softmax_with_dropout, (4, 7)))


def reduce_whole_matrix(weights: object, query: Tensor, keys: Tensor, values: Tensor) -> object:
    """Compute the three reductions from a full matrix in plain PyTorch."""
    matrix = torch.softmax(query.shape[-1] ** -0.5 * query @ keys.mT, -1)
    return matrix.topk(min(5, matrix.shape[-1])), matrix.sum(-2), torch.special.entr(matrix).sum(-1)


THREE = "weights.reduce(all three)"
WEIGHTS = (
    PLAIN_SDPA,
    BenchCase(f"{NAIVE}, all three", reduce_whole_matrix, (3, 3)),
    BenchCase("weights.top(5)", lambda weights, *_: weights.top(5)),
    BenchCase("weights.received()", lambda weights, *_: weights.received()),
    BenchCase("weights.entropy()", lambda weights, *_: weights.entropy()),
    BenchCase(THREE, lambda weights, *_: weights.reduce("top:5", "received", "entropy")),
)
