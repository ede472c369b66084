"""Build a small random model of every model type of Transformers, from its configuration: nothing is downloaded."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

BATCH, LENGTH, PADDED = 2, 12, 3
MAX_PARAMETERS = 40_000_000

TINY = {
    32: "hidden_size d_model n_embd embed_dim embedding_size emb_dim hidden_dim encoder_hidden_size text_hidden_size "
    "decoder_hidden_size out_hidden_size projection_dim output_dim word_embed_proj_dim embedding_dim",
    4: "num_attention_heads n_head num_heads encoder_attention_heads decoder_attention_heads n_heads attention_heads "
    "num_local_experts num_experts n_routed_experts moe_num_experts",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers depth "
    "num_key_value_heads num_experts_per_tok num_encoder_layers moe_topk num_blocks",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim",
    16: "kv_lora_rank q_lora_rank qk_head_dim",
    48: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim n_inner mlp_dim moe_intermediate_size "
    "shared_expert_intermediate_size shared_intermediate_size",
}
TINY_VALUES = {name: value for value, names in TINY.items() for name in names.split()}
LAYERS = re.compile(
    r"^(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|num_(en|de)coder_layers|depth)$"
)
WIDTHS = re.compile(
    r"hidden|d_model|(^|_)dim|embd|embed_|width|ffn|inter|rank|d_kv|d_ff|channels|mrope|output_size|proj"
)
NOT_WIDTHS = re.compile(
    r"layer|num_|_id|image|patch|kernel|vocab|window|max_|position|expand|ratio|stride|act|in_channels$"
)
EXPERTS = re.compile(r"^(num_experts|num_local_experts|n_routed_experts|moe_num_experts|num_expert.*per.*|moe_topk)$")

Change = Callable[[str, Any], Any]


def make_tiny(name: str, value: Any) -> Any:
    """Return a small value for a setting whose name is known."""
    if name in TINY_VALUES and isinstance(value, int) and not isinstance(value, bool):
        return min(value, TINY_VALUES[name])
    return shrink_image(name, value)


def make_deeper(name: str, value: Any) -> Any:
    """Return a small value for a setting, with four layers, since the attention of some types comes after others."""
    is_depth = LAYERS.match(name) and isinstance(value, int) and not isinstance(value, bool)
    return min(value, 4) if is_depth else make_tiny(name, value)


def make_narrow(name: str, value: Any, divisor: int = 8) -> Any:
    """Return a fraction of a width, so that widths keep their proportions."""
    if WIDTHS.search(name) and not NOT_WIDTHS.search(name):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 64 and value % divisor == 0:
            return value // divisor
        if isinstance(value, list) and value and all(isinstance(size, int) and size % divisor == 0 for size in value):
            return [size // divisor for size in value]
    return shrink_image(name, value)


def shrink_image(name: str, value: Any) -> Any:
    """Return a small image, and fewer layers, experts and words."""
    if name == "image_size" and isinstance(value, int):
        return min(value, 128)
    return make_shallow(name, value)


def make_shallow(name: str, value: Any) -> Any:
    """Return fewer layers, experts and words."""
    if isinstance(value, bool):
        return value
    if name == "vocab_size" and value is None:
        return 160
    if name in ("n_group", "topk_group", "moe_n_group"):
        return 1
    if isinstance(value, int):
        if LAYERS.match(name):
            return min(value, 4 if name == "num_hidden_layers" and value % 4 == 0 and value > 40 else 2)
        if EXPERTS.match(name):
            return min(value, 4 if value > 8 or "per" not in name else 2)
        if name == "vocab_size":
            return min(value, 160)
        if name.endswith(("token_id", "token_index")):
            return value if value < 100 else 100 + sum(map(ord, name)) % 50
    return value


DEEPER = "tiny, four layers"
CHANGES: dict[str, Change] = {
    "tiny": make_tiny, "narrow": make_narrow, "narrow by 4": partial(make_narrow, divisor=4), "shallow": make_shallow,
    DEEPER: make_deeper,
}  # fmt: skip
DEPENDENT = {"transformers_version", "id2label", "label2id", "out_indices", "out_features", "stage_names"}
"""Settings that follow from others."""


def shrink(values: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return settings changed, those of nested configurations too, with lists of layers cut to their number."""
    changed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in DEPENDENT:
            changed[name] = shrink(value, change) if isinstance(value, dict) else change(name, value)
    layers = next((changed[name] for name in ("num_hidden_layers", "num_layers", "n_layer") if name in changed), None)
    before = next((values[name] for name in ("num_hidden_layers", "num_layers", "n_layer") if name in values), None)
    for name, value in changed.items():
        if isinstance(value, list) and before and len(value) == before and isinstance(layers, int):
            changed[name] = spread(value, layers)
    return changed


