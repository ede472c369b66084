import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from regard import RegardError, Weights, attend, causal, documents, key_indices, lengths, window
from regard.attention import DenseWeights, SoftCap
from regard.attention.archive import save_weights
from regard.attention.combined_weights import JoinedWeights, MergedWeights

from .cases import make_score, tensors

KINDS = "dense, mean, merged, joined, lazy"


def lazy(name="scaled_dot", *batch, normalizer="softmax", **settings):
    query, keys, values = tensors(*batch, n=3, m=4)
    settings = {"path": "tiled" if name != "scaled_dot" else None, "normalizer": normalizer, **settings}
    return attend(query, keys, values, make_score(name), return_weights=True, **settings)[1]


def load_changed(weights, change, path):
    """Save weights, change metadata and tensors of the file, and load it."""
    save_weights(weights, path)
    with safe_open(path, framework="pt") as file:
        header, inside = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    record = json.loads(header["weights"])
    record = change(record, inside) or record
    text = record if isinstance(record, str) else json.dumps(record)
    save_file({name: tensor.contiguous() for name, tensor in inside.items()}, path, header | {"weights": text})
    return Weights.load(path)


def put(*steps):
    """Return a change of the metadata: the keys that lead to a field, and its value."""
    *before, name, value = steps

    def change(record, inside):
        for step in before:
            record = record[step]
        record[name] = value

    return change


def tensor(name, value):
    """Return a change of one tensor."""
    return lambda record, inside: inside.__setitem__(name, value)


def drop(name):
    return lambda record, inside: inside.__delitem__(name)


PLAIN = lazy()
RULE = lazy(visible=causal() & ~lengths(torch.tensor(2)))
WINDOW = lazy(visible=window(1, None))
PACKED = lazy(visible=documents(torch.tensor([0, 0, 1, 1])))
GIVEN = lazy(visible=torch.ones(3, 4, dtype=torch.bool), bias=torch.zeros(3, 4))
ADDITIVE, KERNEL = lazy("additive"), lazy("epanechnikov")
CAPPED = attend(*tensors(n=3, m=4), SoftCap("dot", 2.0), path="tiled", return_weights=True)[1]
HARD = lazy("hard")
SINK, CHOSEN = lazy(sink=torch.tensor(0.5)), lazy(visible=key_indices([[0, 1], [2, -1], [3, 0]]))
DENSE = DenseWeights(torch.full((2, 3, 4), 0.25))
PARTS = JoinedWeights([DENSE, DENSE], [0, 1])

