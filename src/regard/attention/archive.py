"""Save and load weights as safetensors files: the tensors, and JSON metadata that describes them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.attention.archive_fields import (
    FLOATS,
    INTEGERS,
    MAX_POSITION,
    as_boolean,
    as_integer,
    as_number,
    check_depth,
    check_fields,
    get_kind,
    refuse_unused,
    take_tensor,
)
from regard.attention.base_score import PrecomputedScore, Score, get_score_parameters, upcast
from regard.attention.call import Call, Terms
from regard.attention.combined_weights import JoinedWeights, MergedWeights
from regard.attention.intercept.recorded_weights import RecordedWeights
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
from regard.attention.score_checks import broadcasts_to, check_same_width, describe_type
from regard.attention.scores import Additive, Dot, FixedDot, ReducedRank, ScaledDot, Uniform
from regard.attention.soft_cap import SoftCap
from regard.attention.visible import (
    And,
    Causal,
    Documents,
    KeyIndices,
    Lengths,
    Not,
    Or,
    Rule,
    TensorRule,
    Window,
    check_broadcast,
)
from regard.attention.weights import DenseWeights, MeanWeights, Weights
from regard.errors import RegardError, format_json
from regard.files import parse_json, write_tensors

FORMAT = "regard.weights/1"

# The classes a file may name; nothing else is ever looked up.
SAVED_DERIVED: dict[str, type[MeanWeights | MergedWeights]] = {"mean": MeanWeights, "merged": MergedWeights}
SAVED_NORMALIZERS: dict[str, type[Normalizer]] = {
    kind.__name__: kind for kind in (Entmax15, HardMax, KernelSum, PlainKernelSum, PlainSum, Softmax, Sparsemax)
}
SAVED_SCORES: dict[str, type[Score]] = {kind.__name__: kind for kind in (Dot, ScaledDot, Uniform)}
SAVED_KERNELS: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (Boxcar, Epanechnikov, Exact, Gaussian)}
SAVED_RULES: dict[str, type[Rule]] = {
    kind.__name__: kind for kind in (And, Causal, Documents, KeyIndices, Or, TensorRule, Lengths, Not, Window)
}

MIN_AXES: dict[type[Rule], int] = {Documents: 1, KeyIndices: 2}  # of the tensors of a rule


def save_weights(weights: Weights, path: Path) -> None:
    """Save weights to a file atomically."""
    tensors: dict[str, Tensor] = {}
    record = describe_weights(weights, tensors)
    check_depth(record)
    write_tensors(path, tensors, {"format": FORMAT, "weights": json.dumps(record)})


def load_weights(path: Path) -> Weights:
    """Load weights from a file written by `save_weights`.

    Raises:
        RegardError: The file cannot be read, or its tensors and metadata do not describe weights.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RegardError(f"cannot read {path} as saved weights: {error}") from None
    if header.get("format") != FORMAT:
        raise RegardError(f'{path}: expected format "{FORMAT}", got {header.get("format")!r}')
    record = parse_json(header.get("weights", ""), f"{path}: the description of the weights")
    try:
        check_depth(record)
        weights = rebuild_weights(record, tensors)
        refuse_unused(tensors)
    except RegardError as error:
        raise RegardError(f"{path} is corrupt: {error}") from None
    return weights


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
    if isinstance(weights, RecordedWeights):
        return describe_weights(weights.base, tensors)
    if not isinstance(weights, LazyWeights):
        name = type(weights).__name__
        raise RegardError(f"save: cannot save lazy {name}; save DenseWeights(weights.dense()) instead")
    weights.check_unchanged()
    call = weights.call
    tensors |= {"query": call.query, "keys": call.keys, "statistic": weights.statistic.expand(*weights.shape[:-1], 1)}
    if call.bias is not None:
        tensors["bias"] = call.bias
    if call.sink is not None:
        tensors["sink"] = call.sink
    return {
        "kind": "lazy",
        "shape": list(weights.shape),
        "score": describe_score(call.terms.score, call.parameters, tensors),
        "normalizer": type(call.terms.normalizer).__name__,
        "visible": None if call.terms.visible is None else describe_rule(call.terms.visible, tensors),
    }


def rebuild_weights(record: Any, tensors: dict[str, Tensor]) -> Weights:
    """Rebuild weights from the result of `describe_weights`; the tensors used are removed from `tensors`."""
    kind = get_kind(record, "weights", ("dense", *SAVED_DERIVED, "joined", "lazy"))
    if kind == "dense":
        check_fields(record, kind, ("ranked",))
        matrix = take_tensor(tensors, "matrix", FLOATS, min_axes=2)
        return DenseWeights(matrix, ranked=as_boolean(record["ranked"], "dense: ranked"))
    if kind in SAVED_DERIVED:
        check_fields(record, kind, ("axis", "of"))
        base = rebuild_weights(record["of"], tensors)
        axes = 1 if kind == "mean" else 2  # leading axes that it needs, from `axis` on
        axis = as_integer(record["axis"], f"{kind}: axis", 0, len(base.shape) - 2 - axes)
        if kind == "mean" and base.shape[axis] == 0:
            raise RegardError(f"mean: axis {axis} of shape {tuple(base.shape)} is empty")
        return SAVED_DERIVED[kind](base, axis)
    return rebuild_joined(record, tensors) if kind == "joined" else rebuild_lazy(record, tensors)