def spread(kinds: list[Any], count: int) -> list[Any]:
    """Return a shorter list that has as many different entries as fit."""
    different = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    return (different + kinds)[:count] if len(different) > 1 else kinds[:count]


def build_configs(model_type: str) -> Iterator[tuple[str, Any]]:
    """Yield small configurations of a type with the name of how they were made small, the smallest first."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    default = config_class()
    values = {key: value for key, value in default.to_dict().items() if key not in DEPENDENT}
    for name, change in CHANGES.items():
        try:
            config = config_class.from_dict(shrink(values, change))
        except Exception:
            continue
        yield name, config


def find_model_classes(model_type: str, config_class: type) -> list[type[nn.Module]]:
    """Return the classes of a type, those that generate first."""
    import transformers
    from transformers import PreTrainedModel
    from transformers.models.auto import modeling_auto

    names: list[str] = []
    for mapping in ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT"):
        found = getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").get(model_type)
        names += [found] if isinstance(found, str) else list(found or ())
    base = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    names += [base] if isinstance(base, str) else list(base or ())
    classes = [getattr(transformers, name, None) for name in names]
    module_name = config_class.__module__.replace("configuration_", "modeling_")
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        module = None
    own = [
        kind for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, PreTrainedModel) and kind.config_class is config_class
        and not kind.__name__.endswith("PreTrainedModel")
    ] if module else []  # fmt: skip
    own.sort(key=lambda kind: (not kind.__name__.endswith("Model"), len(kind.__name__)))
    return [kind for kind in dict.fromkeys([*classes, *own[:3]]) if kind is not None]


def count_parameters(kind: type[nn.Module], config: Any) -> int:
    """Return how many parameters a model would have."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in kind(config).parameters())


def build_model(kind: type[nn.Module], config: Any) -> nn.Module:
    """Build a model with random parameters."""
    torch.manual_seed(0)
    model = kind(config).eval()
    draw_parameters(model)
    return model


