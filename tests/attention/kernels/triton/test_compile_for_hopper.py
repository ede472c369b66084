"""The existing programs compile for Hopper, and the check sees spilled registers."""

import importlib.util
from importlib.metadata import version
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from regard.attention import Additive, Boxcar, Epanechnikov, SoftCap, attend, causal, documents, lengths
from regard.attention.kernels.triton import additive, dot
from regard.attention.kernels.triton.additive import TRITON_ADDITIVE
from regard.attention.kernels.triton.distance import TRITON_DISTANCE
from regard.attention.kernels.triton.dot import TRITON_DOT
from regard.attention.lazy_weights import LazyWeights

from .compile_for_hopper import check_resources, compile_launches

SPILLS = importlib.util.find_spec("triton") is not None and version("triton") < "3.7"  # some registers in float32

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]


def launch_spilling_program() -> None:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def center(numbers, WIDTH: tl.constexpr):  # noqa: N803
        places = numbers + tl.arange(0, WIDTH)
        row = tl.load(places)
        tl.store(places, row - tl.sum(row) / WIDTH)

    for width in (2**12, 2**13):
        center[(1,)](torch.zeros(2**13), WIDTH=width, num_warps=1)


def test_a_program_that_holds_too_many_numbers_spills():
    small, large = compile_launches(launch_spilling_program)
    assert (large.name, large.constants, large.warps) == ("center", {"WIDTH": "8192"}, 1)
    assert small.registers > 128  # each of 32 threads holds 128 numbers, then 256
    assert large.stack > small.stack == 0
    with pytest.raises(AssertionError, match="center"):
        check_resources([small, large])


def make_call(dtype=torch.bfloat16, n=32, width=64, score="scaled_dot", **options) -> tuple[LazyWeights, Tensor]:
    query = torch.randn(1, 1, n, width).to(dtype)
    weights = attend(query, query, query, score, path="tiled", return_weights=True, **options)[1]
    assert isinstance(weights, LazyWeights)
    return weights, query


def launch_dot_programs() -> None:
    assert TRITON_DOT.reduce is not None
    every = causal() & lengths([32]) & documents([[0] * 32])
    for options in (
        {},
        {"visible": every, "bias": torch.zeros(32, 32), "score": SoftCap("scaled_dot", 50.0)},
        {"width": 256, "score": SoftCap("scaled_dot", 50.0)},
        {"visible": torch.ones(32, 32, dtype=torch.bool)},
        {"dtype": torch.float32, "width": 128},
        {"n": 1},  # Triton compiles numbers that are 1 as constants
    ):
        weights, _ = make_call(**options)
        TRITON_DOT.reduce(weights.call, weights.statistic, ["received", "entropy", "argmax", "top:8"])
    weights, _ = make_call()
    for names in (["entropy"], ["received", "entropy"], ["top:16"]):
        TRITON_DOT.reduce(weights.call, weights.statistic, names)
    with patch.object(dot, "SCRATCH", 1):  # as for long rows
        for names in (["received", "entropy", "argmax", "top:8"], ["top:8"]):
            weights, _ = make_call(n=128, visible=causal())
            TRITON_DOT.reduce(weights.call, weights.statistic, names)


def test_programs_of_dot_products_spill_nothing():
    programs = compile_launches(launch_dot_programs)
    assert {program.name for program in programs} == {
        "sum_weights",
        "find_largest_scores",
        "choose_groups",
        "score_groups",
        "choose_keys",
    }
    check_resources(programs, stack=96 if SPILLS else 0)


def launch_attention_programs() -> None:
    every = causal() & lengths([32]) & documents([[0] * 32])
    assert TRITON_DOT.forward is not None
    for options in (
        {},
        {"visible": every, "bias": torch.zeros(32, 32)},
        {"width": 128},
        {"width": 256, "visible": causal()},
        {"width": 100, "visible": every, "bias": torch.zeros(32, 32), "dtype": torch.float16},
        {"width": 256, "visible": every, "bias": torch.zeros(32, 32)},
        {"dtype": torch.float32},
        {"dtype": torch.float32, "width": 128, "visible": every},
        {"dtype": torch.float32, "width": 128, "visible": every, "bias": torch.zeros(32, 32)},
        {"score": SoftCap("scaled_dot", 50.0), "width": 256, "visible": causal()},
        {"n": 1},
    ):
        weights, values = make_call(**{"score": "gaussian", **options})
        TRITON_DOT.forward(weights.call, values)


