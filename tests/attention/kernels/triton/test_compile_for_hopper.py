"""The existing programs compile for Hopper, and the check sees spilled registers."""

import importlib.util

import pytest
import torch

from regard.attention import attend, causal, documents, lengths
from regard.attention.kernels.triton.dot import TRITON_DOT
from regard.attention.lazy_weights import LazyWeights

from .compile_for_hopper import check_resources, compile_launches

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]


def launch_spilling_program() -> None:
    import triton
    import triton.language as tl

    @triton.jit
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


def launch_dot_programs() -> None:
    every = causal() & lengths([32]) & documents([[0] * 32])
    for width, rule, bias in ((64, None, None), (64, every, torch.zeros(32, 32)), (256, None, None)):
        query = torch.randn(1, 1, 32, width).bfloat16()
        weights = attend(query, query, query, visible=rule, bias=bias, path="tiled", return_weights=True)[1]
        assert isinstance(weights, LazyWeights)
        for names in (["entropy"], ["received", "entropy", "argmax"], ["top:8"]):
            TRITON_DOT.reduce(weights.call, weights.statistic, names)


def test_programs_of_dot_products_spill_nothing_in_half_precision():
    programs = compile_launches(launch_dot_programs)
    names = {"reduce_rows", "find_group_maxima", "choose_groups", "choose_keys"}
    assert {program.name for program in programs} == names
    check_resources(programs)
