"""Folders of Hugging Face's GPT-2 <-> runs of the model `gpt`.

GPT-2 has one token, <|endoftext|>, for the beginning and the end of a text. Here it is <eos>,
and <bos> has the same vector; <pad> and <unk> have none, and these three are mute, so that
each token has the probability that GPT-2 gives it. All other tokens follow in their order.
No text is taken for <|endoftext|>, whatever stands in it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError, unknown_name
from regard.files import read_json_table, reading, write_tensors, write_text
from regard.interop.gpt2_parameters import (
    Tensors,
    check_shapes,
    our_parameters,
    our_rows,
    read_parameters,
    their_parameters,
    their_rows,
    token_tables,
)
from regard.interop.gpt2_tokenizer import (
    END_TOKEN,
    End,
    Vocabulary,
    from_gpt2,
    is_gpt2,
    read_vocabulary,
    tokenizer_files,
)
from regard.models.gpt import GptConfig
from regard.run import Run
from regard.settings import from_part, from_table, shown, to_table
from regard.tasks.text.settings import TextRecipe, TextTokens
from regard.text import Tokenizers
from regard.text.tokenizer import RESERVED, Tokenizer
from regard.training.going_on import tokenizers_of

ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
"""What activations are called there, and here."""

ONLY = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False, "layer_norm_epsilon": 1e-5}
"""Settings of GPT-2 of which we have one value alone."""

SAME = {
    "n_embd": "width",
    "n_head": "heads",
    "n_layer": "layers",
    "n_positions": "longest",
    "n_inner": "feed_forward",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tied",
}
"""What settings are called there, and here, that mean the same."""

MUTE = (PAD, UNKNOWN, BOS)
"""What GPT-2 has no tokens for."""


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """The settings in a config.json that say what is computed, under their names there."""

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


class Gpt2(NamedTuple):
    """A GPT-2 in our terms."""

    config: GptConfig
    parameters: Tensors
    tokenizer: Tokenizer
    end: End | None  # what <eos> is there; None for a vocabulary that stays ours


def import_gpt2(folder: str | Path, run_path: str | Path) -> Run:
    """Make a run of a GPT-2 in a folder, as `save_pretrained` of Transformers writes it.

    Args:
        folder: With config.json, model.safetensors (or several with their index), and tokenizer.json
            (or vocab.json and merges.txt).
        run_path: The run folder to write.
    """
    run = Run(Path(run_path))
    if run.exists():
        raise RegardError(f"{run.path}: there is a run already; choose another folder")
    config, parameters, tokenizer, end = read_gpt2(folder)
    assert end is not None
    model = {"name": "gpt", **{name: value for name, value in to_table(config).items() if name != "size"}}
    write_text(run.tokenizer_file, Tokenizers(tokenizer, tokenizer).to_json())
    run.write_recipe(TextRecipe(text=TextTokens(kind="bpe"), model=model).table())
    write_tensors(run.model_file, parameters)
    run.write_card(
        {
            "task": "text",
            "model": "gpt",
            "parameters": sum(tensor.numel() for tensor in parameters.values()),
            "vocabulary": {"source": tokenizer.size, "target": tokenizer.size},
            "data": {"origin": f"imported from {folder}", "train": 0, "valid": 0},
            "imported": {"folder": str(folder), **end._asdict()},
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
    )
    return run


def export_gpt2(run_path: str | Path, folder: str | Path) -> None:
    """Write a run of the model `gpt` as a folder that Transformers can load, model and tokenizer.

    What was imported has its tokens in the order they had; else they stay in ours, and the
    tokenizer puts <bos> first.
    """
    run = Run(Path(run_path))
    card, table = run.read_card(), run.read_recipe().get("model", {})
    if table.get("name") != "gpt":
        raise RegardError(f"{run.path}: its model is {table.get('name')}; only gpt fits into a GPT-2 folder")
    tokenizer = tokenizers_of(run).target
    settings = {name: value for name, value in table.items() if name != "name"}
    config = from_table(GptConfig, {"size": tokenizer.size, **settings}, f"{run.recipe_file}: [model]")
    end = None
    if config.mute == MUTE and is_gpt2(tokenizer):
        before = card.get("imported", {})
        end = End(before.get("number", config.size - len(RESERVED)), before.get("token", END_TOKEN))
    write_gpt2(folder, Gpt2(config, run.read_parameters(), tokenizer, end))


def read_gpt2(folder: str | Path) -> Gpt2:
    """Read a folder of Hugging Face's GPT-2."""
    folder = Path(folder)
    where = folder / "config.json"
    theirs = read_config(where)
    vocabulary = read_vocabulary(folder)
    end = end_of(theirs, vocabulary, where)
    tokenizer = from_gpt2(vocabulary, end, folder)
    config = to_ours(theirs, tokenizer.size, where)
    parameters = our_parameters(read_parameters(folder), config, folder)
    parameters |= {name: our_rows(parameters[name], end) for name in token_tables(config)}
    check_shapes(parameters, config, folder)
    return Gpt2(config, parameters, tokenizer, end)


