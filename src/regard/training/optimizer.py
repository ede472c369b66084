"""AdamW over named parameters, whose memory can be written to a file and read back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.errors import RegardError
from regard.training.settings import TrainingSettings


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019).

    Biases and norms do not decay, nor does what was `learnt_elsewhere`, most of which may never have a gradient.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        decaying: list[nn.Parameter] = []
        staying: list[nn.Parameter] = []
        for parameter in self.parameters.values():
            decays = parameter.ndim >= 2 and not getattr(parameter, "learnt_elsewhere", False)
            (decaying if decays else staying).append(parameter)
        groups = [{"params": decaying, "weight_decay": settings.weight_decay}, {"params": staying, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=1.0,
            betas=(settings.betas[0], settings.betas[1]),
            eps=1e-9,
            fused=True,
        )
        self.clip = settings.clip

    def divide(self, tokens: Int[Tensor, ""]) -> None:
        """Make the gradient of a sum over tokens that of their mean."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        torch._foreach_div_(gradients, tokens.to(gradients[0].dtype))

    def step(self, rate: float) -> Tensor:
        """One update; returns the norm that the gradient had.

        Where that is not finite, parameters and memory stay as they are, which is decided where the gradient
        lies: a GPU is not waited for.
        """
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.clip or torch.inf, foreach=True)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.found_inf = norm.isfinite().logical_not().float()  # type: ignore[attr-defined]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """Its memory by name: `moment.NAME`, `square.NAME` and `steps.NAME`."""
        found = {}
        for name, parameter in self.parameters.items():
            state = self.adam.state.get(parameter)
            if state:
                found[f"moment.{name}"], found[f"square.{name}"] = state["exp_avg"], state["exp_avg_sq"]
                found[f"steps.{name}"] = state["step"]
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a copy of the memory that `tensors` gave."""
        for name, parameter in self.parameters.items():
            if f"steps.{name}" not in tensors:  # it had no gradient yet
                continue
            if tensors[f"moment.{name}"].shape != parameter.shape:
                raise RegardError(
                    f"checkpoint: {name} is {tuple(tensors[f'moment.{name}'].shape)}, in the model "
                    f"{tuple(parameter.shape)}; a checkpoint of the same model is needed"
                )
            self.adam.state[parameter] = {
                "step": tensors[f"steps.{name}"].to(parameter.device, copy=True),
                "exp_avg": tensors[f"moment.{name}"].to(parameter.device, copy=True),
                "exp_avg_sq": tensors[f"square.{name}"].to(parameter.device, copy=True),
            }


class MovingAverage:
    """Parameters that follow those of a model slowly, and may take their place for a while."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, step: int, updated: Bool[Tensor, ""]) -> None:
        """Go a little way towards the model; a longer one at first, so that the random start is soon forgotten.

        Where the model was not updated, the averages stay as they are.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        mine = [self.values[name] for name, _ in self.model.named_parameters()]
        way = torch._foreach_sub([p.detach() for p in self.model.parameters()], mine)
        torch._foreach_mul_(way, updated.to(mine[0].dtype) * (1 - decay))
        torch._foreach_add_(mine, way)

    @torch.no_grad()
    def restore(self, values: Mapping[str, Tensor]) -> None:
        """Take over a copy of other averages."""
        for name, value in self.values.items():
            value.copy_(values[name])

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's parameters for the averages, or back."""
        for name, parameter in self.model.named_parameters():
            held = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name].copy_(held)
