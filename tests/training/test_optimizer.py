"""AdamW against its formula and torch's implementation; moving averages against their formula."""

import copy
import math
import re

import pytest
import torch
from torch import nn

from regard.errors import RegardError
from regard.files import read_tensors, write_tensors
from regard.training.optimizer import MovingAverage, Optimizer
from regard.training.settings import TrainingSettings


def tiny_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2))


def backward(model, seed):
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    model(inputs).square().sum().backward()


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_two_updates_by_the_formula():
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(3.0)
    optimizer = Optimizer(model, TrainingSettings(max_grad_norm=0, weight_decay=0.1, betas=(0.9, 0.99)))
    values, moments, squares = [2.0, 3.0], [0.0, 0.0], [0.0, 0.0]
    for step, (gradient, rate) in enumerate(((0.5, 0.2), (-1.5, 0.1)), 1):
        model.weight.grad, model.bias.grad = torch.full((1, 1), gradient).double(), torch.tensor([gradient]).double()
        optimizer.step(rate)
        for position, decay in enumerate((0.1, 0.0)):  # the matrix decays, the vector does not
            moments[position] = 0.9 * moments[position] + 0.1 * gradient
            squares[position] = 0.99 * squares[position] + 0.01 * gradient**2
            mean, mean_square = moments[position] / (1 - 0.9**step), squares[position] / (1 - 0.99**step)
            values[position] -= rate * decay * values[position] + rate * mean / (math.sqrt(mean_square) + 1e-9)
        assert [model.weight.item(), model.bias.item()] == pytest.approx(values, rel=1e-12)


