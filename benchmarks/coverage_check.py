"""Check on one model what `watch` records, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from regard import watch

TOLERANCE = 2e-4  # what rounding large scores in float32 leaves


class Truth(TorchFunctionMode):
    """What torch itself says of the weights in each call: its own functions, applied to values of one each."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            self.weights.append(read_sdpa(*args, **kwargs))
        elif function is functional.multi_head_attention_forward:
            given: Any = kwargs | {"need_weights": True, "average_attn_weights": False}
            weights: Any = function(*args, **given)[1]
            self.weights.append(weights)
        return function(*args, **kwargs)


@torch.no_grad()
def read_sdpa(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the weights of a call: its output for values that are the identity matrix."""
    names = ("attn_mask", "dropout_p", "is_causal")
    kwargs = kwargs | dict(zip(names, args, strict=False)) | {"dropout_p": 0.0}
    keys = key.shape[-2]
    identity = torch.eye(keys, dtype=query.dtype, device=query.device).expand(*key.shape[:-2], keys, keys)
    if kwargs.pop("enable_gqa", False) and query.shape[-3] != key.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, identity = key.repeat_interleave(repeats, -3), identity.repeat_interleave(repeats, -3)
    if kwargs.get("attn_mask") is not None and kwargs["attn_mask"].is_floating_point():
        kwargs["attn_mask"] = kwargs["attn_mask"].double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(query.double(), key.double(), identity.double(), **kwargs)


def same(left: Any, right: Any) -> bool:
    """Return whether two outputs have the same bits."""
    pairs = [(a, b) for a, b in zip(tensors(left), tensors(right), strict=True)]
    return all(a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b)) for a, b in pairs)


def bits(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor, in which NaN equals NaN."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    dense = tensor.detach().contiguous()
    return dense.view(kinds[dense.itemsize]) if dense.is_floating_point() and dense.itemsize in kinds else dense


def tensors(output: Any) -> list[Tensor]:
    """Return the tensors of an output, those of its caches too."""
    leaves: list[Any] = []
    for leaf in tree_leaves(dict(output) if hasattr(output, "keys") else output):
        layers = getattr(leaf, "layers", None)
        leaves += [x for layer in layers for x in (layer.keys, layer.values)] if isinstance(layers, list) and all(
            hasattr(layer, "keys") for layer in layers) else [leaf]  # fmt: skip
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def check_forward(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Compare a watched run with an unwatched one, and the weights with the truth."""
    with torch.no_grad():
        torch.manual_seed(5)
        plain = model(**inputs)
        torch.manual_seed(5)
        truth = Truth()
        with truth, watch(model) as seen:
            watched = model(**inputs)
    report = seen.report()
    recorded = [call for path in seen for call in seen[path]]
    lazily = [one for one in report.seen if one.how == "lazy"]
    exact = match(truth.weights, [call for one in lazily for call in seen[one.path]])
    return {
        "output": same(plain, watched),
        "attentions": len(report.seen), "calls": len(recorded), "modules": sorted({one.module for one in report.seen}),
        "functions": sorted({one.function for one in report.seen}), "kinds": sorted({one.kind for one in report.seen}),
        "how": sorted({one.how for one in report.seen}),
        "truths": len(truth.weights), "differs": exact,
        "unseen": [(one.path, one.module, one.reason) for one in report.unseen if one.ran],
        "finite": all(bool(call.dense().isfinite().all()) for call in recorded if call.shape.numel() < 2**24),
    }  # fmt: skip


def match(truths: list[Tensor], calls: list[Any]) -> list[str]:
    """Return the truths that no recorded call equals."""
    missing, left = [], [call.dense() for call in calls if call.shape.numel() < 2**24]
    for truth in truths:
        truth = truth.float().nan_to_num(0.0)
        if truth.numel() >= 2**24:
            continue
        distances = [(compare(dense, truth), index) for index, dense in enumerate(left)]
        best = min(distances, default=(1.0, -1))
        if best[0] > TOLERANCE:
            missing.append(f"{tuple(truth.shape)}: {best[0]:.1e}")
        else:
            left.pop(best[1])
    return missing


def compare(dense: Tensor, truth: Tensor) -> float:
    """Return the largest difference of recorded weights from the truth; 1 if their shapes do not fit.

    A model may return its weights without what it padded its inputs with, or averaged over the heads.
    """
    if dense.numel() == truth.numel():
        same_shape = dense.float().reshape(truth.shape)
        differences = [(same_shape - truth).abs().max().item()]
        if truth.ndim == 4 and truth.shape[1] > 1 and torch.equal(truth[:, :1].expand_as(truth), truth):
            differences.append((same_shape.mean(1, keepdim=True) - truth).abs().max().item())
        return min(differences)
    if dense.ndim == truth.ndim + 1 == 4 and dense.shape[0] == truth.shape[0]:
        dense = dense.mean(1)
    if dense.ndim != truth.ndim or any(a < b for a, b in zip(dense.shape, truth.shape, strict=True)):
        return 1.0
    first = dense.float()[tuple(slice(size) for size in truth.shape)]
    last = dense.float()[tuple(slice(-size, None) for size in truth.shape)]
    return min((part - truth).abs().max().item() for part in (first, last))


def check_eager(model: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Compare with the weights that eager attention returns; run eagerly, they are those of the same run."""
    try:
        model.set_attn_implementation("eager")
    except Exception as error:
        return {"eager": f"not available: {type(error).__name__}"}
    try:
        with torch.no_grad(), collect_sampled(model) as sampled:
            torch.manual_seed(5)
            plain = model(**inputs, output_attentions=True)
            torch.manual_seed(5)
            with watch(model) as seen:
                watched = model(**inputs, output_attentions=True)
    except Exception as error:
        return {"eager": f"failed: {type(error).__name__}"}
    if not hasattr(plain, "keys"):
        return {"eager": "returns no weights"}
    given = [
        leaf for name, value in dict(plain).items() if "attention" in name
        for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]  # fmt: skip
    given = [matrix for matrix in given if is_distribution(matrix)]  # some types return states under that name
    given = [matrix for matrix in given if not any(matrix is other for other in sampled)]
    calls = [call for path in seen for call in seen[path]]
    missing = match(given, calls)
    return {"eager": len(given), "eager_missing": missing, "eager_output": same(plain, watched),
            "eager_calls": len(calls)}  # fmt: skip


@contextmanager
def collect_sampled(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what modules of deformable attention return: weights of sampled positions, not of keys."""
    tensors: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda *call: tensors.extend(tree_leaves(call[-1])))
        for module in model.modules() if "Deformable" in type(module).__name__
    ]  # fmt: skip
    yield tensors
    for hook in hooks:
        hook.remove()


