"""Answers while they grow: the beam of a translator, and the texts of a language model, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, Pair, collate
from regard.decoding.beam import Search
from regard.decoding.generate import chooser
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.decoding.steps import choices, limits_of, walk
from regard.predictor import Prediction, Predictor, different, new_prediction
from regard.serve.asked import Asked
from regard.text import Encoded, Tokenizer
from regard.text.streaming import written_parts
from regard.text_predictor import BEGIN, TextPredictor, new_generator

TOKENS, BEAM = 200, 5
"""That a language model writes, and hypotheses that it keeps, unless told otherwise."""

Drawn = tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]


class GrowingBeam:
    """The search for the target of one source, which can be watched; it finds what `Predictor.predict` does."""

    def __init__(
        self, model: Predictor, text: str, *, beam: int, nbest: int, length_penalty: float, longest: int | None
    ) -> None:
        self.model, self.text, self.beam = model, text, beam
        self.source = model.tokenizers.source.encoded(text)
        self.batch = collate([Pair(self.source.ids)]).to(model.device)
        limits = limits_of(model.model, self.batch, longest)
        alpha = length_penalty if beam > 1 else 0.0  # a beam of one is greedy
        self.search = Search(torch.full_like(limits, BOS), limits, beam, nbest, alpha)

    @torch.no_grad()
    def steps(self) -> Iterator[list[tuple[str, float]]]:
        """The live hypotheses after every step, best first: their texts, and the log-probabilities so far."""
        model, search = self.model.model, self.search
        state, over = model.start(self.batch, search.capacity, copies=self.beam), False
        while not over:
            logits, state = model.step(search.last, state)
            over, rows = search.extend(choices(logits, allow_unknown=False))
            alive = zip(search.live[0].tolist(), search.totals[0].tolist(), strict=True)
            found = [from_padded(*each) for each in alive if each[1] > -torch.inf]
            yield [(self.model.tokenizers.target.decode(each.target), each.log_probability) for each in found]
            if not over:
                state.select(rows)

    def answer(self) -> Prediction:
        """The best target, which knows the others, once all steps are made."""
        (hypotheses,) = self.search.results()
        found = different([self._predicted(each) for each in hypotheses])
        return replace(found[0], alternatives=tuple(found))

    def _predicted(self, hypothesis: Hypothesis) -> Prediction:
        tokenizer, ids = self.model.tokenizers.target, list(hypothesis.target)
        target = Encoded(ids, tokenizer.tokens_of(ids), tokenizer.words_of(ids))
        text, written = tokenizer.decode(ids), tokenizer.written(ids)
        found = new_prediction(self.text, self.source, text, written, target, ended=hypothesis.ended)
        return replace(found, log_probability=hypothesis.log_probability)


@dataclass(frozen=True)
class Writing:
    """A text so far."""

    text: str = ""
    part: str = ""  # what the last step added
    ids: tuple[int, ...] = ()
    log_probability: float = 0.0
    ended: bool = False  # whether the model ended it
    over: bool = False  # whether it is whole

    def tokens(self, model: TextPredictor, prompt: str) -> list[str]:
        """The tokens of prompt and text, behind <bos>."""
        return [BEGIN, *model.tokenizer.tokens_of([*model.tokenizer.encode(prompt), *self.ids])]


def growing_texts(model: TextPredictor, several: Sequence[Asked]) -> Iterator[list[Writing]]:
    """What each prompt has become after every step.

    The prompts have equally many tokens. Each is gone on with as if it were alone, by its
    own settings and random numbers, and stops at its own end.
    """
    prompts = [[BOS, *model.tokenizer.encode(asked.text)] for asked in several]
    limits = [asked.options.get("tokens", TOKENS) for asked in several]
    texts = [Growing(model.tokenizer, asked.text, limit) for asked, limit in zip(several, limits, strict=True)]
    steps = written(model, torch.tensor(prompts, device=model.device), torch.tensor(limits), several)
    for chosen, gained in steps:
        rows = zip(texts, chosen.tolist(), gained.tolist(), strict=True)
        yield [text.add(token, value) for text, token, value in rows]


@torch.no_grad()
def written(
    model: TextPredictor, beginning: Int[Tensor, "rows time"], limits: Int[Tensor, " rows"], several: Sequence[Asked]
) -> Iterator[Drawn]:
    """The tokens of every step and their log-probabilities, each row chosen by its own settings."""
    choose = [own_chooser(model.device, asked.options) for asked in several]

    def choose_each(found: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        return torch.cat([one(found[row : row + 1]) for row, one in enumerate(choose)])

    state = model.model.start(beginning, int(limits.max()))
    return walk(model.model, state, beginning[:, -1], limits.to(beginning), choose_each, allow_unknown=False)


def own_chooser(device: str, options: dict[str, Any]) -> Any:
    """What chooses the tokens of one request."""
    return chooser(
        torch.device(device),
        options.get("temperature", 1.0),
        options.get("top_k"),
        options.get("top_p"),
        options.get("greedy", False),
        new_generator(device, options.get("seed")),
    )


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