BROKEN = {
    "kind": (PLAIN, put("kind", "Weights"), f'weights: expected one of {KINDS}, got "Weights"'),
    "no object": (PLAIN, lambda *_: [1], "weights: expected an object, got [1]"),
    "missing field": (PLAIN, lambda record, _: record.pop("shape") and None, 'lazy: missing field "shape"'),
    "unknown field": (PLAIN, put("more", 1), 'lazy: unknown field "more"'),
    "ranked": (DENSE, put("ranked", 1), "dense: ranked must be true or false, got 1"),
    "ids": (
        DENSE,
        tensor("matrix", torch.zeros(2, 3, dtype=torch.int64)),
        "matrix: expected float16 or bfloat16 or float32 or float64, got int64",
    ),
    "vector": (DENSE, tensor("matrix", torch.zeros(3)), "matrix: unexpected shape (3,)"),
    "no elements": (DENSE, tensor("matrix", torch.zeros(2**25, 0)), "matrix: unexpected shape (33554432, 0)"),
    "axis": (DENSE.mean(), put("axis", 1), "mean: axis must be an integer from 0 to 0, got 1"),
    "axis type": (DENSE.mean(), put("axis", True), "mean: axis must be an integer from 0 to 0, got true"),
    "empty axis": (
        DENSE.mean(),
        tensor("matrix", torch.zeros(0, 3, 4)),
        "mean: axis 0 of shape (0, 3, 4) is empty",
    ),
    "merged": (
        MergedWeights(DenseWeights(torch.zeros(2, 2, 3, 4)), 0),
        put("axis", 1),
        "merged: axis must be an integer from 0 to 0, got 1",
    ),
    "parts": (PARTS, put("firsts", [0]), "joined: expected as many firsts as parts, and at least one"),
    "first": (PARTS, put("firsts", [0, -1]), "joined: firsts must be an integer from 0 to 16777216, got -1"),
    "other part": (
        PARTS,
        tensor("1.matrix", torch.zeros(3, 3, 4)),
        "joined: part 1 has another batch shape or type than part 0",
    ),
    "shape": (PLAIN, put("shape", [3]), "shape: expected at least two sizes, got [3]"),
    "size": (PLAIN, put("shape", [3, 1e3]), "shape must be an integer from 0 to 281474976710656, got 1000.0"),
    "other shape": (PLAIN, put("shape", [5, 4]), "query: shape (3, 6) does not fit weights of shape (5, 4)"),
    "larger batch": (PLAIN, put("shape", [9, 3, 4]), "statistic: expected shape (9, 3, 1), got (3, 1)"),
    "keys": (
        PLAIN,
        tensor("keys", torch.zeros(5, 6).double()),
        "keys: shape (5, 6) does not fit weights of shape (3, 4)",
    ),
    "width": (
        PLAIN,
        tensor("keys", torch.zeros(4, 5).double()),
        "FixedDot: query and keys must have the same width, got 6 and 5 "
        "(Bilinear, ReducedRank, Additive and Concat accept different widths)",
    ),
    "types": (
        PLAIN,
        tensor("keys", torch.zeros(4, 6)),
        "query and keys must have the same type, got float64 and float32",
    ),
    "statistic": (PLAIN, tensor("statistic", torch.zeros(3, 1)), "statistic: expected float64, got float32"),
    "statistic of hard": (
        HARD,
        tensor("statistic", torch.zeros(3, 1, dtype=torch.int64)),
        "statistic: expected float64, got int64",
    ),
    "missing tensor": (PLAIN, drop("keys"), 'missing tensor "keys"'),
    "extra tensor": (PLAIN, tensor("more", torch.zeros(1)), 'unexpected tensor "more"'),
    "extra in a part": (PARTS, tensor("0.more", torch.zeros(1)), 'unexpected tensor "more"'),
    "factor": (PLAIN, put("score", "factor", float("nan")), "FixedDot: factor must be a finite number, got NaN"),
    "large factor": (
        PLAIN,
        put("score", "factor", 10**400),
        f"FixedDot: factor must be a finite number, got 1{58 * '0'}…",
    ),
    "cap": (CAPPED, put("score", "cap", 0), "SoftCap: cap must be a finite number above 0, got 0.0"),
    "capped score": (CAPPED, put("score", "score", None), "score: expected an object, got null"),
    "sink": (
        SINK,
        tensor("sink", torch.zeros(3, 1, 1).double()),
        "sink: shape (3, 1, 1) does not fit weights of shape (3, 4)",
    ),
    "sink type": (SINK, tensor("sink", torch.zeros(1, 1)), "sink: expected float64, got float32"),
    "sink without softmax": (
        SINK,
        put("normalizer", "Sparsemax"),
        "sink: Sparsemax has no sink; only Softmax can have one",
    ),
    "score": (
        PLAIN,
        put("score", "kind", "as_score"),
        "score: expected one of FixedDot, Additive, SoftCap, Dot, ScaledDot, Uniform, Boxcar, Epanechnikov, Exact, "
        'Gaussian, got "as_score"',
    ),
    "normalizer": (
        PLAIN,
        put("normalizer", "exp"),
        "normalizer: expected one of Entmax15, HardMax, KernelSum, PlainKernelSum, PlainSum, Softmax, Sparsemax, "
        'got "exp"',
    ),
    "no kernel": (PLAIN, put("normalizer", "KernelSum"), "normalizer KernelSum requires a kernel, got FixedDot"),
    "energy": (
        ADDITIVE,
        tensor("energy", torch.zeros(9).double()),
        "energy: expected width 5, that of query, got 9",
    ),
    "energy type": (
        ADDITIVE,
        tensor("energy", torch.zeros(5)),
        "energy: expected float64, the type of query, got float32",
    ),
    "energy of heads": (
        ADDITIVE,
        tensor("energy", torch.zeros(2, 5).double()),
        "energy: shape (2, 5) does not fit weights of shape (3, 4)",
    ),
    "kernel width": (KERNEL, tensor("width", torch.tensor(0.0)), "width must be finite and not 0"),
    "kernel widths": (
        KERNEL,
        tensor("width", torch.ones(2)),
        "width: expected a single number or shape (*heads, 1, 1), got (2,)",
    ),
    "power": (KERNEL, put("score", "power", "2"), 'power must be a finite number, got "2"'),
    "negative power": (KERNEL, put("score", "power", -1), "Epanechnikov: power must be above 0, got -1.0"),
    "bias": (GIVEN, tensor("bias", torch.zeros(3, 5)), "bias: shape (3, 5) does not broadcast to (3, 4)"),
    "rule": (
        RULE,
        put("visible", "kind", "Rule"),
        'visible: expected one of And, Causal, Documents, KeyIndices, Or, TensorRule, Lengths, Not, Window, got "Rule"',
    ),
    "strict": (RULE, put("visible", "left", "strict", 3), "Causal: strict must be true or false, got 3"),
    "window": (
        WINDOW,
        put("visible", "left", 2**63),
        f"Window: left must be an integer from 0 to {2**62}, got {2**63}",
    ),
    "matrix of a rule": (
        GIVEN,
        lambda record, inside: inside.__setitem__(record["visible"]["matrix"]["tensor"], torch.ones(3, 4)),
        "visible.4: expected bool, got float32",
    ),
    "tensor of a rule": (GIVEN, put("visible", "matrix", {"tensor": [1]}), "missing tensor [1]"),
    "documents of another batch": (
        PACKED,
        lambda record, inside: inside.__setitem__(record["visible"]["keys"]["tensor"], torch.zeros(1, 4).long()),
        "Documents: keys and queries must have the same leading axes",
    ),
    "documents": (
        PACKED,
        lambda record, inside: inside.__setitem__(record["visible"]["keys"]["tensor"], torch.arange(3)),
        "documents: expected numbers for 4 keys and 3 queries, got 3 and 4",
    ),
    "indices": (
        CHOSEN,
        lambda record, inside: inside.__setitem__(record["visible"]["indices"]["tensor"], torch.zeros(2, 2).long()),
        "key_indices: expected indices for 3 queries, got 2",
    ),
    "indices without queries": (
        CHOSEN,
        lambda record, inside: inside.__setitem__(record["visible"]["indices"]["tensor"], torch.zeros(2).long()),
        "visible.3: unexpected shape (2,)",
    ),
    "nested": (
        PLAIN,
        lambda record, inside: put("visible", json.loads('{"kind":"Not","rule":' * 200 + "null" + "}" * 200))(
            record, inside
        ),
        "weights or rules are nested more than 100 deep",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_inconsistent_file_is_said(name, tmp_path):
    weights, change, message = BROKEN[name]
    with pytest.raises(RegardError) as error:
        load_changed(weights, change, tmp_path / "w")
    assert str(error.value) == f"{tmp_path}/w is corrupt: {message}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 100_000, "maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
    ],
    ids=["syntax", "deep"],
)
def test_metadata_that_is_no_json_is_said(text, reason, tmp_path):
    with pytest.raises(RegardError) as error:
        load_changed(PLAIN, lambda *_: text, tmp_path / "w")
    assert str(error.value) == f"{tmp_path}/w: the description of the weights is not valid JSON: {reason}"


def test_joined_and_merged_weights_come_back(tmp_path):
    merged = MergedWeights(lazy("scaled_dot", 2, 2), 0)
    for weights in (JoinedWeights([DENSE], [2]), PARTS, merged):
        assert torch.equal(load_changed(weights, lambda *_: None, tmp_path / "w").dense(), weights.dense())


def test_rules_too_deep_to_be_read_are_not_saved(tmp_path):
    rule = causal()
    for _ in range(120):
        rule = rule & causal()
    with pytest.raises(RegardError) as error:
        lazy(visible=rule).save(tmp_path / "w")
    assert str(error.value) == "weights or rules are nested more than 100 deep"
    assert not list(tmp_path.iterdir())