def rebuild_lazy(record: dict[str, Any], tensors: dict[str, Tensor]) -> LazyWeights:
    """Rebuild lazy weights, and check that all tensors fit the shape of the weights and the score."""
    check_fields(record, "lazy", ("shape", "score", "normalizer", "visible"))
    query, keys = (take_tensor(tensors, name, FLOATS, min_axes=2) for name in ("query", "keys"))
    shape = rebuild_shape(record["shape"], query, keys)
    score = rebuild_score(record["score"], tensors)
    check_score(score, query, keys, shape)
    normalizer = SAVED_NORMALIZERS[get_kind(record, "normalizer", SAVED_NORMALIZERS, "normalizer")]()
    if isinstance(normalizer, (KernelSum, PlainKernelSum)) and not isinstance(score, Kernel):
        raise RegardError(f"normalizer {type(normalizer).__name__} requires a kernel, got {type(score).__name__}")
    weights_type = torch.promote_types(query.dtype, torch.float32)
    statistic = take_tensor(tensors, "statistic", (weights_type,))
    if statistic.shape != (*shape[:-1], 1):
        raise RegardError(f"statistic: expected shape {(*shape[:-1], 1)}, got {tuple(statistic.shape)}")
    bias = take_tensor(tensors, "bias", FLOATS, min_axes=2) if "bias" in tensors else None
    if bias is not None:
        check_broadcast("bias", bias.shape, shape)
    sink = rebuild_sink(tensors, normalizer, weights_type, shape) if "sink" in tensors else None
    rule = None if record["visible"] is None else rebuild_rule(record["visible"], tensors)
    if rule is not None:
        rule.check(shape)
    parameters = tuple(get_score_parameters(score).values())
    terms = Terms(score, rule, normalizer, shape)
    return LazyWeights(Call(terms, query, keys, bias, parameters, sink, is_prepared=True), statistic)


def rebuild_sink(
    tensors: dict[str, Tensor], normalizer: Normalizer, dtype: torch.dtype, shape: torch.Size
) -> Float[Tensor, "*sink_batch 1 1"]:
    """Return the sink of lazy weights, which must be those of a softmax."""
    sink = take_tensor(tensors, "sink", (dtype,), min_axes=2)
    if sink.shape[-2:] != (1, 1) or not broadcasts_to(tuple(sink.shape[:-2]), tuple(shape[:-2])):
        raise RegardError(f"sink: shape {tuple(sink.shape)} does not fit weights of shape {tuple(shape)}")
    if not isinstance(normalizer, Softmax):
        raise RegardError(f"sink: {type(normalizer).__name__} has no sink; only Softmax can have one")
    return sink


def rebuild_shape(sizes: Any, query: Tensor, keys: Tensor) -> torch.Size:
    """Return the shape of lazy weights, which query and keys must fit."""
    if not isinstance(sizes, list) or len(sizes) < 2:
        raise RegardError(f"shape: expected at least two sizes, got {format_json(sizes)}")
    shape = torch.Size(as_integer(size, "shape", 0, 2**48) for size in sizes)
    for name, tensor, length in (("query", query, shape[-2]), ("keys", keys, shape[-1])):
        if tensor.shape[-2] != length or not broadcasts_to(tensor.shape[:-2], shape[:-2]):
            raise RegardError(f"{name}: shape {tuple(tensor.shape)} does not fit weights of shape {tuple(shape)}")
    if query.dtype != keys.dtype:
        raise RegardError(
            f"query and keys must have the same type, got {describe_type(query)} and {describe_type(keys)}"
        )
    return shape


def check_score(score: Score, query: Tensor, keys: Tensor, shape: torch.Size) -> None:
    """Raise a `RegardError` unless a score can compare these prepared queries and keys."""
    while isinstance(score, SoftCap):
        score = score.score
    if not isinstance(score, Uniform):
        check_same_width(score, query, keys)
    for name, parameter in get_score_parameters(score).items():
        if name in ("energy", "width") and not broadcasts_to(score.head_grid, shape[:-2]):
            raise RegardError(f"{name}: shape {tuple(parameter.shape)} does not fit weights of shape {tuple(shape)}")
    if isinstance(score, Additive) and score.energy.shape[-1] != query.shape[-1]:
        raise RegardError(f"energy: expected width {query.shape[-1]}, that of query, got {score.energy.shape[-1]}")
    if isinstance(score, Additive) and upcast(score.energy).dtype != upcast(query).dtype:
        raise RegardError(
            f"energy: expected {describe_type(query)}, the type of query, got {describe_type(score.energy)}"
        )


