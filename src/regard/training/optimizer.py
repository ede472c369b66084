"""AdamW with state keyed by parameter name, and a moving average of the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.errors import RegardError
from regard.training.settings import TrainingSettings


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019).

    Weight decay skips biases, norms and pretrained vectors (`learned_elsewhere`), most of which never get a gradient.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        decaying: list[nn.Parameter] = []
        staying: list[nn.Parameter] = []
        for parameter in self.parameters.values():
            decays = parameter.ndim >= 2 and not getattr(parameter, "learned_elsewhere", False)
            (decaying if decays else staying).append(parameter)
        groups = [{"params": decaying, "weight_decay": settings.weight_decay}, {"params": staying, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=1.0,
            betas=(settings.betas[0], settings.betas[1]),
            eps=1e-9,
            fused=True,
        )
        self.clip = settings.max_grad_norm

    def divide_gradients(self, tokens: Int[Tensor, ""]) -> None:
        """Turn the gradient of a summed loss into that of the mean over tokens."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        torch._foreach_div_(gradients, tokens.to(gradients[0].dtype))

    def step(self, learning_rate: float) -> Tensor:
        """Make one update; return the gradient norm before clipping.

        If the norm is not finite, nothing is updated. This is decided on the device, without
        waiting for it.
        """
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.clip or torch.inf, foreach=True)
        for group in self.adam.param_groups:
            group["lr"] = learning_rate
        self.adam.found_inf = norm.isfinite().logical_not().float()  # type: ignore[attr-defined]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as `moment.NAME`, `square.NAME` and `steps.NAME`."""
        tensors = {}
        for name, parameter in self.parameters.items():
            state = self.adam.state.get(parameter)
            if state:
                tensors[f"moment.{name}"], tensors[f"square.{name}"] = state["exp_avg"], state["exp_avg_sq"]
                tensors[f"steps.{name}"] = state["step"]
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a copy of what `state_dict` returned."""
        for name, parameter in self.parameters.items():
            if f"steps.{name}" not in tensors:  # it had no gradient yet
                continue
            expected = {f"moment.{name}": parameter, f"square.{name}": parameter, f"steps.{name}": torch.zeros(())}
            check_same_tensors(tensors, expected, "checkpoint")
            self.adam.state[parameter] = {
                "step": tensors[f"steps.{name}"].to(parameter.device, copy=True),
                "exp_avg": tensors[f"moment.{name}"].to(parameter.device, copy=True),
                "exp_avg_sq": tensors[f"square.{name}"].to(parameter.device, copy=True),
            }


class MovingAverage:
    """An exponential moving average of a model's parameters, which can be swapped with them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int, updated: Bool[Tensor, ""]) -> None:
        """Move the averages towards the model, faster at first to forget the random initialization.

        If the model was not updated, the averages do not change either.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = [self.values[name] for name, _ in self.model.named_parameters()]
        difference = torch._foreach_sub([p.detach() for p in self.model.parameters()], averages)
        torch._foreach_mul_(difference, updated.to(averages[0].dtype) * (1 - decay))
        torch._foreach_add_(averages, difference)

    @torch.no_grad()
    def load_state_dict(self, values: Mapping[str, Tensor]) -> None:
        """Load a copy of other averages."""
        check_same_tensors(values, self.values, "checkpoint")
        for name, value in self.values.items():
            value.copy_(values[name])

    @torch.no_grad()
    def swap(self) -> None:
        """Swap the model's parameters with the averages."""
        for name, parameter in self.model.named_parameters():
            previous = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name].copy_(previous)


def check_same_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], location: Path | str) -> None:
    """Raise a `RegardError` unless a checkpoint has tensors of the expected shapes and types."""
    for name, like in expected.items():
        if name not in tensors:
            raise RegardError(f"{location} does not match the model: {name} is missing")
        tensor = tensors[name]
        if tensor.shape != like.shape:
            shape, expected_shape = tuple(tensor.shape), tuple(like.shape)
            raise RegardError(
                f"{location} does not match the model: {name}: expected shape {expected_shape}, got {shape}"
            )
        if tensor.dtype != like.dtype:
            kind, expected_kind = (str(each.dtype).removeprefix("torch.") for each in (tensor, like))
            raise RegardError(f"{location} does not match the model: {name}: expected {expected_kind}, got {kind}")
