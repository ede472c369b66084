"""The reference engine: forward and backward for each batch, then AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.language_model import SegmentState
from regard.training.loss import TrainingStep
from regard.training.optimizer import MovingAverage, Optimizer
from regard.training.settings import TrainingSettings


class EagerEngine:
    """An engine for a single process and a single device.

    Args:
        step: The model with its loss.
        settings: Training settings, without None.
        device: The device to train on; the model is moved there.
    """

    def __init__(self, step: TrainingStep, settings: TrainingSettings, device: str) -> None:
        self.model = step.model
        step = step.to(device)
        self.step = torch.compile(step, dynamic=True) if settings.compile else step
        self.settings, self.device = settings, device
        self.optimizer = Optimizer(self.model, settings)
        self.moving_average = MovingAverage(self.model, settings.ema_decay) if settings.ema_decay else None
        self.recurrent_state: SegmentState = ()

    def update(self, batches: Iterable[Any], step: int, learning_rate: float) -> Float[Tensor, "3"]:
        """Make one update with the gradient of the mean loss over the target tokens of all batches."""
        torch.manual_seed(self.settings.seed * 1_000_003 + step)
        self.model.train()
        losses, counts = zip(*map(self.accumulate_gradient, batches), strict=True)
        loss, tokens = torch.stack(losses).sum(), torch.stack(counts).sum()
        self.optimizer.divide_gradients(tokens)
        norm = self.optimizer.step(learning_rate)
        if self.moving_average is not None:
            self.moving_average.update(step, norm.isfinite())
        return torch.stack([loss.double(), norm.double(), tokens.double()])

    def accumulate_gradient(self, batch: Any) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Accumulate the gradient of a batch's summed loss; return the loss and the number of target tokens."""
        with self.autocast():
            loss, tokens, self.recurrent_state = self.step(batch.to(self.device), self.recurrent_state)
        loss.backward()
        return loss.detach(), tokens

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the autocast context of the configured precision."""
        use_bfloat16 = self.settings.precision == "bfloat16"
        return torch.autocast(torch.device(self.device).type, torch.bfloat16) if use_bfloat16 else nullcontext()

    @contextmanager
    def evaluation_mode(self, parameters: Mapping[str, Tensor] | None = None) -> Iterator[nn.Module]:
        """Yield the model with the given parameters or the moving average, if any; restore it afterwards."""
        with ExitStack() as stack:
            if parameters is not None:
                previous = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
                stack.callback(self.model.load_state_dict, previous)
                self.model.load_state_dict(parameters)
            elif self.moving_average is not None:
                self.moving_average.swap()
                stack.callback(self.moving_average.swap)
            self.model.eval()
            with torch.inference_mode(), self.autocast():
                yield self.model

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return parameters, optimizer state and, if any, the moving average and the recurrent state."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": {} if self.moving_average is None else self.moving_average.values,
            "memory": {str(index): tensor for index, tensor in enumerate(self.recurrent_state)},
        }
        return {name: tensors for name, tensors in parts.items() if tensors}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load a copy of what `state_dict` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state.get("optimizer", {}))
        if self.moving_average is not None:
            self.moving_average.load_state_dict(state["average"])
        memory = state.get("memory", {})
        self.recurrent_state = tuple(memory[str(index)].to(self.device) for index in range(len(memory)))
