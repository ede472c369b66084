"""The plain engine, which is the truth: forward and backward of each batch as they are written, then AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.language import Carried
from regard.training.loss import TrainingStep
from regard.training.optimizer import MovingAverage, Optimizer
from regard.training.settings import TrainingSettings


class Eager:
    """One process, one device, one operation after the other.

    Args:
        step: The model with its loss.
        settings: With nothing left open.
        device: Where to train; the model is moved there.
    """

    def __init__(self, step: TrainingStep, settings: TrainingSettings, device: str) -> None:
        self.model = step.model
        step = step.to(device)
        self.step = torch.compile(step, dynamic=True) if settings.compile else step
        self.settings, self.device = settings, device
        self.optimizer = Optimizer(self.model, settings)
        self.average = MovingAverage(self.model, settings.ema) if settings.ema else None
        self.carried: Carried = ()

    def update(self, batches: Iterable[Any], step: int, rate: float) -> Float[Tensor, "3"]:
        """Make one update; the gradient is that of the mean loss over the target tokens of all its batches."""
        torch.manual_seed(self.settings.seed * 1_000_003 + step)
        self.model.train()
        losses, counts = zip(*map(self.add_gradient, batches), strict=True)
        loss, tokens = torch.stack(losses).sum(), torch.stack(counts).sum()
        self.optimizer.divide(tokens)
        norm = self.optimizer.step(rate)
        if self.average is not None:
            self.average.follow(step, norm.isfinite())
        return torch.stack([loss.double(), norm.double(), tokens.double()])

    def add_gradient(self, batch: Any) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Add the gradient of a batch's summed loss to those before it; return that loss and the target tokens."""
        with self.autocast():
            loss, tokens, self.carried = self.step(batch.to(self.device), self.carried)
        loss.backward()
        return loss.detach(), tokens

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in bfloat16 where the settings say so."""
        low = self.settings.precision == "bfloat16"
        return torch.autocast(torch.device(self.device).type, torch.bfloat16) if low else nullcontext()

    @contextmanager
    def evaluating(self, parameters: Mapping[str, Tensor] | None = None) -> Iterator[nn.Module]:
        """Give the model with its averaged parameters if any, or with those given; afterwards all is as before."""
        with ExitStack() as stack:
            if parameters is not None:
                held = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
                stack.callback(self.model.load_state_dict, held)
                self.model.load_state_dict(parameters)
            elif self.average is not None:
                self.average.swap()
                stack.callback(self.average.swap)
            self.model.eval()
            with torch.inference_mode(), self.autocast():
                yield self.model

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Parameters, the optimizer's memory, and if any the averaged parameters and what is carried on."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.tensors(),
            "average": {} if self.average is None else self.average.values,
            "memory": {str(index): tensor for index, tensor in enumerate(self.carried)},
        }
        return {name: tensors for name, tensors in parts.items() if tensors}

    def restore(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take over a copy of what `state` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.restore(state.get("optimizer", {}))
        if self.average is not None:
            self.average.restore(state["average"])
        memory = state.get("memory", {})
        self.carried = tuple(memory[str(index)].to(self.device) for index in range(len(memory)))
