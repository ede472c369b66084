"""Texts that are written together token by token, each by its own options, as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS
from regard.decoding.generate import chooser
from regard.decoding.steps import Choose, walk
from regard.errors import RegardError
from regard.models.language import LanguageModel
from regard.tasks.predictor import Request
from regard.tasks.text.options import SEEDS, DrawOptions
from regard.text import Tokenizer
from regard.text.streaming import written_parts

Drawn = tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]


@dataclass(frozen=True)
class Writing:
    """A text so far."""

    text: str = ""
    part: str = ""  # what the last step added
    ids: tuple[int, ...] = ()
    log_probability: float = 0.0
    ended: bool = False  # whether the model ended it
    over: bool = False  # whether it is whole


def growing_texts(
    model: LanguageModel, tokenizer: Tokenizer, device: str, requests: Sequence[Request]
) -> Iterator[list[Writing]]:
    """What each prompt has become after every step.

    The prompts have equally many tokens. Each is gone on with as if it were alone, by its
    own options and random numbers, and stops at its own end.
    """
    prompts = [[BOS, *tokenizer.encode(prompt)] for prompt, _ in requests]
    limits = torch.tensor([options.tokens for _, options in requests])
    texts = [Growing(tokenizer, prompt, options.tokens) for prompt, options in requests]
    choose = [new_chooser(device, options) for _, options in requests]
    for chosen, gained in written(model, torch.tensor(prompts, device=device), limits, choose):
        rows = zip(texts, chosen.tolist(), gained.tolist(), strict=True)
        yield [text.add(token, value) for text, token, value in rows]


@torch.no_grad()
def written(
    model: LanguageModel, beginning: Int[Tensor, "rows time"], limits: Int[Tensor, " rows"], choose: Sequence[Choose]
) -> Iterator[Drawn]:
    """The tokens of every step and their log-probabilities, each row chosen in its own way."""

    def choose_each(found: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        return torch.cat([one(found[row : row + 1]) for row, one in enumerate(choose)])

    state = model.start(beginning, int(limits.max()))
    return walk(model, state, beginning[:, -1], limits.to(beginning), choose_each, allow_unknown=False)


def new_chooser(device: str, options: DrawOptions) -> Choose:
    """What chooses the tokens of one text."""
    temperature = 1.0 if options.temperature is None else options.temperature
    generator = new_generator(device, options.seed)
    return chooser(torch.device(device), temperature, options.top_k, options.top_p, options.greedy, generator)


class Growing:
    """A text that is written token by token; characters come out when they are whole."""

    def __init__(self, tokenizer: Tokenizer, prompt: str, limit: int) -> None:
        self.limit, self.now = limit, Writing()
        self.tokens: list[int] = []
        self.parts = written_parts(tokenizer, iter(self._next_token, None), prompt)

    def add(self, token: int, log_probability: float) -> Writing:
        """The text with one token more; PAD behind the end adds nothing."""
        if self.now.over:
            return replace(self.now, part="")
        self.tokens = [] if token == EOS else [token]
        ids = self.now.ids if token == EOS else (*self.now.ids, token)
        over = token == EOS or len(ids) == self.limit
        part = next(self.parts) if token != EOS else ""
        if over:
            part += "".join(self.parts)
        total = self.now.log_probability + log_probability
        self.now = Writing(self.now.text + part, part, ids, total, token == EOS, over)
        return self.now

    def _next_token(self) -> int | None:
        """The token that was added last, once."""
        return self.tokens.pop() if self.tokens else None


def new_generator(device: str, seed: int | None) -> torch.Generator:
    """Random numbers from a seed, or from none that anyone knows."""
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < SEEDS):
        raise RegardError(f"generate: seed is {seed!r}; a number from 0 to {SEEDS - 1} is needed")
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
