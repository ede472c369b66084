"""Language models as one would write them in plain PyTorch, and the loop that trains them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, TextBatch
from regard.interop.gpt2_parameters import their_parameters
from regard.interop.huggingface import to_theirs
from regard.models.gpt import Gpt
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from regard.training.settings import TrainingSettings

States = tuple[Tensor, ...]


class PlainLstm(nn.Module):
    """Embedding, torch's LSTM and a linear layer that has the embedding's vectors; dropout before and after the LSTM.

    As in the model `lstm-lm` the vectors, which start short, are multiplied by sqrt(width) where they come in.
    """

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.size, config.embedding)
        self.lstm = nn.LSTM(
            config.embedding, config.hidden, config.layers, batch_first=True, dropout=config.dropout
        )  # fmt: skip
        self.output = nn.Linear(config.hidden, config.size)
        self.output.weight = self.embedding.weight
        self.dropout, self.scale = nn.Dropout(config.dropout), math.sqrt(config.embedding)

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """The logits of each next token, and the state to go on with."""
        states, state = self.lstm(self.dropout(self.scale * self.embedding(tokens)), state)
        return self.output(self.dropout(states)), state


class LockedDropout(nn.Module):
    """Dropout of the same numbers of a row at all its steps."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Float[Tensor, "rows time width"]) -> Float[Tensor, "rows time width"]:
        if not self.training or not self.share:
            return x
        kept = x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - self.share)
        return x * kept.div_(1 - self.share)


class PlainLockedLstm(nn.Module):
    """The same with an LSTM for each layer and locked dropout between them, which torch's own layers do not have."""

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.size, config.embedding)
        self.layers = nn.ModuleList(
            nn.LSTM(config.hidden if layer else config.embedding, config.hidden, batch_first=True)
            for layer in range(config.layers)
        )
        self.output = nn.Linear(config.hidden, config.size)
        self.output.weight = self.embedding.weight
        self.dropout, self.scale = LockedDropout(config.dropout), math.sqrt(config.embedding)

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """The logits of each next token, and the state to go on with: h and c of each layer."""
        x, found = self.scale * self.embedding(tokens), []
        for place, layer in enumerate(self.layers):
            x, last = layer(self.dropout(x), None if state is None else state[2 * place : 2 * place + 2])
            found += last
        return self.output(self.dropout(x)), tuple(found)


class TransformersGpt2(nn.Module):
    """GPT-2 as Transformers has it, whose attention is torch's fused one; no cache is filled."""

    def __init__(self, model: Gpt) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config(**asdict(to_theirs(model.config, None)), use_cache=False))

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """The logits of each next token; there is no state."""
        return self.model(tokens).logits, ()


def plain_lstm(model: RecurrentLm) -> nn.Module:
    """An LSTM that drops what the model drops, with the same parameters."""
    config, ours = model.config, model.state_dict()
    plain = PlainLockedLstm(config) if config.variational else PlainLstm(config)
    theirs = {
        "embedding.weight": ours["vocabulary.embedding.weight"],
        "output.weight": ours["vocabulary.embedding.weight"],
        "output.bias": ours["vocabulary.bias"],
    }
    for layer in range(config.layers):
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            name = f"layers.{layer}.{part}_l0" if config.variational else f"lstm.{part}_l{layer}"
            theirs[name] = ours[f"stack.layers.stack.{part}_l{layer}"]
    plain.load_state_dict(theirs)
    return plain


def transformers_gpt2(model: Gpt) -> nn.Module:
    """The GPT-2 of Transformers with the same parameters."""
    found = TransformersGpt2(model)
    theirs = their_parameters(model.state_dict(), model.config)
    found.model.load_state_dict({**theirs, "lm_head.weight": theirs["transformer.wte.weight"]})
    return found


class PlainLoop:
    """Trains a model as the first page of a tutorial does: AdamW as torch has it, gradients clipped, state detached."""

    def __init__(self, model: nn.Module, batches: Iterator[TextBatch], settings: TrainingSettings) -> None:
        assert settings.rate is not None
        self.model, self.batches, self.clip = model.train(), batches, settings.clip
        self.state: States = ()
        first, second = settings.betas
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.rate, betas=(first, second), eps=1e-9, weight_decay=settings.weight_decay
        )
        self.loss = math.nan  # of the last batch

    def update(self) -> int:
        """One update of the parameters; gives the number of tokens that were predicted."""
        batch = next(self.batches)
        logits, state = self.model(batch.tokens, None if batch.fresh else self.state)
        self.state = tuple(part.detach() for part in state)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=PAD)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.loss = loss.item()
        return int((batch.targets != PAD).sum())