def draw_parameters(model: nn.Module) -> None:
    """Set the parameters of a model to random numbers, which make weights that differ."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1 and parameter.is_floating_point() and parameter[0].numel():
            scale = min(0.2, 1.5 / parameter[0].numel() ** 0.5)
            parameter.data.normal_(0, scale, generator=generator)


def find_setting(config: Any, *names: str) -> Any:
    """Return a setting of a configuration or of one nested in it."""
    pending = [config]
    while pending:
        current = pending.pop(0)
        for name in names:
            value = getattr(current, name, None)
            if value is not None:
                return value
        pending += [value for value in vars(current).values() if hasattr(value, "to_diff_dict")]
    return None


def iter_inputs(model: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs that a model may take, judged by the parameters of its forward."""
    config, parameters = model.config, inspect.signature(model.forward).parameters
    made = {name: tensor for name, tensor in make_inputs(config).items() if name in parameters}
    main = getattr(model, "main_input_name", "input_ids")
    text = {"input_ids", "attention_mask"}
    groups = [
        {main, "attention_mask", "decoder_input_ids", "bbox"},
        text | {"pixel_values", "bbox"},
        text | {"decoder_input_ids"},
        {main}, {main, "decoder_input_ids"}, {"pixel_values"}, {"input_features"}, {"input_values"},
        {"hidden_states", "grid_thw"}, {"pixel_values", "grid_thw"}, {"input_features", "input_features_mask"},
        {"hidden_states"}, {"inputs_embeds"}, {"inputs_embeds", "attention_mask"}, {"x"},
    ]  # fmt: skip
    both = [text | {"pixel_values"}] if find_setting(config, "image_token_id", "image_token_index") is None else []
    seen: list[set[str]] = []
    for group in [*both, *groups]:
        chosen = set(made) & group
        if chosen and chosen != {"attention_mask"} and chosen not in seen:
            seen.append(chosen)
            inputs = {name: made[name] for name in chosen}
            yield inputs | make_patches(config, chosen) if "grid_thw" in chosen else inputs
            if "input_features" in chosen:
                yield inputs | {"input_features": inputs["input_features"].mT.contiguous()}
    for frames in (2, 8, 16):
        if "pixel_values" in made and made["pixel_values"].ndim == 4:
            yield {"pixel_values": made["pixel_values"][:, None].expand(-1, frames, -1, -1, -1).contiguous()}


def make_patches(config: Any, chosen: set[str]) -> dict[str, torch.Tensor]:
    """Return two images of 4 x 4 patches in one row of patches."""
    size, channels = find_setting(config, "patch_size"), find_setting(config, "in_channels", "num_channels", "in_chans")
    times = find_setting(config, "temporal_patch_size") or 1
    width = (channels or 3) * times * (size if isinstance(size, int) else 14) ** 2
    patches = torch.randn(32, width, generator=torch.Generator().manual_seed(3))
    return dict.fromkeys(chosen & {"hidden_states", "pixel_values"}, patches)


def make_inputs(config: Any) -> dict[str, torch.Tensor]:
    """Return random inputs of every usual name; the first sequence is padded on the left."""
    generator = torch.Generator().manual_seed(2)
    vocabulary = find_setting(config, "vocab_size") or 100
    special = {value for name, value in vars(config).items() if name.endswith("_id") and isinstance(value, int)}
    words = [word for word in range(3, min(vocabulary, 99)) if word not in special]
    ids = torch.tensor(words)[torch.randint(len(words), (BATCH, LENGTH), generator=generator)]
    mask = torch.ones_like(ids)
    mask[0, :PADDED] = 0
    size = find_setting(config, "image_size", "input_size", "img_size") or 64
    size = [size, size] if isinstance(size, int) else list(size)[-2:] if isinstance(size, (list, tuple)) else [64, 64]
    channels = find_setting(config, "num_channels", "in_channels", "in_chans")
    channels = channels if isinstance(channels, int) else 3
    bins = find_setting(config, "num_mel_bins", "feature_size", "input_feat_per_channel") or 80
    frames = 2 * (find_setting(config, "max_source_positions") or 100)
    width = find_setting(config, "hidden_size", "d_model") or 32
    features = (BATCH, bins, frames) if find_setting(config, "max_source_positions") else (BATCH, 96, bins)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :5].contiguous(),
        "pixel_values": draw(BATCH, channels, *size), "input_values": draw(BATCH, 4000),
        "input_features": draw(*features), "bbox": torch.zeros(BATCH, LENGTH, 4, dtype=torch.long),
        "grid_thw": torch.tensor([[1, 4, 4]] * BATCH), "input_features_mask": torch.ones(BATCH, 96, dtype=torch.long),
        "hidden_states": draw(BATCH, LENGTH, width if isinstance(width, int) else 32),
        "inputs_embeds": draw(BATCH, LENGTH, width if isinstance(width, int) else 32), "x": draw(BATCH, LENGTH, 32),
    }  # fmt: skip