def write_gpt2(folder: str | Path, gpt2: Gpt2) -> None:
    """Write a folder of Hugging Face's GPT-2, which must be new or empty."""
    folder = Path(folder)
    config, parameters, tokenizer, end = gpt2
    theirs = to_theirs(config, end)
    with reading(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RegardError(f"{folder}: is not empty; choose another folder")
    if end is not None and config.tied and not torch.equal(*parameters["embedding.weight"][[BOS, EOS]]):
        # Tuned, <bos> has become another token than <eos>: one is only ever read, the other only written.
        parameters = {**parameters, "vocabulary.weight": parameters["embedding.weight"]}
        config, theirs = replace(config, tied=False), replace(theirs, tie_word_embeddings=False)
    if end is not None:
        read_as = {"embedding.weight": BOS, "vocabulary.weight": EOS}
        rows = {name: their_rows(parameters[name], end, read_as[name]) for name in token_tables(config)}
        parameters = {**parameters, **rows}
    files = tokenizer_files(tokenizer, end, config.longest)
    plain = {"architectures": ["GPT2LMHeadModel"], **asdict(theirs)}
    for name, text in {"config.json": json.dumps(plain, indent=2) + "\n", **files}.items():
        write_text(folder / name, text)
    header = {"format": "pt"}  # without which Transformers would not read it
    write_tensors(folder / "model.safetensors", their_parameters(parameters, config), header)


def read_config(where: Path) -> Gpt2Config:
    """The settings of a config.json, or a `RegardError` that names the one we do not have."""
    found = read_json_table(where)
    kind = found.get("model_type")
    if kind != "gpt2":
        raise RegardError(f"{where}: model_type is {shown(kind)}; gpt2 is needed")
    config = from_part(Gpt2Config, found, str(where))
    for name, ours in ONLY.items():
        if getattr(config, name) != ours:
            raise RegardError(f"{where}: {name} is {shown(getattr(config, name))}; here it is always {shown(ours)}")
    if config.activation_function not in ACTIVATIONS:
        raise unknown_name(f"{where}: activation_function", config.activation_function, ACTIVATIONS)
    if config.embd_pdrop != config.resid_pdrop:
        raise RegardError(
            f"{where}: embd_pdrop is {config.embd_pdrop}, resid_pdrop {config.resid_pdrop}; here they are one: set "
            "them equal, which changes training alone"
        )
    return config


def end_of(config: Gpt2Config, vocabulary: Vocabulary, where: Path) -> End:
    """The token that a text begins and ends with."""
    size, end, begin = len(vocabulary.entries), config.eos_token_id, config.bos_token_id
    if size != config.vocab_size:
        raise RegardError(f"{where}: vocab_size is {config.vocab_size}, the tokenizer has {size} tokens")
    if end is None or not 0 <= end < size:
        raise RegardError(f"{where}: eos_token_id is {shown(end)}; a number below {size} is needed")
    if begin not in (None, end):
        raise RegardError(f"{where}: bos_token_id is {begin}, eos_token_id {end}; one token for both is needed")
    return End(end, vocabulary.entries[end])


def to_ours(config: Gpt2Config, size: int, where: Path) -> GptConfig:
    """The same settings under our names."""
    table = {
        **{ours: getattr(config, theirs) for theirs, ours in SAME.items()},
        "size": size,
        "score": "scaled_dot" if config.scale_attn_weights else "dot",
        "activation": ACTIVATIONS[config.activation_function],
        "mute": MUTE,
    }
    return from_table(GptConfig, table, str(where))


def to_theirs(config: GptConfig, end: End | None) -> Gpt2Config:
    """The same settings under their names, or a `RegardError` that names the one GPT-2 does not have."""
    for name, wanted in (("norm", ("pre",)), ("positions", ("learned",)), ("score", ("scaled_dot", "dot"))):
        if getattr(config, name) not in wanted:
            raise RegardError(f"{name} is {getattr(config, name)}; GPT-2 has {' or '.join(wanted)}")
    if config.mute and end is None:
        raise RegardError(f"mute is {shown(config.mute)}; GPT-2 can write every token: leave it empty")
    return Gpt2Config(
        **{theirs: getattr(config, ours) for theirs, ours in SAME.items()},
        model_type="gpt2",
        vocab_size=config.size - (0 if end is None else len(MUTE)),
        activation_function=next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation),
        embd_pdrop=config.dropout,
        scale_attn_weights=config.score == "scaled_dot",
        bos_token_id=BOS if end is None else end.number,
        eos_token_id=EOS if end is None else end.number,
        pad_token_id=PAD if end is None else None,
    )
