"""Convert between GPT-2 folders of Hugging Face and runs of the model `gpt2`.

GPT-2 has one token, <|endoftext|>, for the start and the end of a text. In regard it becomes
<eos>, and <bos> gets the same vector. <pad> and <unk> get zeros. <pad>, <unk> and <bos> are
muted, so that every token keeps its probability. All other tokens keep their order. The text
"<|endoftext|>" is never encoded as the special token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError, unknown_name
from regard.files import read_json_table, serialize_tensors, wrap_read_errors, write_tensors, write_text
from regard.interop.gpt2_parameters import (
    Tensors,
    check_shapes,
    from_gpt2_parameters,
    from_gpt2_rows,
    get_token_tables,
    read_parameters,
    to_gpt2_parameters,
    to_gpt2_rows,
)
from regard.interop.gpt2_tokenizer import (
    END_TOKEN,
    EndToken,
    Gpt2Vocabulary,
    build_tokenizer_files,
    from_gpt2,
    is_gpt2_tokenizer,
    read_vocabulary,
)
from regard.models.gpt import GptConfig
from regard.run import Run
from regard.settings import format_value, parse_known_settings, parse_settings, to_table, to_toml
from regard.tasks.text.settings import TextRecipe, TextTokens
from regard.text import TokenizerPair
from regard.text.tokenizer import RESERVED, Tokenizer
from regard.training.resume import load_tokenizers

ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
"""Activation in config.json -> activation in `GptConfig`."""

FIXED_SETTINGS = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False, "layer_norm_epsilon": 1e-5}
"""Settings of GPT-2 with only one supported value."""

SAME = {
    "n_embd": "width",
    "n_head": "heads",
    "n_layer": "layers",
    "n_positions": "context_length",
    "n_inner": "feed_forward",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tied",
}
"""Setting in config.json -> setting of the same meaning in `GptConfig`."""

MUTE = (PAD, UNKNOWN, BOS)
"""Reserved tokens that GPT-2 does not have."""


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """The settings of a config.json that affect the computation, under their original names."""

    model_type: str
    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256
    pad_token_id: int | None = None


class Gpt2Checkpoint(NamedTuple):
    """A GPT-2 model converted to regard's format."""

    config: GptConfig
    parameters: Tensors
    tokenizer: Tokenizer
    end: EndToken | None  # the token that becomes <eos>; None to keep regard's vocabulary


def import_gpt2(folder: str | Path, run_path: str | Path) -> Run:
    """Import a GPT-2 folder, as written by `save_pretrained` of Transformers, into a new run.

    Args:
        folder: A folder with config.json, model.safetensors (or several files and an index), and
            tokenizer.json (or vocab.json and merges.txt).
        run_path: The run folder to write.

    Raises:
        RegardError: `run_path` already has a run, or the folder is incomplete, corrupt or not supported.

    Example:
        >>> run = import_gpt2("models/gpt2", "runs/gpt2")
    """
    run = Run(Path(run_path))
    if run.exists():
        raise RegardError(f"{run.path} already contains a run; choose another folder")
    config, parameters, tokenizer, end = read_gpt2(folder)
    assert end is not None
    model = {"name": "gpt2", **{name: value for name, value in to_table(config).items() if name != "vocab_size"}}
    recipe = TextRecipe(text=TextTokens(tokenizer="bpe"), model=model).to_table()
    run.write_files(
        {
            "task": "text",
            "model": "gpt2",
            "parameters": sum(tensor.numel() for tensor in parameters.values()),
            "vocabulary": {"source": tokenizer.size, "target": tokenizer.size},
            "data": {"origin": f"imported from {folder}", "train": 0, "validation": 0},
            "imported": {"folder": str(folder), **end._asdict()},
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        },
        {
            run.recipe_file.name: to_toml(recipe).encode(),
            run.tokenizer_file.name: TokenizerPair(tokenizer, tokenizer).to_json().encode(),
            run.model_file.name: serialize_tensors(parameters),
        },
    )
    return run