def test_programs_of_attention_spill_nothing():
    programs = compile_launches(launch_attention_programs)
    assert {program.name for program in programs} == {"attend_to_keys"}
    check_resources(programs)


def launch_distance_programs() -> None:
    every = causal() & lengths([32]) & documents([[0] * 32])
    assert TRITON_DISTANCE.forward is not None
    assert TRITON_DISTANCE.backward is not None
    for options in (
        {"score": Boxcar()},
        {"score": Boxcar(), "visible": every},
        {"score": Boxcar(), "visible": torch.ones(32, 32, dtype=torch.bool)},
        {"score": Epanechnikov(), "visible": torch.ones(32, 32, dtype=torch.bool), "dtype": torch.float32},
        {"score": Epanechnikov()},
        {"score": Epanechnikov(), "dtype": torch.float32},
        {"score": Epanechnikov(power=2.5), "n": 1},
        {"score": Boxcar(), "width": 128},
        {"score": Epanechnikov(), "width": 128},
        {"score": Epanechnikov(power=2), "width": 256, "visible": every},
        {"score": Epanechnikov(), "dtype": torch.float16, "bias": torch.zeros(32, 32)},
    ):
        weights, values = make_call(**options)
        result = TRITON_DISTANCE.forward(weights.call, values)
        TRITON_DISTANCE.backward(weights.call, values, result, values, (True, True, True, False, True))


def test_programs_of_distances_spill_next_to_nothing():
    programs = compile_launches(launch_distance_programs)
    by_products = [program for program in programs if program.name.endswith("_by_products")]
    helpers = {"store_norms", "attend_by_products", "differentiate_by_products"}
    assert {program.name for program in programs} == {"attend_to_keys", "differentiate"} | helpers
    check_resources(programs, stack=400 if SPILLS else 256)  # by keys, and in differences that few blocks require
    check_resources([program for program in by_products if program.constants.get("OF_KEYS") != "True"])


def launch_additive_programs() -> None:
    every = causal() & lengths([70]) & documents([[0] * 70])
    assert TRITON_ADDITIVE.forward is not None
    assert TRITON_ADDITIVE.backward is not None
    for dtype, width, options in (
        (torch.bfloat16, 64, {}),
        (torch.bfloat16, 64, {"visible": every, "dropout": 0.1}),
        (torch.bfloat16, 64, {"visible": torch.ones(70, 70, dtype=torch.bool), "bias": torch.zeros(70, 70)}),
        (torch.float32, 64, {}),
        (torch.bfloat16, 256, {}),
        (torch.float32, 128, {}),
    ):
        score = Additive(width, width, hidden=64).to(dtype)
        weights, values = make_call(dtype, 70, width, score, **options)
        result = TRITON_ADDITIVE.forward(weights.call, values)
        TRITON_ADDITIVE.backward(weights.call, values, result, values, (True,) * (4 + len(weights.call.parameters)))


def launch_large_additive_programs() -> None:
    with patch.object(additive, "PROGRAMS", 1):  # as for long sequences
        launch_additive_programs()


@pytest.mark.parametrize("launch", [launch_additive_programs, launch_large_additive_programs])
def test_programs_of_additive_attention_spill_next_to_nothing(launch):
    programs = compile_launches(launch)
    assert {program.name for program in programs} == {"store_hidden", "attend_to_keys", "differentiate"}
    for program in programs:
        random = program.constants.get("DROPOUT") == "True"  # numbers for all pairs of a tile, once for each tile
        check_resources([program], stack=512 if random else 64)
