"""Attention maps of Hugging Face Transformers models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.watch import AttentionRecording, watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.alternatives import TokenAlternatives, find_top_alternatives
from regard.maps.build import TITLE, build_map
from regard.maps.options import LookOptions, TargetLookOptions
from regard.maps.sides import Side, build_token_side
from regard.maps.weights import LONG, split_heads
from regard.text.steps import check_characters
from regard.text.units import TextUnit
from regard.views.attention_map import AttentionMap
from regard.views.display import REPLACEMENT, truncate

Ids = Int[Tensor, "1 _"]

SPACES = ("Ġ", "▁")
"""Prefixes of a token that starts a word, in byte-level BPE and SentencePiece."""

CONTINUATION = "##"
"""Prefix of a WordPiece token that continues a word."""


def get_options_type(model: Any) -> type[LookOptions]:
    """Return the options of `look` for a model; encoder-decoder models also take a target."""
    return TargetLookOptions if is_encoder_decoder(model) else LookOptions


def is_encoder_decoder(model: Any) -> bool:
    """Return whether a model has an encoder and a decoder."""
    return getattr(getattr(model, "config", None), "is_encoder_decoder", False)


def look_at_transformer(model: Any, tokenizer: Any, text: str, options: LookOptions) -> AttentionMap:
    """Return the attention map of a Transformers model for a text; see `regard.look`."""
    for argument, attribute in ((model, "base_model"), (tokenizer, "convert_ids_to_tokens")):
        if not hasattr(argument, attribute):
            raise RegardError(
                f"look: expected a Transformers model, its tokenizer and a text, got {type(argument).__name__}"
            )
    if model.training:
        raise RegardError("look: the model is in training mode; call model.eval() first")
    if hasattr(model, "text_model") and hasattr(model, "vision_model"):  # as CLIP, which reads them apart
        model = model.text_model
    check_characters(text)
    formatter = TokenFormatter(tokenizer, options.words)
    source = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)
    check_length(model, source, "the text")
    if isinstance(options, TargetLookOptions):
        return look_at_translation(model, formatter, source, options)
    return look_at_self_attention(model, formatter, source, options)


@dataclass(frozen=True)
class TokenFormatter:
    """Formats the tokens of a tokenizer, optionally merged into words."""

    tokenizer: Any
    words: bool

    @cached_property
    def word_mark(self) -> str | None:
        """Prefix that marks word boundaries: the most frequent one in the vocabulary, or None."""
        vocabulary = list(self.tokenizer.get_vocab())
        counts = {mark: sum(token.startswith(mark) for token in vocabulary) for mark in (*SPACES, CONTINUATION)}
        mark = max(counts, key=counts.__getitem__)
        return mark if counts[mark] else None

    def decode(self, ids: Ids) -> str:
        """Decode ids to text without special tokens."""
        return str(self.tokenizer.decode(ids[0].tolist(), skip_special_tokens=True))

    def format_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens as strings, with "▁" for the space of byte-level tokens."""
        return [self._format_token(token) for token in self._get_tokens(ids)]

    def build_side(self, ids: Ids) -> Side:
        """Return the tokens or words of a text; special tokens are never merged."""
        token_ids = ids[0].tolist()
        if not self.words or self.word_mark is None:
            return build_token_side(self.format_tokens(token_ids))
        tokens = self._get_tokens(token_ids)
        special = set(self.tokenizer.all_special_ids)
        starts, starts_next = [], True
        for token_id, token in zip(token_ids, tokens, strict=True):
            starts.append(starts_next or token_id in special or self._starts_word(token))
            starts_next = token_id in special
        owners = torch.tensor(starts).cumsum(0).tolist()
        groups = [list(group) for _, group in groupby(range(len(tokens)), owners.__getitem__)]
        return Side(
            tuple(TextUnit(self._join_word([tokens[p] for p in group]), tuple(group)) for group in groups), len(tokens)
        )

    def _get_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the raw tokens; ids that the tokenizer does not know become `<id>`."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        return [f"<{token_id}>" if token is None else token for token_id, token in zip(ids, tokens, strict=True)]

    def _starts_word(self, token: str) -> bool:
        """Return whether a token starts a word."""
        return (
            not token.startswith(CONTINUATION)
            if self.word_mark == CONTINUATION
            else token.startswith((str(self.word_mark), "Ċ"))
        )

    def _join_word(self, tokens: Sequence[str]) -> str:
        """Join the tokens of a word to text."""
        return str(self.tokenizer.convert_tokens_to_string(list(tokens))).strip() or self._format_token(tokens[0])

    def _format_token(self, token: str) -> str:
        if self.word_mark != SPACES[0]:
            return token
        text = str(self.tokenizer.convert_tokens_to_string([token]))
        return token if REPLACEMENT in text else text.replace(" ", "▁")