def is_distribution(matrix: Tensor) -> bool:
    """Return whether a matrix holds weights: rows that sum to one, or to zero."""
    sums = matrix.float().sum(-1)
    return bool((matrix >= 0).all() and (((sums - 1).abs() < 1e-3) | (sums.abs() < 1e-3)).all())


def check_training(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Compare outputs, gradients and random numbers of a training step."""
    results = []
    model.train()
    try:
        model(**inputs)
    except Exception as error:
        model.eval()
        return {"training": f"fails unwatched: {type(error).__name__}"}
    for run in (lambda: model(**inputs), watch_run(model, inputs)):
        model.zero_grad()
        transformers.set_seed(7)  # SpecAugment draws from NumPy
        output = run()
        total = sum(leaf.float().nan_to_num().square().mean() for leaf in tensors(output) if leaf.requires_grad)
        if isinstance(total, Tensor):
            total.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        results.append(([leaf.detach().clone() for leaf in tensors(output)],
                        [gradient.clone() for gradient in gradients], torch.get_rng_state()))  # fmt: skip
    model.eval()
    (output, gradients, state), (watched, watched_gradients, watched_state) = results
    return {"train_output": same(output, watched), "gradients": same(gradients, watched_gradients),
            "random_state": torch.equal(state, watched_state)}  # fmt: skip


def watch_run(model: nn.Module, inputs: dict[str, Tensor]) -> Callable[[], Any]:
    """Return a function that runs a model watched."""

    def run() -> Any:
        with watch(model, "top:2"):
            return model(**inputs)

    return run


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled, static cache": {"do_sample": True, "cache_implementation": "static", "disable_compile": True},
    "sampled beams": {"do_sample": True, "num_beams": 2},
}


def check_generation(model: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Compare what a model writes, watched and unwatched; only ways that work unwatched count."""
    results: dict[str, Any] = {}
    if not hasattr(model, "can_generate") or not model.can_generate():
        return results
    inputs = {name: tensor for name, tensor in inputs.items() if name != "decoder_input_ids"}
    for name, how in WAYS.items():
        settings = {"max_new_tokens": 3, "min_new_tokens": 3, **how}
        try:
            torch.manual_seed(3)
            plain = model.generate(**inputs, **settings)
        except Exception:
            continue
        torch.manual_seed(3)
        with watch(model):
            watched = model.generate(**inputs, **settings)
        results[name] = same(plain, watched)
    return {"generate": results} if results else {}
