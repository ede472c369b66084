"""A race is fair where all run the same course."""

import os
import signal
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from regard.attention import SCORES
from regard.bench.attention import add_compiled, count_steps, count_sweeps, measure_groups, select_groups
from regard.bench.cases import build_groups, make_calls
from regard.bench.measure import ProcessEndedError, Timing
from regard.bench.settings import AttentionBench

SETTINGS = AttentionBench(length=12, width=8, heads=2, dtype="float64", processes=1)
GROUPS = build_groups(SETTINGS)


def test_every_score_function_is_there():
    assert set(SCORES) <= set(GROUPS)


@pytest.mark.parametrize("name", sorted(set(GROUPS) - {"dropout", "weights"}))
def test_all_cases_of_a_group_compute_the_same(name):
    group = GROUPS[name]
    outputs, gradients = (
        [run(name, case.name, d) for case in group.cases if case.same_result] for d in group.directions
    )
    assert len(outputs) > 1
    for output, result in zip(outputs[1:], gradients[1:], strict=True):
        torch.testing.assert_close(output, outputs[0])
        for ours, theirs in zip(result, gradients[0], strict=True):
            torch.testing.assert_close(zero_for_none(ours), zero_for_none(theirs))


def run(group: str, case: str, direction: str) -> Any:
    return make_calls(GROUPS[group], GROUPS[group].find_case(case), SETTINGS)[direction]()


def zero_for_none(gradient: torch.Tensor | None) -> torch.Tensor:
    """A gradient that is not there, and one of zeros, say the same."""
    if gradient is None or not gradient.any():
        return torch.zeros((), dtype=torch.float64)
    return gradient


def test_the_three_answers_are_those_of_the_whole_matrix():
    top, received, entropy = run("weights", "plain torch, all three", "forward")
    result = run("weights", "weights.reduce(all three)", "forward")
    torch.testing.assert_close(result, (tuple(top), received, entropy))


def test_what_is_named_twice_is_measured_once():
    assert [group.name for group in select_groups(SETTINGS, ["hard", "dot", "hard"])] == ["hard", "dot"]


def test_what_does_not_fit_is_skipped_and_said(monkeypatch):
    monkeypatch.setattr("regard.bench.measure.get_free_memory", lambda device: 10_000)
    (group,) = select_groups(SETTINGS, ["additive"])
    plain, chosen, _ = measure_groups([group], SETTINGS, on_progress=lambda text: None)
    needs = 2 * 8 * 2 * 12 * 12 * 8
    assert plain.notes[0] == f"forward skipped: needs about {needs / 1e9:.1f} GB, 0.0 GB are free"
    assert (plain.forward.seconds, plain.backward.seconds) == (None, None)
    assert chosen.forward.seconds is not None
    assert (chosen.forward.ratio, chosen.notes) == (None, ())


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "rounds"), [(1, 5), (3, 6)])
def test_rounds_are_shared_out_among_processes(processes, rounds):
    (group,) = select_groups(SETTINGS, ["uniform"])
    settings = replace(SETTINGS, fewest=5, patience=0.0, processes=processes)  # no more rounds than there must be
    rows = list(measure_groups([group], settings, on_progress=lambda text: None))
    assert {row.forward.rounds for row in rows} == {rounds}
    assert {row.backward.rounds for row in rows} == {rounds}


@pytest.mark.slow
def test_few_rounds_are_not_made_more_by_processes():
    settings = replace(SETTINGS, repeats=2, patience=60.0, processes=3)
    rows = list(measure_groups([GROUPS["uniform"]], settings, on_progress=lambda text: None))
    assert {row.forward.rounds for row in rows} == {2}


@pytest.mark.slow
def test_all_groups_are_gone_over_before_one_has_its_next_rounds():
    told: list[str] = []
    groups, settings = [GROUPS["uniform"], GROUPS["weights"]], replace(SETTINGS, patience=0.0, processes=2)
    rows = list(measure_groups(groups, settings, told.append))
    sweep = ["uniform, forward", "uniform, backward", "weights, forward"]
    assert told[:6] == [f"{what}: timing, {number} of 2" for number in (1, 2) for what in sweep]
    assert [row.group for row in rows] == ["uniform"] * len(groups[0].cases) + ["weights"] * len(groups[1].cases)
    assert len(told) == count_steps(groups, settings)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch.compile's own imports
def test_what_is_compiled_is_timed_in_one_process():
    settings = replace(SETTINGS, processes=4)
    assert count_sweeps(GROUPS["dot"], settings) == 4
    assert count_sweeps(add_compiled(GROUPS["dot"]), settings) == 1
    assert count_sweeps(GROUPS["dot"], replace(settings, device="cuda")) == 1


@pytest.mark.slow
def test_a_process_that_is_ended_is_noted(monkeypatch):
    monkeypatch.setattr("regard.bench.attention.time_by_name", end_this_process)
    (group,) = select_groups(SETTINGS, ["uniform"])
    rows = list(measure_groups([group], replace(SETTINGS, processes=2), on_progress=lambda text: None))
    told = "forward: a process was ended by the system while it timed this group"
    assert {row.notes[0] for row in rows} == {told}
    assert {row.forward.seconds for row in rows} == {None}


def test_where_a_process_is_ended_later_the_other_direction_stands(monkeypatch):
    def time_cases(group: object, names: list[str], direction: str, settings: object, sweep: int) -> Timing:
        if (direction, sweep) == ("forward", 2):
            raise ProcessEndedError
        return Timing([dict.fromkeys(names, 1.0)], quiet=True)

    monkeypatch.setattr("regard.bench.attention.time_cases", time_cases)
    told: list[str] = []
    settings = replace(SETTINGS, processes=5)
    rows = list(measure_groups([GROUPS["uniform"]], settings, told.append))
    assert {row.notes for row in rows} == {("forward: a process was ended by the system while it timed this group",)}
    assert {(row.forward.rounds, row.backward.rounds) for row in rows} == {(0, 5)}
    assert len(told) == count_steps([GROUPS["uniform"]], settings)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch.compile's own imports
def test_each_group_is_compiled_at_its_full_length(monkeypatch):
    compiled: list[int] = []

    def compiler(graph, inputs):
        compiled.append(max(max(tensor.shape) for tensor in inputs))
        return graph.forward

    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, **options: plain(call, backend=compiler, **options))
    so_far: list[tuple[str, int]] = []  # each time something is told: what, and how much is compiled for 40 keys
    settings = replace(SETTINGS, length=40, repeats=1, patience=0.0)
    groups = [add_compiled(GROUPS[name]) for name in ("dot", "scaled_dot", "bilinear", "reduced_rank")]
    rows = list(measure_groups(groups, settings, lambda text: so_far.append((text, compiled.count(40)))))
    assert all(row.forward.seconds for row in rows if row.case == "torch.compile")
    timed = [after > before for (text, before), (_, after) in pairwise(so_far) if "timing" in text]
    assert timed == [True, True] * len(groups)


def end_this_process(*arguments: object) -> None:
    """As the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch.compile's own imports
def test_each_plain_form_has_its_compiled_one_beside_it():
    names = [case.name for case in add_compiled(GROUPS["dot"]).cases]
    assert names[:4] == ["SDPA", "plain torch", "torch.compile", "attend"]
