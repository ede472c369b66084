"""Where a model of Hugging Face Transformers looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.watch import Seen, watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.looking.alternatives import Considered, most_probable
from regard.looking.maps import TITLE, new_map
from regard.looking.options import LookOptions, TargetLookOptions
from regard.looking.sides import Side, token_side
from regard.looking.weights import LONG
from regard.text.steps import check_characters
from regard.text.units import Unit
from regard.views.attention_map import AttentionMap
from regard.views.display import REPLACEMENT, cut

Ids = Int[Tensor, "1 _"]

SPACES = ("Ġ", "▁")
"""What a token of bytes, or of SentencePiece, begins with where a word begins."""

GOES_ON = "##"
"""What a token of WordPiece begins with where a word goes on."""


def options_for(model: Any) -> type[LookOptions]:
    """What a look at a model can be told: of one with encoder and decoder also the target."""
    return TargetLookOptions if is_translator(model) else LookOptions


def is_translator(model: Any) -> bool:
    """Whether a model has an encoder and a decoder."""
    return getattr(getattr(model, "config", None), "is_encoder_decoder", False)


def look_at_transformer(model: Any, tokenizer: Any, text: str, options: LookOptions) -> AttentionMap:
    """As `regard.look` describes it."""
    for found, expected in ((model, "base_model"), (tokenizer, "convert_ids_to_tokens")):
        if not hasattr(found, expected):
            raise RegardError(
                f"look: found {type(found).__name__}; a model of Transformers, its tokenizer and a text are needed"
            )
    if model.training:
        raise RegardError("look: the model is in training mode; call model.eval() first")
    check_characters(text)
    shown = Shown(tokenizer, options.words)
    source = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)
    check_places(model, source, "the text")
    if isinstance(options, TargetLookOptions):
        return look_at_translation(model, shown, source, options)
    return look_at_reading(model, shown, source, options)


@dataclass(frozen=True)
class Shown:
    """How the tokens of a tokenizer are shown: by themselves or, if asked for, merged to words."""

    tokenizer: Any
    words: bool

    @cached_property
    def mark(self) -> str | None:
        """What tells words apart, where the tokenizer marks them: what most of its tokens begin with."""
        vocabulary = list(self.tokenizer.get_vocab())
        counts = {mark: sum(token.startswith(mark) for token in vocabulary) for mark in (*SPACES, GOES_ON)}
        mark = max(counts, key=counts.__getitem__)
        return mark if counts[mark] else None

    def text(self, ids: Ids) -> str:
        """A readable text, without special tokens."""
        return str(self.tokenizer.decode(ids[0].tolist(), skip_special_tokens=True))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each token by itself, with "▁" for a space where tokens are of bytes."""
        return [self._token(token) for token in self._own(ids)]

    def side(self, ids: Ids) -> Side:
        """All tokens of a text, or its words; special tokens stay by themselves."""
        numbers = ids[0].tolist()
        if not self.words or self.mark is None:
            return token_side(self.tokens(numbers))
        tokens = self._own(numbers)
        special = set(self.tokenizer.all_special_ids)
        starts, before = [], True
        for number, token in zip(numbers, tokens, strict=True):
            starts.append(before or number in special or self._begins(token))
            before = number in special
        owners = torch.tensor(starts).cumsum(0).tolist()
        groups = [list(group) for _, group in groupby(range(len(tokens)), owners.__getitem__)]
        return Side(tuple(Unit(self._word([tokens[p] for p in group]), tuple(group)) for group in groups), len(tokens))

    def _own(self, ids: Sequence[int]) -> list[str]:
        """The tokens as the tokenizer has them; a model may have more numbers than that knows."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        return [f"<{number}>" if token is None else token for number, token in zip(ids, tokens, strict=True)]

    def _begins(self, token: str) -> bool:
        """Whether a word begins with a token."""
        return not token.startswith(GOES_ON) if self.mark == GOES_ON else token.startswith((str(self.mark), "Ċ"))

    def _word(self, tokens: Sequence[str]) -> str:
        """The text of the tokens of a word."""
        return str(self.tokenizer.convert_tokens_to_string(list(tokens))).strip() or self._token(tokens[0])

    def _token(self, token: str) -> str:
        if self.mark != SPACES[0]:
            return token
        text = str(self.tokenizer.convert_tokens_to_string([token]))
        return token if REPLACEMENT in text else text.replace(" ", "▁")


def places_of(model: Any) -> int | None:
    """How many tokens a model has positions for, where there is a limit; RoBERTa and its kin begin after padding's."""
    most: int | None = getattr(model.config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return most


def check_places(model: Any, ids: Ids, what: str) -> None:
    """Raise a `RegardError` for more tokens than a model has positions for."""
    most = places_of(model)
    if most is not None and ids.shape[1] > most:
        raise RegardError(f"look: {what} has {ids.shape[1]} tokens; {type(model).__name__} reads up to {most}")
    if not ids.shape[1]:
        raise RegardError(f"look: {what} has no tokens")


def look_at_reading(model: Any, shown: Shown, ids: Ids, options: LookOptions) -> AttentionMap:
    """A model without a source: its text looks at itself. Row t is the step that reads token t."""
    name = type(model).__name__
    options.kind_of(name, ["self"])
    read = model if ids.shape[1] <= LONG else model.base_model  # which makes no logits, of a long text many
    with torch.no_grad(), watch(read) as seen:
        found = read(input_ids=ids)
    check_seen(model, seen)
    side = shown.side(ids)
    alternatives = None
    if model.can_generate() and not side.merged and "logits" in found:
        alternatives = ((), *considered(found.logits[0, :-1], ids[0, 1:], shown))
    title = f"{name}: {cut(shown.text(ids), TITLE)}"
    return new_map(calls_of(seen, list(seen)), side, side, title, options.top, alternatives)


def look_at_translation(model: Any, shown: Shown, source: Ids, options: TargetLookOptions) -> AttentionMap:
    """A model of encoder and decoder. Row t of the decoder is the step that writes token t."""
    name = type(model).__name__
    kind = options.kind_of(name, ["cross", "encoder", "decoder"])
    if options.target is None:
        read, out = generated(model, source, options.longest)
    else:
        check_characters(options.target)
        read, out = forced(model, shown.tokenizer, options.target)
    check_places(model, read, "the target")
    with torch.no_grad(), watch(model) as seen:
        found = model(input_ids=source, decoder_input_ids=read)
    check_seen(model, seen)
    paths = paths_by_kind(model, seen)
    if kind != "encoder":
        check_apart(model, seen, paths["decoder"], read)
    layers = calls_of(seen, paths[kind])
    given, rows = shown.side(source), shown.side(out)
    if kind == "encoder":
        return new_map(layers, given, given, f"{name}, encoder: {cut(shown.text(source), TITLE)}", options.top)
    alternatives = None
    if not rows.merged and "logits" in found:
        alternatives = considered(found.logits[0], out[0], shown)
    written = cut(shown.text(out), TITLE)
    if kind == "decoder":
        return new_map(layers, rows, shown.side(read), f"{name}, decoder: {written}", options.top, alternatives)
    title = f"{name}: {cut(shown.text(source), TITLE)} → {written}"
    return new_map(layers, rows, given, title, options.top, alternatives)


def generated(model: Any, source: Ids, longest: int | None) -> tuple[Ids, Ids]:
    """The target that a model writes, as it goes in and as it comes out."""
    if not model.can_generate():
        raise RegardError(f"look: {type(model).__name__} writes no text; give a target")
    most = places_of(model)
    longest = longest or 2 * source.shape[1] + 50
    tokens = model.generate(
        input_ids=source,
        attention_mask=torch.ones_like(source),
        do_sample=False,
        max_new_tokens=longest if most is None else min(longest, most - 1),
    )
    return tokens[:, :-1], tokens[:, 1:]


def forced(model: Any, tokenizer: Any, target: str) -> tuple[Ids, Ids]:
    """A given target, as it goes in and as it comes out."""
    out = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(model.device)
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=out), out
    start = torch.full_like(out[:, :1], model.config.decoder_start_token_id)
    return torch.cat([start, out[:, :-1]], 1), out