def export_gpt2(run_path: str | Path, folder: str | Path) -> None:
    """Export a run of the model `gpt2` as a folder that Transformers can load, with model and tokenizer.

    An imported model gets its original token ids back. Any other keeps regard's ids, and the
    tokenizer adds <bos> before every text.

    Args:
        run_path: The run folder to read.
        folder: The folder to write; must be new or empty.

    Raises:
        RegardError: The run has another model, or settings that GPT-2 does not support.

    Example:
        >>> export_gpt2("runs/gpt2", "models/my-gpt2")
    """
    run = Run(Path(run_path))
    card, table = run.read_card(), run.read_recipe().get("model", {})
    if table.get("name") != "gpt2":
        raise RegardError(f'{run.path}: cannot export model "{table.get("name")}"; only "gpt2" is supported')
    tokenizer = load_tokenizers(run).target
    settings = {name: value for name, value in table.items() if name != "name"}
    config = parse_settings(GptConfig, {"vocab_size": tokenizer.size, **settings}, f"{run.recipe_file}: [model]")
    end = None
    if config.mute == MUTE and is_gpt2_tokenizer(tokenizer):
        end = get_imported_end(card.get("imported") or {}, config.vocab_size - len(RESERVED), run.card_file)
    write_gpt2(folder, Gpt2Checkpoint(config, run.read_parameters(), tokenizer, end))


def get_imported_end(imported: Mapping[str, Any], size: int, path: Path) -> EndToken:
    """Return the end token that an imported model had; the last token of a model that was not imported."""
    number, token = imported.get("number", size), imported.get("token", END_TOKEN)
    if type(number) is not int or not 0 <= number <= size or not isinstance(token, str):
        raise RegardError(f"{path}: imported: expected the number and the token that a text ends with")
    return EndToken(number, token)


def read_gpt2(folder: str | Path) -> Gpt2Checkpoint:
    """Read a GPT-2 folder of Hugging Face."""
    folder = Path(folder)
    path = folder / "config.json"
    gpt2_config = read_gpt2_config(path)
    vocabulary = read_vocabulary(folder)
    end = find_end_token(gpt2_config, vocabulary, path)
    tokenizer = from_gpt2(vocabulary, end, folder)
    config = to_gpt_config(gpt2_config, tokenizer.size, path)
    parameters = from_gpt2_parameters(read_parameters(folder), config, folder)
    parameters |= {name: from_gpt2_rows(parameters[name], end) for name in get_token_tables(config)}
    check_shapes(parameters, config, folder)
    return Gpt2Checkpoint(config, parameters, tokenizer, end)


