"""Small random models of Transformers, made from their configs: nothing is downloaded."""

from dataclasses import dataclass, field
from typing import Any

import torch

SIZE = 40  # of every vocabulary
PAD, START = 0, 1
TOKENS = {"vocab_size": SIZE, "pad_token_id": PAD, "bos_token_id": START, "eos_token_id": 2}
LLAMA = {
    **TOKENS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Tiny:
    """A kind of model, with the paths of its attentions by the name under which eager returns weights."""

    kind: str
    config: str
    settings: dict[str, Any]
    paths: dict[str, Any] = field(default_factory=dict)

    def new(self, **others):
        """A model with random parameters, which makes weights that differ."""
        import transformers  # here, so that tests can be skipped where it is not installed

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings | others)
        model = getattr(transformers, self.kind)(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        return model


GPT2 = Tiny(
    "GPT2LMHeadModel",
    "GPT2Config",
    {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    {"attentions": "transformer.h.{}.attn"},
)
LLAMA_GROUPED = Tiny("LlamaForCausalLM", "LlamaConfig", LLAMA, {"attentions": "model.layers.{}.self_attn"})
MISTRAL = Tiny(
    "MistralForCausalLM", "MistralConfig", LLAMA | {"sliding_window": 4}, {"attentions": "model.layers.{}.self_attn"}
)
GEMMA = Tiny(
    "Gemma3ForCausalLM",
    "Gemma3TextConfig",
    LLAMA | {"head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    {"attentions": "model.layers.{}.self_attn"},
)
LLAMA_4 = Tiny(
    "Llama4ForCausalLM",
    "Llama4TextConfig",
    LLAMA | {"head_dim": 8, "attention_chunk_size": 4, "num_local_experts": 2, "intermediate_size_mlp": 48},
    {"attentions": "model.layers.{}.self_attn"},
)
BERT = Tiny(
    "BertModel",
    "BertConfig",
    {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    {"attentions": "encoder.layer.{}.attention.self"},
)
MODERN_BERT = Tiny(
    "ModernBertModel",
    "ModernBertConfig",
    {
        **TOKENS,
        "cls_token_id": START,
        "sep_token_id": 2,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "local_attention": 4,
        "global_attn_every_n_layers": 2,
    },
    {"attentions": "layers.{}.attn"},
)
T5 = Tiny(
    "T5ForConditionalGeneration",
    "T5Config",
    {
        "vocab_size": SIZE,
        "pad_token_id": PAD,
        "eos_token_id": 2,
        "decoder_start_token_id": PAD,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
    },
    {
        "encoder_attentions": "encoder.block.{}.layer.0.SelfAttention",
        "decoder_attentions": "decoder.block.{}.layer.0.SelfAttention",
        "cross_attentions": "decoder.block.{}.layer.1.EncDecAttention",
    },
)
MARIAN = Tiny(
    "MarianMTModel",
    "MarianConfig",
    {
        **TOKENS,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
    },
    {
        "encoder_attentions": "model.encoder.layers.{}.self_attn",
        "decoder_attentions": "model.decoder.layers.{}.self_attn",
        "cross_attentions": "model.decoder.layers.{}.encoder_attn",
    },
)

DECODERS = {"gpt2": GPT2, "llama": LLAMA_GROUPED, "mistral": MISTRAL, "gemma": GEMMA, "llama4": LLAMA_4}
ENCODERS = {"bert": BERT, "modernbert": MODERN_BERT}
PAIRS = {"t5": T5, "marian": MARIAN}


def batch(size=2, length=9, pads=3, side="left"):
    """Random tokens, of which the first row has padding on one side."""
    tokens = torch.randint(3, SIZE, (size, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[0, slice(0, pads) if side == "left" else slice(length - pads, length)] = 0
    return {"input_ids": tokens.masked_fill(mask == 0, PAD), "attention_mask": mask}


def eager(model, **inputs):
    """Return the model's output with Transformers' eager attention, weights included."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return model(**inputs, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
