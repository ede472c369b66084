"""Memory and time of looking at a model of GPT-2's size: `python benchmarks/heads.py WAY TOKENS [LAYERS]`.

Each call is a fresh process that builds the model from its configuration (random weights), runs it once over a random
text and prints one JSON line: the peak memory above that of the loaded model, in bytes; the seconds by the clock and
those of all cores together; and, up to 4,096 tokens, whether the hidden states have the bits of the plain model's.

WAY is `forward` (the plain model), `heads` (`regard.heads`), `top` (`regard.watch(keep="top:8")`), `all`
(`regard.watch`, which keeps query and keys), `eager` (`output_attentions=True`) or `transformer_lens` (the attention
patterns by `run_with_cache`; version 3 or later, which wraps the model).
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from memory import get_peak, start_peak
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import regard

Run = Callable[[torch.Tensor], Any]


def prepare_forward(model: Any) -> Run:
    """Run the plain model."""
    return lambda tokens: model.transformer(tokens, use_cache=False).last_hidden_state


def prepare_heads(model: Any) -> Run:
    """Measure all heads; `regard.heads` keeps no output."""
    outputs: list[torch.Tensor] = []
    model.transformer.register_forward_hook(lambda *call: outputs.append(call[-1].last_hidden_state))

    def run(tokens: torch.Tensor) -> torch.Tensor:
        regard.heads(model, tokens)
        return outputs[0]

    return run


def prepare_watch(keep: str) -> Callable[[Any], Run]:
    """Watch the model."""

    def prepare(model: Any) -> Run:
        plain = prepare_forward(model)

        def run(tokens: torch.Tensor) -> Any:
            with regard.watch(model, keep=keep):
                return plain(tokens)

        return run

    return prepare


def prepare_eager(model: Any) -> Run:
    """Return all matrices, as Transformers does."""

    def run(tokens: torch.Tensor) -> Any:
        return model.transformer(tokens, use_cache=False, output_attentions=True)

    model.set_attn_implementation("eager")
    return run


def prepare_transformer_lens(model: Any) -> Run:
    """Cache the attention patterns and the last hidden states."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")))
    tokenizer.add_special_tokens(dict.fromkeys(("unk_token", "bos_token", "eos_token", "pad_token"), "<unk>"))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        bridge = import_module("transformer_lens").TransformerBridge.boot_transformers(
            "gpt2", hf_model=model, tokenizer=AutoTokenizer.from_pretrained(folder)
        )
    names = ("hook_pattern", "ln_final.hook_out")

    def run(tokens: torch.Tensor) -> Any:
        return bridge.run_with_cache(tokens, names_filter=lambda name: name.endswith(names))[1]

    return run


WAYS: dict[str, Callable[[Any], Run]] = {
    "forward": prepare_forward,
    "heads": prepare_heads,
    "top": prepare_watch("top:8"),
    "all": prepare_watch("all"),
    "eager": prepare_eager,
    "transformer_lens": prepare_transformer_lens,
}


def get_hidden_states(output: Any) -> torch.Tensor:
    """Return the last hidden states of what a way returned."""
    if isinstance(output, torch.Tensor):
        return output
    return output.last_hidden_state if hasattr(output, "last_hidden_state") else output["ln_final.hook_out"]


@torch.no_grad()
def main(way: str, length: int, layers: int = 12) -> None:
    """Run one way once, and print what it took."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_positions=length, n_layer=layers, architectures=["GPT2LMHeadModel"])).eval()
    tokens = torch.randint(50257, (1, length))
    plain = copy.deepcopy(model) if length <= 4096 else None  # as eager attention and TransformerLens change it
    run = WAYS[way](model)
    before, start, cores = start_peak(), time.perf_counter(), time.process_time()
    output = run(tokens)
    seconds, core_seconds, used = time.perf_counter() - start, time.process_time() - cores, get_peak() - before
    same = None if plain is None else torch.equal(get_hidden_states(output), prepare_forward(plain)(tokens))
    times = {"seconds": round(seconds, 2), "core_seconds": round(core_seconds, 2)}
    print(json.dumps({"way": way, "tokens": length, "layers": layers, "bytes": used, **times, "same": same}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