def run_without_cache(model: nn.Module, *args: Any, **inputs: Any) -> Any:
    """Run a model without keeping keys and values for further steps, if it has the option."""
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs.setdefault("use_cache", False)
    return model(*args, **inputs)


def get_max_positions(model: Any) -> int | None:
    """Return the maximum number of tokens of a model, or None. Positions of RoBERTa start after the padding index."""
    max_positions: int | None = getattr(model.config, "max_position_embeddings", None)
    if max_positions is not None and max_positions < 1:  # as of XLNet, which reads any number of them
        return None
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return max_positions


def check_length(model: Any, ids: Int[Tensor, "_ _"], name: str, caller: str = "look") -> None:
    """Raise `RegardError` if there are no tokens, or more than the model has positions for."""
    max_positions = get_max_positions(model)
    if max_positions is not None and ids.shape[1] > max_positions:
        raise RegardError(
            f"{caller}: {name} must have at most {max_positions} tokens for {type(model).__name__}, got {ids.shape[1]}"
        )
    if not ids.shape[1]:
        raise RegardError(f"{caller}: {name} is empty")


def look_at_self_attention(model: Any, formatter: TokenFormatter, ids: Ids, options: LookOptions) -> AttentionMap:
    """Return the self-attention of an encoder or decoder. Row t is the step that reads token t."""
    name = type(model).__name__
    options.resolve_kind(name, ["self"])
    watched_model = (
        model if ids.shape[1] <= LONG else model.base_model
    )  # without the logits, which are large for a long text
    with torch.no_grad(), watch(watched_model) as watched:
        outputs = run_without_cache(watched_model, input_ids=ids)
    check_has_attention(model, watched)
    side = formatter.build_side(ids)
    alternatives = None
    if model.can_generate() and not side.merged and "logits" in outputs:
        alternatives = build_alternatives(outputs.logits[0], ids[0, 1:], formatter)
    title = f"{name}: {truncate(formatter.decode(ids), TITLE)}"
    layers = select_over_tokens(name, collect_weights(watched, list(watched)), side, side)
    return build_map(layers, side, side, title, options.top, alternatives, "next")


def look_at_translation(model: Any, formatter: TokenFormatter, source: Ids, options: TargetLookOptions) -> AttentionMap:
    """Return an attention map of an encoder-decoder model. Row t of the decoder is the step that predicts token t."""
    name = type(model).__name__
    kind = options.resolve_kind(name, ["cross", "encoder", "decoder"])
    if options.target is None:
        decoder_ids, target_ids = generate_target(model, source, options.max_length)
    else:
        check_characters(options.target)
        decoder_ids, target_ids = encode_target(model, formatter.tokenizer, options.target)
    check_length(model, decoder_ids, "the target")
    with torch.no_grad(), watch(model) as watched:
        outputs = run_without_cache(model, input_ids=source, decoder_input_ids=decoder_ids)
    check_has_attention(model, watched)
    paths = group_paths_by_kind(model, watched)
    if kind != "encoder":
        check_separate_attention(model, watched, paths["decoder"], decoder_ids)
    source_side, target_side = formatter.build_side(source), formatter.build_side(target_ids)
    rows, columns = (source_side, target_side)[kind != "encoder"], (source_side, target_side)[kind == "decoder"]
    layers = select_over_tokens(name, collect_weights(watched, paths[kind]), rows, columns)
    if kind == "encoder":
        return build_map(
            layers,
            source_side,
            source_side,
            f"{name}, encoder: {truncate(formatter.decode(source), TITLE)}",
            options.top,
        )
    alternatives = None
    if not target_side.merged and "logits" in outputs:
        alternatives = build_alternatives(outputs.logits[0], target_ids[0], formatter)
    target_text = truncate(formatter.decode(target_ids), TITLE)
    if kind == "decoder":
        return build_map(
            layers,
            target_side,
            formatter.build_side(decoder_ids),
            f"{name}, decoder: {target_text}",
            options.top,
            alternatives,
        )
    title = f"{name}: {truncate(formatter.decode(source), TITLE)} → {target_text}"
    return build_map(layers, target_side, source_side, title, options.top, alternatives)


