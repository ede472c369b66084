"""Train models compiled and uncompiled for some steps, and compare their losses: `python -m ... NAME ...`.

Models without recurrences are one graph. It runs in a process of its own, because type checks break graphs.
"""

import json
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from regard.api import train
from regard.models import MODELS

ONE_GRAPH = ("transformer", "gpt2", "gpt", "neural-lm", "attentive-classifier")
CORPORA: dict[str, dict[str, Any]] = {
    "pairs": {"train": "reverse", "corpus": {"min_length": 2, "max_length": 6, "alphabet": "abcd"}},
    "text": {"train": "agreement"},
    "label": {"train": "acts"},
    "tag": {"train": "entities"},
}
SIZES = {
    "width": 16,
    "heads": 2,
    "hidden": 16,
    "embedding": 16,
    "layers": 1,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "context_length": 32,
    "char_encoder": "none",
}
OWN: dict[str, dict[str, Any]] = {
    "attentive-classifier": {"encoder": "attention", "char_encoder": "max"},
}


def train_losses(name: str, *, is_compiled: bool) -> list[float]:
    """Train a small model for three steps; return the losses in its run."""
    preset = MODELS[name]
    settings = {field.name for field in fields(preset.config)}
    sizes = {setting: size for setting, size in SIZES.items() if setting in settings}
    if name == "seq2seq":
        del sizes["heads"]
    recipe = {
        "data": {"corpus_size": 200, **CORPORA[preset.task]},
        "model": {"name": name, **sizes, **OWN.get(name, {})},
        "training": {"steps": 3, "batch_tokens": 150, "validate_every": 3, "compile": is_compiled},
    }
    with TemporaryDirectory() as folder:
        train(recipe, Path(folder) / "run", quiet=True)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    return [record[key] for record in map(json.loads, lines) for key in ("train_loss", "valid_loss") if key in record]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, flush=True)  # the last name printed is the one that failed
        torch.compiler.reset()
        with pytest.MonkeyPatch.context() as patch:
            compile_traced = partial(torch.compile, backend="aot_eager", fullgraph=name in ONE_GRAPH)
            patch.setattr(torch, "compile", compile_traced)
            losses = train_losses(name, is_compiled=True)
        assert losses
        assert losses == pytest.approx(train_losses(name, is_compiled=False), rel=1e-5)