def describe_parts(parts: list[Weights], tensors: dict[str, Tensor]) -> list[dict[str, Any]]:
    """Describe each part; the names of its tensors are prefixed with its index."""
    records = []
    for index, part in enumerate(parts):
        part_tensors: dict[str, Tensor] = {}
        records.append(describe_weights(part, part_tensors))
        tensors |= {f"{index}.{name}": tensor for name, tensor in part_tensors.items()}
    return records


def rebuild_joined(record: dict[str, Any], tensors: dict[str, Tensor]) -> JoinedWeights:
    """Rebuild joined weights from the result of `describe_parts`."""
    check_fields(record, "joined", ("firsts", "parts"))
    records, firsts = record["parts"], record["firsts"]
    if not isinstance(records, list) or not isinstance(firsts, list) or not 0 < len(records) == len(firsts):
        raise RegardError("joined: expected as many firsts as parts, and at least one")
    parts = []
    for index, part in enumerate(records):
        prefix = f"{index}."
        names = [name for name in tensors if name.startswith(prefix)]
        part_tensors = {name.removeprefix(prefix): tensors.pop(name) for name in names}
        parts.append(rebuild_weights(part, part_tensors))
        refuse_unused(part_tensors)
    for index, part in enumerate(parts):
        if part.shape[:-2] != parts[0].shape[:-2] or part.dtype != parts[0].dtype:
            raise RegardError(f"joined: part {index} has another batch shape or type than part 0")
    return JoinedWeights(parts, [as_integer(first, "joined: firsts", 0, MAX_POSITION) for first in firsts])


def describe_score(score: Score, parameters: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Describe a score as far as comparing prepared queries and keys requires."""
    if isinstance(score, PrecomputedScore):
        score = score.score
    if isinstance(score, SoftCap):
        return {"kind": "SoftCap", "cap": score.cap, "score": describe_score(score.score, parameters, tensors)}
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


def rebuild_score(record: Any, tensors: dict[str, Tensor]) -> Score:
    """Rebuild a score from the result of `describe_score`."""
    kind = get_kind(record, "score", ("FixedDot", "Additive", "SoftCap", *SAVED_SCORES, *SAVED_KERNELS))
    score: Score
    if kind == "SoftCap":
        check_fields(record, kind, ("cap", "score"))
        return SoftCap(rebuild_score(record["score"], tensors), as_number(record["cap"], "SoftCap: cap"))
    if kind == "FixedDot":
        check_fields(record, kind, ("factor",))
        return FixedDot(as_number(record["factor"], "FixedDot: factor"))
    if kind == "Additive":
        check_fields(record, kind, ())
        energy = take_tensor(tensors, "energy", FLOATS, min_axes=1)
        if 0 in energy.shape:
            raise RegardError(f"energy: expected shape (*heads, hidden), got {tuple(energy.shape)}")
        with torch.random.fork_rng([]):  # the initial values are not used
            score = Additive(1, 1, energy.shape[-1], heads=tuple(energy.shape[:-1]) or None)
        score.energy.data = energy
        return score.requires_grad_(False)
    check_fields(record, kind, ("power",))
    if kind in SAVED_KERNELS:
        return rebuild_kernel(kind, record["power"], tensors)
    return SAVED_SCORES[kind]()


def rebuild_kernel(kind: str, power: Any, tensors: dict[str, Tensor]) -> Kernel:
    """Rebuild a kernel score; only `Epanechnikov` has a power."""
    score = Epanechnikov(power=as_number(power, "power")) if kind == "Epanechnikov" else SAVED_KERNELS[kind]()
    width = take_tensor(tensors, "width", FLOATS)
    if width.ndim and (width.ndim < 3 or width.shape[-2:] != (1, 1) or 0 in width.shape):
        raise RegardError(f"width: expected a single number or shape (*heads, 1, 1), got {tuple(width.shape)}")
    if not (width.isfinite() & (width != 0)).all():
        raise RegardError("width must be finite and not 0")
    score.width.data, score.head_grid = width, tuple(width.shape[:-2])
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


def rebuild_rule(record: Any, tensors: dict[str, Tensor]) -> Rule:
    """Rebuild a rule from the result of `describe_rule`."""
    kind = get_kind(record, "visible", SAVED_RULES)
    rule = SAVED_RULES[kind]
    names = [field.name for field in fields(rule)]  # type: ignore[arg-type]
    check_fields(record, kind, names)

    def rebuild_field(name: str) -> Any:
        value = record[name]
        if rule in (And, Or, Not):
            return rebuild_rule(value, tensors)
        if rule is Causal:
            return as_boolean(value, f"{kind}: {name}")
        if rule is Window:
            return None if value is None else as_integer(value, f"{kind}: {name}", 0, 2**62)
        tensor_name = value.get("tensor") if isinstance(value, dict) else None
        dtypes = (torch.bool,) if rule is TensorRule else INTEGERS
        return take_tensor(tensors, tensor_name, dtypes, min_axes=MIN_AXES.get(rule, 0))

    values = {name: rebuild_field(name) for name in names}
    if rule is Documents and values["keys"].shape[:-1] != values["queries"].shape[:-1]:
        raise RegardError("Documents: keys and queries must have the same leading axes")
    return rule(**values)