def generate_target(model: Any, source: Ids, max_new_tokens: int | None) -> tuple[Ids, Ids]:
    """Generate a target; return the decoder input ids and the target ids."""
    if not model.can_generate():
        raise RegardError(f"look: {type(model).__name__} cannot generate text; pass a target")
    max_positions = get_max_positions(model)
    max_new_tokens = max_new_tokens or 2 * source.shape[1] + 50
    tokens = model.generate(
        input_ids=source,
        attention_mask=torch.ones_like(source),
        do_sample=False,
        max_new_tokens=max_new_tokens if max_positions is None else min(max_new_tokens, max_positions - 1),
    )
    return tokens[:, :-1], tokens[:, 1:]


def encode_target(model: Any, tokenizer: Any, target: str) -> tuple[Ids, Ids]:
    """Encode a given target; return the decoder input ids and the target ids."""
    target_ids = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(model.device)
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=target_ids), target_ids
    start = torch.full_like(target_ids[:, :1], model.config.decoder_start_token_id)
    return torch.cat([start, target_ids[:, :-1]], 1), target_ids


def check_has_attention(model: nn.Module, watched: AttentionRecording) -> None:
    """Raise `RegardError` if no attention was recorded."""
    if not watched:
        raise RegardError(f"look: {type(model).__name__} has no attention")


def group_paths_by_kind(model: Any, watched: AttentionRecording) -> dict[str, list[str]]:
    """Group recorded module paths by kind. In each decoder layer, self-attention comes before cross-attention."""
    modules = dict(model.named_modules())
    encoder_modules = set(model.get_encoder().modules())
    encoder = [path for path in watched if modules[path] in encoder_modules]
    decoder = [path for path in watched if modules[path] not in encoder_modules]
    return {"encoder": encoder, "decoder": decoder[::2], "cross": decoder[1::2]}


def check_separate_attention(
    model: nn.Module, watched: AttentionRecording, paths: Sequence[str], decoder_ids: Ids
) -> None:
    """Raise `RegardError` for a decoder with joint attention over target and source."""
    if any(call.shape[-1] != decoder_ids.shape[1] for call in collect_weights(watched, paths)):
        raise RegardError(
            f"look: {type(model).__name__} has joint decoder attention over target and source, which is not supported; "
            'pass kind="encoder"'
        )


def collect_weights(watched: AttentionRecording, paths: Sequence[str]) -> list[Weights]:
    """Return the weights of all calls in order; a shared module, as in ALBERT, is called once per layer."""
    return [split_heads(call, 1) for path in paths for call in watched[path]]


def select_over_tokens(name: str, layers: Sequence[Weights], rows: Side, columns: Side) -> list[Weights]:
    """Return the weights over all pairs of tokens; raise `RegardError` if there are none."""
    selected = [layer for layer in layers if tuple(layer.shape[-2:]) == (rows.size, columns.size)]
    if not selected:
        raise RegardError(
            f"look: {name} computes no weights over all pairs of tokens, but over blocks or pooled tokens; "
            "regard.watch records them"
        )
    return selected


def build_alternatives(logits: Tensor, tokens: Tensor, formatter: TokenFormatter) -> tuple[TokenAlternatives, ...]:
    """Return the most probable alternatives to each token, and after the last one if there is one more step."""
    return tuple(find_top_alternatives(logits.float().softmax(-1), tokens, formatter.format_tokens))
