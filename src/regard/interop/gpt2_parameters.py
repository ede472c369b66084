"""Parameters of GPT-2 folders <-> those of the model `gpt`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.files import read_json_table, read_tensors
from regard.interop.gpt2_tokenizer import End
from regard.models.gpt import Gpt, GptConfig
from regard.text.tokenizer import RESERVED

TRANSPOSED = {"attention.output": "attn.c_proj", "feed_forward.wider": "mlp.c_fc", "feed_forward.back": "mlp.c_proj"}
"""Linear layers, here and there, where their weights are (inputs, outputs)."""

NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
JOINED = ("attention.query", "attention.keys", "attention.values")
"""What is one layer there, `attn.c_attn`."""

Tensors = dict[str, Tensor]


def read_parameters(folder: Path) -> Tensors:
    """All tensors of a folder, from one file or several, in float32."""
    one, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if one.exists():
        files = [one.name]
    elif index.exists():
        files = sorted(set(read_json_table(index).get("weight_map", {}).values()))
    elif (folder / "pytorch_model.bin").exists():
        raise RegardError(
            f"{folder}: has only pytorch_model.bin, which can run any program when it is read; convert it: "
            "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(other) of Transformers writes model.safetensors"
        )
    else:
        raise RegardError(f"{folder}: there is no model.safetensors")
    found: Tensors = {}
    for file in files:
        if Path(file).name != file:
            raise RegardError(f"{index}: names the file {file}; files of the same folder are needed")
        found |= {name: tensor.float() for name, tensor in read_tensors(folder / file).items()}
    return found


def our_parameters(found: Mapping[str, Tensor], config: GptConfig, where: Path) -> Tensors:
    """The parameters of GPT-2 under our names, each of our linear layers by itself."""
    masks = (".attn.bias", ".attn.masked_bias")  # constants, which older folders have as tensors
    theirs = {name.removeprefix("transformer."): t for name, t in found.items() if not name.endswith(masks)}
    if config.tied:
        theirs.pop("lm_head.weight", None)
    ours: Tensors = {}
    try:
        for name, their_name in whole_names(config).items():
            ours[name] = theirs.pop(their_name)
        for layer in range(config.layers):
            ours |= our_layer(theirs, f"stack.layers.{layer}.", f"h.{layer}.")
    except KeyError as error:
        raise RegardError(f"{where}: there is no parameter {error.args[0]}") from None
    if theirs:
        raise RegardError(f"{where}: has the parameter {min(theirs)}, which GPT-2 has not")
    return ours


def our_layer(theirs: Tensors, own: str, their: str) -> Tensors:
    """The parameters of one layer, taken out of theirs."""
    ours: Tensors = {}
    for name, their_name in {**NORMS, **TRANSPOSED}.items():
        weight = theirs.pop(f"{their}{their_name}.weight")
        ours[f"{own}{name}.weight"] = weight.T.contiguous() if name in TRANSPOSED else weight
        ours[f"{own}{name}.bias"] = theirs.pop(f"{their}{their_name}.bias")
    weight, bias = (theirs.pop(f"{their}attn.c_attn.{part}") for part in ("weight", "bias"))
    for name, rows, numbers in zip(JOINED, weight.T.tensor_split(3), bias.tensor_split(3), strict=True):
        ours |= {f"{own}{name}.weight": rows.contiguous(), f"{own}{name}.bias": numbers}
    return ours


def their_parameters(ours: Mapping[str, Tensor], config: GptConfig) -> Tensors:
    """Our parameters under the names of GPT-2; where we have no bias, theirs is zero."""
    theirs = {name: ours[own] for own, name in whole_names(config).items() if own in ours}
    if not config.bias:
        theirs["ln_f.bias"] = torch.zeros(config.width)
    for layer in range(config.layers):
        own, their = f"stack.layers.{layer}.", f"h.{layer}."
        for name, their_name in {**NORMS, **TRANSPOSED}.items():
            weight = ours[f"{own}{name}.weight"]
            theirs[f"{their}{their_name}.weight"] = weight.T if name in TRANSPOSED else weight
            theirs[f"{their}{their_name}.bias"] = ours.get(f"{own}{name}.bias", torch.zeros(len(weight)))
        weights = [ours[f"{own}{name}.weight"] for name in JOINED]
        biases = [ours.get(f"{own}{name}.bias", torch.zeros(config.width)) for name in JOINED]
        theirs |= {f"{their}attn.c_attn.weight": torch.cat(weights).T, f"{their}attn.c_attn.bias": torch.cat(biases)}
    return {name if name == "lm_head.weight" else f"transformer.{name}": tensor for name, tensor in theirs.items()}


def whole_names(config: GptConfig) -> dict[str, str]:
    """What the parameters beside the layers are called here and there."""
    names = {"embedding.weight": "wte.weight", "positions.table": "wpe.weight"}
    names |= {f"stack.norm.{part}": f"ln_f.{part}" for part in ("weight", "bias")}
    return names if config.tied else {**names, "vocabulary.weight": "lm_head.weight"}


def token_tables(config: GptConfig) -> list[str]:
    """Our parameters that have a row for each token."""
    return ["embedding.weight"] if config.tied else ["embedding.weight", "vocabulary.weight"]


def our_rows(table: Tensor, end: End) -> Tensor:
    """Rows of GPT-2's tokens in our order: nothing for <pad> and <unk>, the end's for <bos> and <eos>, the others."""
    before, own, after = table[: end.number], table[end.number : end.number + 1], table[end.number + 1 :]
    nothing = torch.zeros_like(own)
    return torch.cat([nothing, nothing, own, own, before, after])


def their_rows(table: Tensor, end: End, special: int) -> Tensor:
    """Rows of our tokens in GPT-2's order, one of our special ones for the end."""
    others = table[len(RESERVED) :]
    return torch.cat([others[: end.number], table[special : special + 1], others[end.number :]])


def check_shapes(parameters: Mapping[str, Tensor], config: GptConfig, where: Path) -> None:
    """Raise a `RegardError` unless these are the parameters of such a model."""
    with torch.device("meta"):
        wanted = Gpt(config).state_dict()
    for name, tensor in wanted.items():
        if parameters[name].shape != tensor.shape:
            raise RegardError(
                f"{where}: {name} is {tuple(parameters[name].shape)}; config.json says {tuple(tensor.shape)}"
            )
