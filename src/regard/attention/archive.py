"""Save and load weights as safetensors files: the tensors, and JSON metadata that describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.attention.base_score import PrecomputedScore, Score, get_score_parameters
from regard.attention.call import Call, Terms
from regard.attention.combined_weights import JoinedWeights, MergedWeights
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact, Gaussian, Kernel
from regard.attention.lazy_weights import LazyWeights
from regard.attention.normalizers import (
    Entmax15,
    HardMax,
    KernelSum,
    Normalizer,
    PlainKernelSum,
    PlainSum,
    Softmax,
    Sparsemax,
)
from regard.attention.scores import Additive, Dot, FixedDot, ReducedRank, ScaledDot, Uniform
from regard.attention.visible import And, Causal, Documents, Lengths, Not, Or, Rule, TensorRule, Window
from regard.attention.weights import DenseWeights, MeanWeights, Weights
from regard.errors import RegardError

FORMAT = "regard.weights/1"

# The classes a file may name; nothing else is ever looked up.
SAVED_DERIVED: dict[str, type[MeanWeights | MergedWeights]] = {"mean": MeanWeights, "merged": MergedWeights}
SAVED_NORMALIZERS: dict[str, type[Normalizer]] = {
    kind.__name__: kind for kind in (Entmax15, HardMax, KernelSum, PlainKernelSum, PlainSum, Softmax, Sparsemax)
}
SAVED_SCORES: dict[str, type[Score]] = {kind.__name__: kind for kind in (Dot, ScaledDot, Uniform)}
SAVED_KERNELS: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (Boxcar, Epanechnikov, Exact, Gaussian)}
SAVED_RULES: dict[str, type[Rule]] = {
    kind.__name__: kind for kind in (And, Causal, Documents, Or, TensorRule, Lengths, Not, Window)
}


def save_weights(weights: Weights, path: Path) -> None:
    """Save weights to a file atomically."""
    tensors: dict[str, Tensor] = {}
    record = describe_weights(weights, tensors)
    partial_path = path.with_name(path.name + ".part")
    header = {"format": FORMAT, "weights": json.dumps(record)}
    copies = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    try:
        save_file(copies, partial_path, header)
        partial_path.replace(path)
    except (OSError, SafetensorError) as error:
        partial_path.unlink(missing_ok=True)
        raise RegardError(f"cannot write {path}: {error}") from None


def load_weights(path: Path) -> Weights:
    """Load weights from a file written by `save_weights`."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RegardError(f"cannot read {path} as saved weights: {error}") from None
    if header.get("format") != FORMAT:
        raise RegardError(f'{path}: expected format "{FORMAT}", got {header.get("format")!r}')
    try:
        return rebuild_weights(json.loads(header["weights"]), tensors)
    except (KeyError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RegardError(f"{path}: this version of regard cannot read these weights: {error!r}") from None


def describe_weights(weights: Weights, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Describe weights as JSON data and add their tensors to `tensors`."""
    if isinstance(weights, DenseWeights):
        tensors["matrix"] = weights.matrix
        return {"kind": "dense", "ranked": weights.ranked}
    for kind, derived in SAVED_DERIVED.items():
        if isinstance(weights, derived):
            return {"kind": kind, "axis": weights.axis, "of": describe_weights(weights.base, tensors)}
    if isinstance(weights, JoinedWeights):
        return {"kind": "joined", "firsts": weights.firsts, "parts": describe_parts(weights.parts, tensors)}
    assert isinstance(weights, LazyWeights)
    weights.check_unchanged()
    call = weights.call
    tensors |= {"query": call.query, "keys": call.keys, "statistic": weights.statistic}
    if call.bias is not None:
        tensors["bias"] = call.bias
    return {
        "kind": "lazy",
        "shape": list(weights.shape),
        "score": describe_score(call.terms.score, call.parameters, tensors),
        "normalizer": type(call.terms.normalizer).__name__,
        "visible": None if call.terms.visible is None else describe_rule(call.terms.visible, tensors),
    }


def rebuild_weights(record: dict[str, Any], tensors: dict[str, Tensor]) -> Weights:
    """Rebuild weights from the result of `describe_weights`."""
    if record["kind"] == "dense":
        return DenseWeights(tensors["matrix"], ranked=record["ranked"])
    if record["kind"] in SAVED_DERIVED:
        return SAVED_DERIVED[record["kind"]](rebuild_weights(record["of"], tensors), record["axis"])
    if record["kind"] == "joined":
        return JoinedWeights(rebuild_parts(record["parts"], tensors), record["firsts"])
    if record["kind"] != "lazy":
        raise KeyError(record["kind"])
    rule = None if record["visible"] is None else rebuild_rule(record["visible"], tensors)
    score = rebuild_score(record["score"], tensors)
    terms = Terms(score, rule, SAVED_NORMALIZERS[record["normalizer"]](), torch.Size(record["shape"]))
    parameters = tuple(get_score_parameters(score).values())
    return LazyWeights(
        Call(terms, tensors["query"], tensors["keys"], tensors.get("bias"), parameters), tensors["statistic"]
    )


def describe_parts(parts: list[Weights], tensors: dict[str, Tensor]) -> list[dict[str, Any]]:
    """Describe each part; the names of its tensors are prefixed with its index."""
    records = []
    for index, part in enumerate(parts):
        part_tensors: dict[str, Tensor] = {}
        records.append(describe_weights(part, part_tensors))
        tensors |= {f"{index}.{name}": tensor for name, tensor in part_tensors.items()}
    return records


def rebuild_parts(records: list[dict[str, Any]], tensors: dict[str, Tensor]) -> list[Weights]:
    """Rebuild parts from the result of `describe_parts`."""

    def select_tensors(index: int) -> dict[str, Tensor]:
        prefix = f"{index}."
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    return [rebuild_weights(record, select_tensors(index)) for index, record in enumerate(records)]


def describe_score(score: Score, parameters: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Describe a score as far as comparing prepared queries and keys requires."""
    if isinstance(score, PrecomputedScore):
        score = score.score
    named = dict(zip(get_score_parameters(score), parameters, strict=True))
    if isinstance(score, ReducedRank) or score.dot_scale is not None:
        return {"kind": "FixedDot", "factor": 1.0 if score.dot_scale is None else score.dot_scale}
    if type(score) in SAVED_SCORES.values():
        return {"kind": type(score).__name__, "power": None}
    if score.form == "additive":
        tensors["energy"] = named["energy"]
        return {"kind": "Additive"}
    if type(score) in SAVED_KERNELS.values():
        tensors["width"] = named["width"]
        return {"kind": type(score).__name__, "power": score.power if isinstance(score, Epanechnikov) else None}
    raise RegardError(f"save: cannot save lazy weights of {score.title}; save weights.materialize() instead")


def rebuild_score(record: dict[str, Any], tensors: dict[str, Tensor]) -> Score:
    """Rebuild a score from the result of `describe_score`."""
    kind: str = record["kind"]
    score: Score
    if kind == "FixedDot":
        return FixedDot(record["factor"])
    if kind == "Additive":
        energy = tensors["energy"]
        with torch.random.fork_rng([]):  # the initial values are not used
            score = Additive(1, 1, energy.shape[-1], heads=tuple(energy.shape[:-1]) or None)
        score.energy.data = energy
    elif kind in SAVED_SCORES:
        score = SAVED_SCORES[kind]()
    else:
        score = SAVED_KERNELS[kind](**({} if record["power"] is None else {"power": record["power"]}))
        score.width.data = tensors["width"]
    return score.requires_grad_(False)


def describe_rule(rule: Rule, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Describe a rule as JSON data: its class and its fields, including nested rules and tensors."""
    record: dict[str, Any] = {"kind": type(rule).__name__}
    for name, value in rule.get_fields().items():
        if isinstance(value, Rule):
            record[name] = describe_rule(value, tensors)
        elif isinstance(value, Tensor):
            record[name] = {"tensor": f"visible.{len(tensors)}"}
            tensors[f"visible.{len(tensors)}"] = value
        else:
            record[name] = value
    return record


def rebuild_rule(record: dict[str, Any], tensors: dict[str, Tensor]) -> Rule:
    """Rebuild a rule from the result of `describe_rule`."""

    def rebuild_value(data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return tensors[data["tensor"]] if "tensor" in data else rebuild_rule(data, tensors)

    return SAVED_RULES[record["kind"]](**{name: rebuild_value(v) for name, v in record.items() if name != "kind"})
