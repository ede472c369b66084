"""Memory of looking at a model of GPT-2's size: `python benchmarks/heads.py WAY TOKENS`.

Each call is a fresh process that builds the model from its configuration (random weights), runs it once
over a random text and prints one JSON line: the peak memory above that of the loaded model, in bytes,
the seconds, and whether the hidden states are those of the plain model, bit by bit.

WAY is `forward` (the plain model), `heads` (`regard.heads`), `top` (`regard.watch(keep="top:8")`), `eager`
(`output_attentions=True`) or `transformer_lens` (`run_with_cache`, if that package is installed).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from transformers import GPT2Config, GPT2Model

import regard


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_forward(model: GPT2Model, tokens: torch.Tensor) -> Any:
    """Run the plain model."""
    return model(tokens, use_cache=False).last_hidden_state


def run_heads(model: GPT2Model, tokens: torch.Tensor) -> Any:
    """Measure all heads; `regard.heads` keeps no output."""
    outputs: list[torch.Tensor] = []
    with model.register_forward_hook(lambda *call: outputs.append(call[-1].last_hidden_state)):
        regard.heads(model, tokens)
    return outputs[0]


def run_top(model: GPT2Model, tokens: torch.Tensor) -> Any:
    """Keep the eight largest weights of every query."""
    with regard.watch(model, keep="top:8"):
        return run_forward(model, tokens)


def run_eager(model: GPT2Model, tokens: torch.Tensor) -> Any:
    """Return all matrices, as Transformers does."""
    model.set_attn_implementation("eager")
    return model(tokens, use_cache=False, output_attentions=True).last_hidden_state


def run_transformer_lens(model: GPT2Model, tokens: torch.Tensor) -> Any:
    """Cache the attention patterns of a model of the same size in TransformerLens; the weights differ."""
    package = import_module("transformer_lens")
    lens = package.HookedTransformer(
        package.HookedTransformerConfig(
            n_layers=12, d_model=768, n_ctx=tokens.shape[1], d_head=64, n_heads=12, d_vocab=50257, act_fn="gelu_new"
        )
    )
    lens.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"), return_type=None)


WAYS: dict[str, Callable[[GPT2Model, torch.Tensor], Any]] = {
    "forward": run_forward,
    "heads": run_heads,
    "top": run_top,
    "eager": run_eager,
    "transformer_lens": run_transformer_lens,
}


def main(way: str, length: int) -> None:
    """Run one way once, and print what it took."""
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_positions=length)).eval()
    tokens = torch.randint(50257, (1, length))
    with torch.no_grad():
        before, start = peak(), time.perf_counter()
        output = WAYS[way](model, tokens)
        seconds, used = time.perf_counter() - start, peak() - before
        model.set_attn_implementation("sdpa")  # `eager` changes it
        same = None if output is None or length > 4096 else torch.equal(output, run_forward(model, tokens))
    print(json.dumps({"way": way, "tokens": length, "bytes": used, "seconds": round(seconds, 2), "same": same}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