def check_seen(model: nn.Module, seen: Seen) -> None:
    """Raise a `RegardError` where no attention was seen."""
    if not seen:
        raise RegardError(f"look: {type(model).__name__}: this model has no attention, so no weights to show")


def paths_by_kind(model: Any, seen: Seen) -> dict[str, list[str]]:
    """The paths that were seen: within the encoder, and of each layer of the decoder first its own, then the cross."""
    modules = dict(model.named_modules())
    inside = set(model.get_encoder().modules())
    encoder = [path for path in seen if modules[path] in inside]
    decoder = [path for path in seen if modules[path] not in inside]
    return {"encoder": encoder, "decoder": decoder[::2], "cross": decoder[1::2]}


def check_apart(model: nn.Module, seen: Seen, paths: Sequence[str], read: Ids) -> None:
    """Raise a `RegardError` for a decoder that looks at more than its target where only that is expected."""
    if any(call.shape[-1] != read.shape[1] for call in calls_of(seen, paths)):
        raise RegardError(
            f"look: {type(model).__name__}: its decoder looks at target and source at once, which cannot be told "
            'apart; kind="encoder" can be shown'
        )


def calls_of(seen: Seen, paths: Sequence[str]) -> list[Weights]:
    """The layers of one pass: every call is one, since layers may share a module, as those of ALBERT do."""
    return [call for path in paths for call in seen[path]]


def considered(logits: Tensor, tokens: Tensor, shown: Shown) -> tuple[Considered, ...]:
    """What each token might have been."""
    return tuple(most_probable(logits.float().softmax(-1), tokens, shown.tokens))