def test_it_steps_as_adamw_of_torch_does():
    optimized, reference = tiny_model(), tiny_model()
    settings = TrainingSettings(weight_decay=0.05, betas=(0.8, 0.95), max_grad_norm=0.5)
    optimizer = Optimizer(optimized, settings)
    groups = [
        {"params": [p for p in reference.parameters() if p.ndim == 2], "weight_decay": 0.05},
        {"params": [p for p in reference.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, betas=(0.8, 0.95), eps=1e-9, fused=False, foreach=False)
    for step in range(6):
        backward(optimized, step)
        backward(reference, step)
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        for group in adam.param_groups:
            group["lr"] = 0.01 * (step + 1)
        adam.step()
        adam.zero_grad()
        torch.testing.assert_close(optimizer.step(0.01 * (step + 1)), norm)
        assert all(p.grad is None for p in optimized.parameters())
    for mine, other in zip(optimized.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(("clip", "kept"), [(1.0, [0.6, 0.8]), (10.0, [3.0, 4.0]), (0.0, [3.0, 4.0])])
def test_a_gradient_is_cut_to_the_norm(clip, kept):
    model = nn.Linear(2, 1, bias=False)
    optimizer = Optimizer(model, TrainingSettings(max_grad_norm=clip))
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert optimizer.step(0.1).item() == pytest.approx(5)
    moment = optimizer.state_dict()["moment.weight"]
    torch.testing.assert_close(moment, 0.1 * torch.tensor([kept]))


def test_written_and_read_back_it_goes_on_to_the_same_bits(tmp_path):
    model = tiny_model()
    optimizer = Optimizer(model, TrainingSettings())
    for step in range(3):
        backward(model, step)
        optimizer.step(0.01)
    other = copy.deepcopy(model)
    write_tensors(tmp_path / "memory.safetensors", optimizer.state_dict())
    for step in range(3, 6):
        backward(model, step)
        optimizer.step(0.01)
    assert not equal(model, other)
    resumed = Optimizer(other, TrainingSettings())
    resumed.load_state_dict(read_tensors(tmp_path / "memory.safetensors"))
    for step in range(3, 6):
        backward(other, step)
        resumed.step(0.01)
    assert equal(model, other)


def test_restored_memory_is_a_copy():
    model = tiny_model()
    optimizer = Optimizer(model, TrainingSettings())
    backward(model, 0)
    optimizer.step(0.01)
    other = tiny_model()
    resumed = Optimizer(other, TrainingSettings())
    resumed.load_state_dict(optimizer.state_dict())
    held = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    backward(other, 1)
    resumed.step(0.01)
    assert len(held) == 3 * 6
    assert all(torch.equal(tensor, optimizer.state_dict()[name]) for name, tensor in held.items())


def test_before_the_first_step_there_is_no_memory():
    optimizer = Optimizer(tiny_model(), TrainingSettings())
    assert optimizer.state_dict() == {}
    optimizer.load_state_dict({})
    assert optimizer.state_dict() == {}


def test_what_is_frozen_or_without_gradient_stays():
    model = tiny_model()
    model[0].requires_grad_(False)
    before = [p.clone() for p in model.parameters()]
    optimizer = Optimizer(model, TrainingSettings())
    model[3].bias.grad = torch.ones(2)
    optimizer.step(0.1)
    changed = [not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
    assert changed == [False] * 5 + [True]
    assert sorted(optimizer.state_dict()) == ["moment.3.bias", "square.3.bias", "steps.3.bias"]


def test_a_tied_matrix_is_stepped_once():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert list(Optimizer(model, TrainingSettings()).parameters) == ["0.weight"]


def test_memory_of_another_model_is_refused():
    model = nn.Linear(2, 3)
    optimizer = Optimizer(model, TrainingSettings())
    model(torch.ones(2)).sum().backward()
    optimizer.step(0.1)
    text = "checkpoint does not match the model: moment.weight: expected shape (4, 2), got (3, 2)"
    with pytest.raises(RegardError, match=f"^{re.escape(text)}$"):
        Optimizer(nn.Linear(2, 4), TrainingSettings()).load_state_dict(optimizer.state_dict())


def backward_without_end(model):
    """Return a finite loss whose gradient is not finite: that of a square root at 0."""
    first = model[0].weight[0]
    loss = model(torch.ones(5, 3, device=first.device)).sum() + (first - first.detach()).sqrt().sum()
    assert math.isfinite(loss.item())
    loss.backward()


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("before", [0, 3])
def test_an_update_without_a_finite_gradient_changes_nothing(before, clip, device):
    model, reference = tiny_model().to(device), tiny_model().to(device)
    optimizer = Optimizer(model, TrainingSettings(weight_decay=0.05, max_grad_norm=clip))
    average = MovingAverage(model, decay=0.9)
    groups = [
        {"params": [p for p in reference.parameters() if p.ndim == 2], "weight_decay": 0.05},
        {"params": [p for p in reference.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=0.01, betas=TrainingSettings().betas, eps=1e-9, fused=True)

    def both(seed):
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)).to(device)
        for network in (model, reference):
            network(inputs).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), clip or math.inf)
        adam.step()
        adam.zero_grad()
        average.update(seed, optimizer.step(0.01).isfinite())

    for seed in range(before):
        both(seed)
    held = copy.deepcopy([*model.parameters(), *average.values.values()])
    memory = copy.deepcopy(optimizer.state_dict())
    for _ in range(2):
        backward_without_end(model)
        norm = optimizer.step(0.01)
        assert not math.isfinite(norm.item())
        average.update(before, norm.isfinite())
    assert all(map(torch.equal, held, [*model.parameters(), *average.values.values()]))
    assert all(torch.equal(tensor, optimizer.state_dict()[name]) for name, tensor in memory.items())
    assert {float(tensor) for name, tensor in optimizer.state_dict().items() if name.startswith("steps.")} == {before}
    both(7)  # training continues as if nothing had happened
    assert not any(map(torch.equal, held, [*model.parameters(), *average.values.values()]))
    assert equal(model, reference)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_an_update_does_not_wait_for_the_gpu():
    model = tiny_model().cuda()
    optimizer, average = Optimizer(model, TrainingSettings()), MovingAverage(model, decay=0.9)
    for _ in range(3):
        backward_without_end(model)
        torch.cuda.set_sync_debug_mode("error")
        try:
            average.update(1, optimizer.step(0.01).isfinite())
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_the_average_follows_by_its_formula():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = MovingAverage(model, decay=0.75)
    for step, value in ((100, 5.0), (101, 9.0)):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(step, torch.tensor(True))
    # 0.75 * 1 + 0.25 * 5 = 2; 0.75 * 2 + 0.25 * 9 = 3.75
    assert average.values["weight"].item() == 3.75
    average.update(2, torch.tensor(True))  # early on the decay is (1 + 2) / (10 + 2): 0.25 * 3.75 + 0.75 * 9
    assert average.values["weight"].item() == 7.6875
    assert model.weight.item() == 9.0


def test_swapping_twice_changes_nothing():
    model = tiny_model()
    average = MovingAverage(model, decay=0.9)
    backward(model, 0)
    Optimizer(model, TrainingSettings()).step(0.1)
    before = copy.deepcopy(model)
    first = {name: value.clone() for name, value in average.values.items()}
    average.swap()
    assert equal(model, tiny_model())  # the average is still where the model began
    assert all(torch.equal(average.values[name], value) for name, value in before.named_parameters())
    average.swap()
    assert equal(model, before)
    assert all(torch.equal(average.values[name], value) for name, value in first.items())
