"""Weights in a safetensors file: their tensors, and a line of JSON that says how they belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.attention.arranged import JoinedWeights, MergedWeights
from regard.attention.base_score import Score, Settled, learnt
from regard.attention.call import Call, Terms
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact, Gaussian, Kernel
from regard.attention.lazy_weights import LazyWeights
from regard.attention.normalise import (
    Entmax15,
    HardMax,
    KernelSum,
    Normaliser,
    PlainKernelSum,
    PlainSum,
    Softmax,
    Sparsemax,
)
from regard.attention.scores import Additive, Dot, FixedDot, ReducedRank, ScaledDot, Uniform
from regard.attention.visible import Both, Causal, Documents, Either, Given, Lengths, Not, Rule, Window
from regard.attention.weights import DenseWeights, MeanWeights, Weights
from regard.errors import RegardError

FORMAT = "regard.weights/1"

# What a file may name, which is looked up here and nowhere else.
SAVED_CHANGES: dict[str, type[MeanWeights | MergedWeights]] = {"mean": MeanWeights, "merged": MergedWeights}
SAVED_NORMALISERS: dict[str, type[Normaliser]] = {
    kind.__name__: kind for kind in (Entmax15, HardMax, KernelSum, PlainKernelSum, PlainSum, Softmax, Sparsemax)
}
SAVED_SCORES: dict[str, type[Score]] = {kind.__name__: kind for kind in (Dot, ScaledDot, Uniform)}
SAVED_KERNELS: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (Boxcar, Epanechnikov, Exact, Gaussian)}
SAVED_RULES: dict[str, type[Rule]] = {
    kind.__name__: kind for kind in (Both, Causal, Documents, Either, Given, Lengths, Not, Window)
}


def save(weights: Weights, path: Path) -> None:
    """Write weights to a file, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    record = describe(weights, tensors)
    beside = path.with_name(path.name + ".part")
    header = {"format": FORMAT, "weights": json.dumps(record)}
    own = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    try:
        save_file(own, beside, header)
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        beside.unlink(missing_ok=True)
        raise RegardError(f"{path}: cannot be written: {error}") from None


def load(path: Path) -> Weights:
    """Read weights from a file that `save` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{path}: cannot be read as saved weights: {error}") from None
    if header.get("format") != FORMAT:
        raise RegardError(f'{path}: found format {header.get("format")!r}; weights saved by regard say "{FORMAT}"')
    try:
        return rebuild(json.loads(header["weights"]), tensors)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise RegardError(f"{path}: holds weights that this version cannot read: {error!r}") from None


def describe(weights: Weights, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What the weights are, with their tensors put into `tensors`."""
    if isinstance(weights, DenseWeights):
        tensors["matrix"] = weights.matrix
        return {"kind": "dense", "ranked": weights.ranked}
    for kind, derived in SAVED_CHANGES.items():
        if isinstance(weights, derived):
            return {"kind": kind, "axis": weights.axis, "of": describe(weights.whole, tensors)}
    if isinstance(weights, JoinedWeights):
        return {"kind": "joined", "firsts": weights.firsts, "parts": describe_parts(weights.parts, tensors)}
    assert isinstance(weights, LazyWeights)
    weights.check()
    whole = weights.call
    tensors |= {"query": whole.query, "keys": whole.keys, "statistic": weights.statistic}
    if whole.bias is not None:
        tensors["bias"] = whole.bias
    return {
        "kind": "lazy",
        "shape": list(weights.shape),
        "score": describe_score(whole.terms.score, whole.parameters, tensors),
        "normaliser": type(whole.terms.normaliser).__name__,
        "visible": None if whole.terms.visible is None else describe_rule(whole.terms.visible, tensors),
    }


def rebuild(record: dict[str, Any], tensors: dict[str, Tensor]) -> Weights:
    """The weights that `describe` described."""
    if record["kind"] == "dense":
        return DenseWeights(tensors["matrix"], ranked=record["ranked"])
    if record["kind"] in SAVED_CHANGES:
        return SAVED_CHANGES[record["kind"]](rebuild(record["of"], tensors), record["axis"])
    if record["kind"] == "joined":
        return JoinedWeights(rebuild_parts(record["parts"], tensors), record["firsts"])
    if record["kind"] != "lazy":
        raise KeyError(record["kind"])
    rule = None if record["visible"] is None else rebuild_rule(record["visible"], tensors)
    score = rebuild_score(record["score"], tensors)
    terms = Terms(score, rule, SAVED_NORMALISERS[record["normaliser"]](), torch.Size(record["shape"]))
    parameters = tuple(learnt(score).values())
    return LazyWeights(
        Call(terms, tensors["query"], tensors["keys"], tensors.get("bias"), parameters), tensors["statistic"]
    )


def describe_parts(parts: list[Weights], tensors: dict[str, Tensor]) -> list[dict[str, Any]]:
    """What each part is; the names of its tensors begin with its number."""
    records = []
    for number, part in enumerate(parts):
        own: dict[str, Tensor] = {}
        records.append(describe(part, own))
        tensors |= {f"{number}.{name}": tensor for name, tensor in own.items()}
    return records


def rebuild_parts(records: list[dict[str, Any]], tensors: dict[str, Tensor]) -> list[Weights]:
    """The parts that `describe_parts` described."""

    def own(number: int) -> dict[str, Tensor]:
        begin = f"{number}."
        return {name.removeprefix(begin): tensor for name, tensor in tensors.items() if name.startswith(begin)}

    return [rebuild(record, own(number)) for number, record in enumerate(records)]


def describe_score(score: Score, parameters: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Just what is needed to compare queries and keys that are prepared already."""
    if isinstance(score, Settled):
        score = score.score
    named = dict(zip(learnt(score), parameters, strict=True))
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
    raise RegardError(
        f"save: weights of {type(score).__name__} cannot be computed again from a file; "
        "save weights.settled() (the whole matrix), or what you need of them"
    )


def rebuild_score(record: dict[str, Any], tensors: dict[str, Tensor]) -> Score:
    """The score that `describe_score` described."""
    kind: str = record["kind"]
    score: Score
    if kind == "FixedDot":
        return FixedDot(record["factor"])
    if kind == "Additive":
        energy = tensors["energy"]
        with torch.random.fork_rng([]):  # its random start is not used
            score = Additive(1, 1, energy.shape[-1], heads=tuple(energy.shape[:-1]) or None)
        score.energy.data = energy
    elif kind in SAVED_SCORES:
        score = SAVED_SCORES[kind]()
    else:
        score = SAVED_KERNELS[kind](**({} if record["power"] is None else {"power": record["power"]}))
        score.width.data = tensors["width"]
    return score.requires_grad_(False)


def describe_rule(rule: Rule, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A rule as plain data: its kind and its fields, rules and tensors within them too."""
    record: dict[str, Any] = {"kind": type(rule).__name__}
    for name, value in rule.parts().items():
        if isinstance(value, Rule):
            record[name] = describe_rule(value, tensors)
        elif isinstance(value, Tensor):
            record[name] = {"tensor": f"visible.{len(tensors)}"}
            tensors[f"visible.{len(tensors)}"] = value
        else:
            record[name] = value
    return record


def rebuild_rule(record: dict[str, Any], tensors: dict[str, Tensor]) -> Rule:
    """The rule that `describe_rule` described."""

    def value(found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        return tensors[found["tensor"]] if "tensor" in found else rebuild_rule(found, tensors)

    return SAVED_RULES[record["kind"]](**{name: value(v) for name, v in record.items() if name != "kind"})
