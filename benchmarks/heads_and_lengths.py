"""Time multi-head self-attention against the number of heads, and language models against length, in training.

python benchmarks/heads_and_lengths.py [DEVICE] [RESULTS.jsonl]

Rounds of all candidates in turn; the figure is the least of all rounds, the one that other programs disturbed least.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from regard.batch import TextBatch
from regard.bench.measure import get_clock
from regard.layers import MultiHeadAttention
from regard.models import build
from regard.models.model import Model

WIDTH, LENGTH, ROWS = 512, 512, 16
HEADS = (1, 2, 4, 8, 16, 32, 64)
VOCABULARY, PARAMETERS, TOKENS = 1000, 3_000_000, 8192
LENGTHS = (32, 64, 128, 256, 512, 1024)
ROUNDS = 7

Call = Callable[[], object]


def make_head_calls(device: str) -> Iterator[tuple[dict[str, object], Call]]:
    """Yield forward and backward of a layer for each number of heads."""
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(ROWS, LENGTH, WIDTH, device=device, dtype=dtype, requires_grad=True)
        for heads in HEADS:
            layer = MultiHeadAttention(WIDTH, heads).to(device, dtype)
            count = sum(parameter.numel() for parameter in layer.parameters())
            record = {"what": "heads", "dtype": str(dtype), "heads": heads, "parameters": count}
            yield record, partial(run_layer, layer, x)


def run_layer(layer: MultiHeadAttention, inputs: Tensor) -> object:
    """Run a layer forward and backward."""
    return torch.autograd.grad(layer(inputs).sum(), inputs)


def find_settings(name: str) -> dict[str, int]:
    """Return the widths at which a language model has about as many parameters as all others."""

    def settings(width: int) -> dict[str, int]:
        if name == "gpt2":
            return {"width": width, "heads": 4, "layers": 4, "context_length": max(LENGTHS)}
        return {"hidden": width, "embedding": width}

    def count(width: int) -> int:
        with torch.device("meta"):
            model = build(name, vocab_size=VOCABULARY, **settings(width))
        return sum(parameter.numel() for parameter in model.parameters())

    return settings(min(range(64, 2048, 16), key=lambda width: abs(count(width) - PARAMETERS)))


def make_model_calls(device: str) -> Iterator[tuple[dict[str, object], Call]]:
    """Yield an update without the optimizer for each language model and length, all of the same number of tokens."""
    for name in ("rnn-lm", "gru-lm", "lstm-lm", "attentive-lm", "gpt2"):
        model = build(name, vocab_size=VOCABULARY, **find_settings(name)).to(device)
        count = sum(parameter.numel() for parameter in model.parameters())
        for length in LENGTHS:
            tokens = torch.randint(4, VOCABULARY, (TOKENS // length, length + 1), device=device)
            batch = TextBatch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            yield (
                {"what": "models", "model": name, "length": length, "parameters": count},
                partial(run_model, model, batch),
            )


def run_model(model: Model, batch: TextBatch) -> object:
    """Run a language model forward and backward."""
    logits, _ = model(batch.tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


def main(device: str = "cpu", results: str = "/dev/stdout", rounds: str = str(ROUNDS)) -> None:
    """Time everything and write a line for each candidate."""
    clock = get_clock(torch.device(device))
    for make in (make_head_calls, make_model_calls):
        candidates = list(make(device))
        for _, call in candidates:
            call()
        seconds = [[clock(call) for _, call in candidates] for _ in range(int(rounds))]
        with Path(results).open("a") as file:
            for (record, _), times in zip(candidates, zip(*seconds, strict=True), strict=True):
                file.write(
                    json.dumps({**record, "seconds": min(times), "median": sorted(times)[len(times) // 2]}) + "\n"
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
