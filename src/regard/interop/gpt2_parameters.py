"""Convert between the parameters of GPT-2 folders and of the model `gpt`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import RegardError, format_json, is_out_of_memory
from regard.files import read_json_table, read_tensors
from regard.interop.gpt2_tokenizer import EndToken
from regard.models.gpt import Gpt, GptConfig
from regard.text.tokenizer import RESERVED

TRANSPOSED = {"attention.output": "attn.c_proj", "feed_forward.wider": "mlp.c_fc", "feed_forward.back": "mlp.c_proj"}
"""Linear layer of `gpt` -> layer of GPT-2, whose weight is transposed: (inputs, outputs)."""

NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
JOINED = ("attention.query", "attention.keys", "attention.values")
"""Layers of `gpt` that are one layer in GPT-2, `attn.c_attn`."""

MASKS = (".attn.bias", ".attn.masked_bias")
"""Constants that older versions saved as tensors."""

Tensors = dict[str, Tensor]


def read_parameters(folder: Path) -> Tensors:
    """Read all tensors of a folder, from one file or several, in float32."""
    single_file, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single_file.exists():
        files = [single_file.name]
    elif index.exists():
        files = list_shards(index)
    elif (folder / "pytorch_model.bin").exists():
        raise RegardError(
            f"{folder}: cannot read pytorch_model.bin, which can run arbitrary code; convert it to model.safetensors "
            "with GPT2LMHeadModel.from_pretrained(folder).save_pretrained(other) of Transformers"
        )
    else:
        raise RegardError(f"cannot read {single_file}: not found")
    tensors: Tensors = {}
    for file in files:
        tensors |= read_tensors(folder / file)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not name.endswith(MASKS):
            raise RegardError(
                f"{folder}: {name} must have a float type, got {str(tensor.dtype).removeprefix('torch.')}"
            )
    return {name: tensor.float() for name, tensor in tensors.items() if not name.endswith(MASKS)}


def list_shards(index: Path) -> list[str]:
    """Return the names of the files that an index lists, which must be files in the same folder."""
    weight_map = read_json_table(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise RegardError(f"{index}: weight_map must be an object of parameter names and files")
    for file in weight_map.values():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.safetensors", file):
            raise RegardError(f"{index}: expected files in the same folder, got {format_json(file)}")
    return sorted(set(weight_map.values()))


def from_gpt2_parameters(tensors: Mapping[str, Tensor], config: GptConfig, location: Path) -> Tensors:
    """Rename the parameters of GPT-2, transpose linear layers and split the joined ones."""
    gpt2_tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    if config.tied:
        gpt2_tensors.pop("lm_head.weight", None)
    parameters: Tensors = {}
    try:
        for name, gpt2_name in get_parameter_names(config).items():
            parameters[name] = take_tensor(gpt2_tensors, gpt2_name, axes=1 if name.startswith("stack.norm.") else 2)
        for layer in range(config.layers):
            parameters |= from_gpt2_layer(gpt2_tensors, f"stack.layers.{layer}.", f"h.{layer}.")
    except RegardError as error:
        raise RegardError(f"{location}: {error}") from None
    if gpt2_tensors:
        raise RegardError(f"{location}: unexpected parameter {min(gpt2_tensors)}, not part of GPT-2")
    return parameters


def take_tensor(tensors: Tensors, name: str, axes: int) -> Tensor:
    """Remove a tensor from `tensors` and return it; raise a `RegardError` if it is missing or has other axes."""
    if name not in tensors:
        raise RegardError(f"missing parameter {name}")
    if tensors[name].ndim != axes:
        raise RegardError(f"{name}: expected {axes} axes, got shape {tuple(tensors[name].shape)}")
    return tensors.pop(name)


def from_gpt2_layer(gpt2_tensors: Tensors, prefix: str, gpt2_prefix: str) -> Tensors:
    """Convert the parameters of one layer, removing them from `gpt2_tensors`."""
    parameters: Tensors = {}
    for name, gpt2_name in {**NORMS, **TRANSPOSED}.items():
        weight = take_tensor(gpt2_tensors, f"{gpt2_prefix}{gpt2_name}.weight", axes=2 if name in TRANSPOSED else 1)
        parameters[f"{prefix}{name}.weight"] = weight.T.contiguous() if name in TRANSPOSED else weight
        parameters[f"{prefix}{name}.bias"] = take_tensor(gpt2_tensors, f"{gpt2_prefix}{gpt2_name}.bias", axes=1)
    weight = take_tensor(gpt2_tensors, f"{gpt2_prefix}attn.c_attn.weight", axes=2)
    bias = take_tensor(gpt2_tensors, f"{gpt2_prefix}attn.c_attn.bias", axes=1)
    for name, rows, bias_part in zip(JOINED, weight.T.tensor_split(3), bias.tensor_split(3), strict=True):
        parameters |= {f"{prefix}{name}.weight": rows.contiguous(), f"{prefix}{name}.bias": bias_part}
    return parameters


def to_gpt2_parameters(parameters: Mapping[str, Tensor], config: GptConfig) -> Tensors:
    """Convert parameters of `gpt` to those of GPT-2; missing biases become zero."""
    gpt2_tensors = {
        gpt2_name: parameters[name] for name, gpt2_name in get_parameter_names(config).items() if name in parameters
    }
    if not config.bias:
        gpt2_tensors["ln_f.bias"] = torch.zeros(config.width)
    for layer in range(config.layers):
        prefix, gpt2_prefix = f"stack.layers.{layer}.", f"h.{layer}."
        for name, gpt2_name in {**NORMS, **TRANSPOSED}.items():
            weight = parameters[f"{prefix}{name}.weight"]
            gpt2_tensors[f"{gpt2_prefix}{gpt2_name}.weight"] = weight.T if name in TRANSPOSED else weight
            gpt2_tensors[f"{gpt2_prefix}{gpt2_name}.bias"] = parameters.get(
                f"{prefix}{name}.bias", torch.zeros(len(weight))
            )
        weights = [parameters[f"{prefix}{name}.weight"] for name in JOINED]
        biases = [parameters.get(f"{prefix}{name}.bias", torch.zeros(config.width)) for name in JOINED]
        gpt2_tensors |= {
            f"{gpt2_prefix}attn.c_attn.weight": torch.cat(weights).T,
            f"{gpt2_prefix}attn.c_attn.bias": torch.cat(biases),
        }
    return {
        name if name == "lm_head.weight" else f"transformer.{name}": tensor for name, tensor in gpt2_tensors.items()
    }


def get_parameter_names(config: GptConfig) -> dict[str, str]:
    """Return `gpt` name -> GPT-2 name of the parameters outside the layers."""
    names = {"embedding.weight": "wte.weight", "positions.table": "wpe.weight"}
    names |= {f"stack.norm.{part}": f"ln_f.{part}" for part in ("weight", "bias")}
    return names if config.tied else {**names, "vocabulary.weight": "lm_head.weight"}


def get_token_tables(config: GptConfig) -> list[str]:
    """Return the names of the parameters with a row per token."""
    return ["embedding.weight"] if config.tied else ["embedding.weight", "vocabulary.weight"]


def from_gpt2_rows(table: Tensor, end: EndToken) -> Tensor:
    """Reorder rows of GPT-2's tokens: zeros for <pad> and <unk>, the end token for <bos> and <eos>, the others."""
    before, end_row, after = table[: end.number], table[end.number : end.number + 1], table[end.number + 1 :]
    zeros = torch.zeros_like(end_row)
    return torch.cat([zeros, zeros, end_row, end_row, before, after])


def to_gpt2_rows(table: Tensor, end: EndToken, special: int) -> Tensor:
    """Reorder rows to the order of GPT-2's tokens, with the row of `special` for the end token."""
    others = table[len(RESERVED) :]
    return torch.cat([others[: end.number], table[special : special + 1], others[end.number :]])


def check_shapes(parameters: Mapping[str, Tensor], config: GptConfig, location: Path) -> None:
    """Raise a `RegardError` if a parameter has another shape than the config implies."""
    try:
        with torch.device("meta"):
            expected = Gpt(config).state_dict()
    except (RuntimeError, TypeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RegardError(f"{location}: the sizes in config.json are beyond any memory") from None
    for name, tensor in expected.items():
        if parameters[name].shape != tensor.shape:
            raise RegardError(
                f"{location}: {name}: expected shape {tuple(tensor.shape)} by config.json, "
                f"got {tuple(parameters[name].shape)}"
            )
