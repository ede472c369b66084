"""Generate several texts in one batch, each with its own options and random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS
from regard.decoding.generate import build_token_chooser
from regard.decoding.steps import TokenChooser, iter_decoding
from regard.errors import RegardError
from regard.models.language_model import LanguageModel
from regard.tasks.predictor import Request
from regard.tasks.text.options import SEEDS, SamplingOptions
from regard.text import Tokenizer
from regard.text.decode_stream import decode_stream

SampledTokens = tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]


@dataclass(frozen=True)
class PartialText:
    """The text generated so far."""

    text: str = ""
    added_text: str = ""  # text added by the last step
    ids: tuple[int, ...] = ()
    log_probability: float = 0.0
    ended: bool = False  # the model wrote <eos>
    finished: bool = False  # ended, or at the maximum number of tokens


def iter_growing_texts(
    model: LanguageModel, tokenizer: Tokenizer, device: str, requests: Sequence[Request]
) -> Iterator[list[PartialText]]:
    """Yield the texts of all prompts after every step.

    All prompts must have the same number of tokens. Each text is the same as if generated alone.
    """
    prompts = [[BOS, *tokenizer.encode(prompt)] for prompt, _ in requests]
    limits = torch.tensor([options.max_tokens for _, options in requests])
    texts = [IncrementalText(tokenizer, prompt, options.max_tokens) for prompt, options in requests]
    choosers = [build_text_chooser(device, options) for _, options in requests]
    for chosen, log_probabilities in iter_sampled_tokens(model, torch.tensor(prompts, device=device), limits, choosers):
        rows = zip(texts, chosen.tolist(), log_probabilities.tolist(), strict=True)
        yield [text.add(token, value) for text, token, value in rows]


@torch.no_grad()
def iter_sampled_tokens(
    model: LanguageModel,
    prompts: Int[Tensor, "rows time"],
    limits: Int[Tensor, " rows"],
    choosers: Sequence[TokenChooser],
) -> Iterator[SampledTokens]:
    """Yield the tokens of every step and their log-probabilities, with one chooser per row."""

    def choose_each(scores: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        return torch.cat([choose(scores[row : row + 1]) for row, choose in enumerate(choosers)])

    state = model.start(prompts, int(limits.max()))
    return iter_decoding(model, state, prompts[:, -1], limits.to(prompts), choose_each, allow_unknown=False)


def build_text_chooser(device: str, options: SamplingOptions) -> TokenChooser:
    """Build the function that chooses the next token of one text."""
    temperature = 1.0 if options.temperature is None else options.temperature
    generator = build_generator(device, options.seed)
    return build_token_chooser(
        torch.device(device), temperature, options.top_k, options.top_p, options.greedy, generator
    )


class IncrementalText:
    """A text decoded token by token; characters appear when they are complete."""

    def __init__(self, tokenizer: Tokenizer, prompt: str, limit: int) -> None:
        self.limit, self.current = limit, PartialText()
        self.tokens: list[int] = []
        self.parts = decode_stream(tokenizer, iter(self._next_token, None), prompt)

    def add(self, token: int, log_probability: float) -> PartialText:
        """Add a token and return the text so far; tokens after the end are ignored."""
        if self.current.finished:
            return replace(self.current, added_text="")
        self.tokens = [] if token == EOS else [token]
        ids = self.current.ids if token == EOS else (*self.current.ids, token)
        over = token == EOS or len(ids) == self.limit
        part = next(self.parts) if token != EOS else ""
        if over:
            part += "".join(self.parts)
        total = self.current.log_probability + log_probability
        self.current = PartialText(self.current.text + part, part, ids, total, token == EOS, over)
        return self.current

    def _next_token(self) -> int | None:
        """Return the last token, once."""
        return self.tokens.pop() if self.tokens else None


def build_generator(device: str, seed: int | None) -> torch.Generator:
    """Build a random generator from a seed, or a random seed."""
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < SEEDS):
        raise RegardError(f"generate: seed must be from 0 to {SEEDS - 1}, got {seed!r}")
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
