"""Compile every layer as one graph, and compare with uncompiled ones; a process of its own runs it."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard import causal, lengths
from regard.layers.attention import MultiHeadAttention
from regard.layers.character_encoder import CharacterEncoder
from regard.layers.dropout import Dropout, VariationalDropout
from regard.layers.embedding import Embedding
from regard.layers.feed_forward import FeedForward
from regard.layers.pooling import POOLINGS, Pooling
from regard.layers.positions import PositionalEncoding
from regard.layers.source_attention import COMPOSITIONS, Composition, SourceAttention
from regard.layers.transformer import LayerConfig, TransformerStack

SIZES = ((2, 5), (3, 8))
Run = Callable[[Any, Tensor, Tensor], Any]


def get_cases() -> dict[str, tuple[nn.Module, Run]]:
    """Return layers by name, each with a function that calls it with inputs and their lengths."""
    torch.manual_seed(0)
    cases: dict[str, tuple[nn.Module, Run]] = {
        "attention": (MultiHeadAttention(8, 2), lambda layer, x, sizes: layer(x, visible=causal())),
        "cross": (MultiHeadAttention(8, 2), lambda layer, x, sizes: layer(x, x[:, 1:], visible=lengths(sizes))),
        "groups": (MultiHeadAttention(8, 4, groups=2), lambda layer, x, sizes: layer(x, visible=causal())),
        "scores of heads": (MultiHeadAttention(8, 2, score="additive"), lambda layer, x, sizes: layer(x)),
        "dropout of weights": (MultiHeadAttention(8, 2, dropout=1.0), lambda layer, x, sizes: layer(x)),
        "mask": (MultiHeadAttention(8, 2), lambda layer, x, sizes: layer(x, visible=x[..., 0][:, None] > -1)),
        "source": (SourceAttention(8, 8, "additive"), lambda layer, x, sizes: layer(x, layer.remember(x, sizes, 3))),
        "weights": (
            SourceAttention(8, 8, "bilinear", heads=2),
            lambda layer, x, sizes: layer(x, layer.remember(x, sizes), return_weights=True)[1],
        ),
        "feed forward": (FeedForward(8, 16), lambda layer, x, sizes: layer(x)),
        "embedding": (Embedding(9, 4), lambda layer, x, sizes: layer(x[..., 0].long().clamp(0, 8))),
        "no dropout": (Dropout(0.0), lambda layer, x, sizes: layer(x)),
        "all dropped": (VariationalDropout(0.99).eval(), lambda layer, x, sizes: layer(x)),
    }
    cases |= {f"pooling {kind}": (Pooling(kind, 8), lambda layer, x, sizes: layer(x, sizes)) for kind in POOLINGS}
    cases |= {
        f"composition {kind}": (Composition(kind, 8, 8, 8), lambda layer, x, sizes: layer(x, x, x))
        for kind in COMPOSITIONS
    }
    for norm in ("pre", "post"):
        stack = TransformerStack(LayerConfig(width=8, heads=2, norm=norm, dropout=0.0), 2)
        cases[f"transformer {norm}"] = stack, lambda layer, x, sizes: layer(x, visible=lengths(sizes))
    for kind in ("max", "attention"):
        encoder = CharacterEncoder(kind, 9, 6, dropout=0.0)
        cases[f"characters {kind}"] = encoder, lambda layer, x, sizes: layer(x[..., 0].long().clamp(0, 8))
    for kind in ("sinusoidal", "learned"):
        positions = PositionalEncoding(kind, 8, head_width=4, max_length=9)
        cases[f"positions {kind}"] = positions, lambda layer, x, sizes: layer(x.shape[1], x).added
    return cases


def compute(layer: nn.Module, run: Callable[..., Tensor], x: Tensor, sizes: Tensor) -> list[Tensor]:
    """Return the output and the gradients of the parameters."""
    output = run(layer, x, sizes)
    sources = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not (sources and output.requires_grad):
        return [output]
    gradients = torch.autograd.grad(output.square().sum(), sources, allow_unused=True)
    return [output, *(torch.zeros(1) if gradient is None else gradient for gradient in gradients)]


if __name__ == "__main__":
    for name, (layer, run) in get_cases().items():
        print(name, flush=True)  # the last name printed is the one that failed
        torch.compiler.reset()
        compiled = torch.compile(run, backend=sys.argv[1], fullgraph=True, dynamic=True)
        for batch, time in SIZES:
            x = torch.randn(batch, time, 8)
            sizes = torch.arange(1, batch + 1)
            torch.testing.assert_close(compute(layer, compiled, x, sizes), compute(layer, run, x, sizes))
