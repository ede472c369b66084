"""Language models in plain PyTorch, and a training loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, TextBatch
from regard.interop.gpt2 import to_gpt2_config
from regard.interop.gpt2_parameters import to_gpt2_parameters
from regard.models.gpt import Gpt
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from regard.training.settings import TrainingSettings

States = tuple[Tensor, ...]


class PlainLstm(nn.Module):
    """An embedding, PyTorch's LSTM and a tied output layer, with dropout before and after the LSTM.

    As in the model `lstm-lm` the vectors, which start short, are multiplied by sqrt(width) where they come in.
    """

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.embedding)
        self.lstm = nn.LSTM(
            config.embedding, config.hidden, config.layers, batch_first=True, dropout=config.dropout
        )  # fmt: skip
        self.output = nn.Linear(config.hidden, config.vocab_size)
        self.output.weight = self.embedding.weight
        self.dropout, self.scale = nn.Dropout(config.dropout), math.sqrt(config.embedding)

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """Return the logits of each next token, and the state."""
        states, state = self.lstm(self.dropout(self.scale * self.embedding(tokens)), state)
        return self.output(self.dropout(states)), state


class LockedDropout(nn.Module):
    """Apply the same dropout mask at all steps of a row."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Float[Tensor, "rows time width"]) -> Float[Tensor, "rows time width"]:
        if not self.training or not self.share:
            return x
        keep_mask = x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - self.share)
        return x * keep_mask.div_(1 - self.share)


class PlainLockedLstm(nn.Module):
    """The same with one LSTM per layer and locked dropout between layers, which PyTorch's LSTM does not have."""

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.embedding)
        self.layers = nn.ModuleList(
            nn.LSTM(config.hidden if layer else config.embedding, config.hidden, batch_first=True)
            for layer in range(config.layers)
        )
        self.output = nn.Linear(config.hidden, config.vocab_size)
        self.output.weight = self.embedding.weight
        self.dropout, self.scale = LockedDropout(config.dropout), math.sqrt(config.embedding)

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """Return the logits of each next token, and the state: h and c of each layer."""
        x, new_state = self.scale * self.embedding(tokens), []
        for index, layer in enumerate(self.layers):
            x, last = layer(self.dropout(x), None if state is None else state[2 * index : 2 * index + 2])
            new_state += last
        return self.output(self.dropout(x)), tuple(new_state)


class TransformersGpt2(nn.Module):
    """GPT-2 of Transformers, with SDPA and without a cache."""

    def __init__(self, model: Gpt) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config(**asdict(to_gpt2_config(model.config, None)), use_cache=False))

    def forward(
        self, tokens: Int[Tensor, "rows time"], state: States | None
    ) -> tuple[Float[Tensor, "rows time size"], States]:
        """Return the logits of each next token; there is no state."""
        return self.model(tokens).logits, ()


def build_plain_lstm(model: RecurrentLm) -> nn.Module:
    """Build an LSTM language model with the same dropout and parameters as the model."""
    config, parameters = model.config, model.state_dict()
    plain = PlainLockedLstm(config) if config.variational_dropout else PlainLstm(config)
    plain_parameters = {
        "embedding.weight": parameters["vocabulary.embedding.weight"],
        "output.weight": parameters["vocabulary.embedding.weight"],
        "output.bias": parameters["vocabulary.bias"],
    }
    for layer in range(config.layers):
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            name = f"layers.{layer}.{part}_l0" if config.variational_dropout else f"lstm.{part}_l{layer}"
            plain_parameters[name] = parameters[f"stack.layers.stack.{part}_l{layer}"]
    plain.load_state_dict(plain_parameters)
    return plain


def build_transformers_gpt2(model: Gpt) -> nn.Module:
    """Build a GPT-2 of Transformers with the same parameters."""
    gpt2 = TransformersGpt2(model)
    parameters = to_gpt2_parameters(model.state_dict(), model.config)
    gpt2.model.load_state_dict({**parameters, "lm_head.weight": parameters["transformer.wte.weight"]})
    return gpt2


class PlainLoop:
    """Train a model as in a tutorial: PyTorch's AdamW, gradient clipping, detached state."""

    def __init__(self, model: nn.Module, batches: Iterator[TextBatch], settings: TrainingSettings) -> None:
        assert settings.learning_rate is not None
        self.model, self.batches, self.clip = model.train(), batches, settings.max_grad_norm
        self.state: States = ()
        first, second = settings.betas
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            betas=(first, second),
            eps=1e-9,
            weight_decay=settings.weight_decay,
        )
        self.loss = math.nan  # loss of the last batch

    def update(self) -> int:
        """Make one update, and return the number of predicted tokens."""
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