def write_gpt2(folder: str | Path, gpt2: Gpt2Checkpoint) -> None:
    """Write a GPT-2 folder of Hugging Face, which must be new or empty."""
    folder = Path(folder)
    config, parameters, tokenizer, end = gpt2
    gpt2_config = to_gpt2_config(config, end)
    with wrap_read_errors(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RegardError(f"{folder} is not empty; choose another folder")
    if end is not None and config.tied and not torch.equal(*parameters["embedding.weight"][[BOS, EOS]]):
        # Fine-tuning made <bos> (only read) and <eos> (only generated) differ, so the output layer must be untied.
        parameters = {**parameters, "vocabulary.weight": parameters["embedding.weight"]}
        config, gpt2_config = replace(config, tied=False), replace(gpt2_config, tie_word_embeddings=False)
    if end is not None:
        read_as = {"embedding.weight": BOS, "vocabulary.weight": EOS}
        rows = {name: to_gpt2_rows(parameters[name], end, read_as[name]) for name in get_token_tables(config)}
        parameters = {**parameters, **rows}
    files = build_tokenizer_files(tokenizer, end, config.context_length)
    plain = {"architectures": ["GPT2LMHeadModel"], **asdict(gpt2_config)}
    for name, text in {"config.json": json.dumps(plain, indent=2) + "\n", **files}.items():
        write_text(folder / name, text)
    header = {"format": "pt"}  # required by Transformers
    write_tensors(folder / "model.safetensors", to_gpt2_parameters(parameters, config), header)


def read_gpt2_config(path: Path) -> Gpt2Config:
    """Read the settings of a config.json; raise a `RegardError` if one is not supported."""
    table = read_json_table(path)
    kind = table.get("model_type")
    if kind != "gpt2":
        raise RegardError(f'{path}: cannot import model_type {format_value(kind)}; only "gpt2" is supported')
    config = parse_known_settings(Gpt2Config, table, str(path))
    for name, supported in FIXED_SETTINGS.items():
        if getattr(config, name) != supported:
            raise RegardError(
                f"{path}: cannot import {name} = {format_value(getattr(config, name))}; "
                f"only {format_value(supported)} is supported"
            )
    if config.activation_function not in ACTIVATIONS:
        raise unknown_name(f"{path}: activation_function", config.activation_function, ACTIVATIONS)
    if config.embd_pdrop != config.resid_pdrop:
        raise RegardError(
            f"{path}: embd_pdrop and resid_pdrop must be equal, got {config.embd_pdrop} and {config.resid_pdrop}; "
            "edit one of them, which affects only training"
        )
    return config


def find_end_token(config: Gpt2Config, vocabulary: Gpt2Vocabulary, path: Path) -> EndToken:
    """Return the token that texts start and end with."""
    size, end, start = len(vocabulary.entries), config.eos_token_id, config.bos_token_id
    if size != config.vocab_size:
        raise RegardError(
            f"{path}: vocab_size must be the number of tokens in the tokenizer ({size}), got {config.vocab_size}"
        )
    if end is None or not 0 <= end < size:
        raise RegardError(f"{path}: eos_token_id must be at least 0 and below {size}, got {format_value(end)}")
    if start not in (None, end):
        raise RegardError(f"{path}: bos_token_id and eos_token_id must be equal, got {start} and {end}")
    return EndToken(end, vocabulary.entries[end])


def to_gpt_config(config: Gpt2Config, size: int, path: Path) -> GptConfig:
    """Convert settings of GPT-2 to a `GptConfig`."""
    table = {
        **{gpt_name: getattr(config, gpt2_name) for gpt2_name, gpt_name in SAME.items()},
        "vocab_size": size,
        "score": "scaled_dot" if config.scale_attn_weights else "dot",
        "activation": ACTIVATIONS[config.activation_function],
        "mute": MUTE,
    }
    return parse_settings(GptConfig, table, str(path))


def to_gpt2_config(config: GptConfig, end: EndToken | None) -> Gpt2Config:
    """Convert a `GptConfig` to settings of GPT-2; raise a `RegardError` if GPT-2 does not support one."""
    fixed = {"norm": ("pre",), "positions": ("learned",), "score": ("scaled_dot", "dot"), "head_width": (None,)}
    for name, supported in fixed.items():
        if getattr(config, name) not in supported:
            raise RegardError(
                f"cannot export {name} = {format_value(getattr(config, name))}; "
                f"GPT-2 supports only {' or '.join(map(format_value, supported))}"
            )
    if config.mute and end is None:
        raise RegardError(f"cannot export mute = {format_value(config.mute)}; GPT-2 cannot mute tokens")
    return Gpt2Config(
        **{gpt2_name: getattr(config, gpt_name) for gpt2_name, gpt_name in SAME.items()},
        model_type="gpt2",
        vocab_size=config.vocab_size - (0 if end is None else len(MUTE)),
        activation_function=next(name for name, activation in ACTIVATIONS.items() if activation == config.activation),
        embd_pdrop=config.dropout,
        scale_attn_weights=config.score == "scaled_dot",
        bos_token_id=BOS if end is None else end.number,
        eos_token_id=EOS if end is None else end.number,
        pad_token_id=PAD if end is None else None,
    )
