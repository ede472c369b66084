"""Bounds: every number of every setting and option has both, and a value beyond one is refused in one line."""

import dataclasses
import math
import re
import types
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

from regard.bench.settings import AttentionBench, TrainingBench, WatchBench
from regard.bounds import Bounds, OpenShare, Share, check_bounds, find_bounds, format_number, get_bounds
from regard.data.corpora import CORPORA
from regard.errors import RegardError
from regard.models import MODELS
from regard.serve.settings import ServeSettings
from regard.settings import get_fields
from regard.tasks import TASKS, get_recipes
from regard.text.steps import TextSteps

SECTIONS: set[type] = {
    field.type
    for recipe in get_recipes().values()
    for field in get_fields(recipe).values()
    if isinstance(field.type, type) and dataclasses.is_dataclass(field.type)
}
OPTIONS: set[type] = {
    kind for task in TASKS.values() for kind in (*task.options.values(), *task.actions.values()) if kind
}
OTHERS: set[type] = {ServeSettings, AttentionBench, TrainingBench, WatchBench, TextSteps, *CORPORA.values()}
CONFIGS: set[type] = {preset.config for preset in MODELS.values()}
KINDS: list[type] = sorted(SECTIONS | OPTIONS | OTHERS | CONFIGS, key=lambda kind: kind.__qualname__)


def holds_number(hint: Any) -> bool:
    """Whether values of a type are numbers, or can be, or lists of them."""
    if hint in (int, float):
        return True
    return get_origin(hint) in (tuple, Union, types.UnionType) and any(map(holds_number, get_args(hint)))


NUMBERS = [
    pytest.param(kind, field, id=f"{kind.__qualname__}.{field.name}")
    for kind in KINDS
    for field in get_fields(kind).values()
    if holds_number(field.type)
]


def test_the_walk_meets_the_settings():
    names = {test.id for test in NUMBERS}
    assert names >= {
        "TransformerConfig.decoder_layers",
        "GptConfig.mute",
        "TextTraining.segment_length",
        "PairTraining.betas",
        "PretrainingSettings.steps",
        "SearchOptions.beam",
        "Generate.temperature",
        "LookAtPair.layer",
        "ServeSettings.timeout",
        "WatchBench.layers",
        "Dates.first_year",
    }
    assert len(KINDS) > 40
    assert len(NUMBERS) > 200


@pytest.mark.parametrize(("kind", "field"), NUMBERS)
def test_every_number_has_both_bounds_and_keeps_them(kind, field):
    bounds = get_bounds(kind).get(field.name)
    assert bounds is not None
    assert bounds.is_complete
    needed = {
        other.name: ("A", "B") if other.name == "labels" else 8
        for other in get_fields(kind).values()
        if other.default is dataclasses.MISSING
    }
    low = bounds.minimum if bounds.exclusive_minimum is None else bounds.exclusive_minimum
    high = bounds.maximum if bounds.exclusive_maximum is None else bounds.exclusive_maximum
    wrong_values: tuple[float, ...] = (low - 1, high + 1, 10**22, -(10**22), 10**5000)
    if float in (field.type, *get_args(field.type)):
        wrong_values = (low - 1.0, high + 1.0, 1e30, -1e30, math.inf, -math.inf, math.nan)
    for value in wrong_values:
        wrong = (value,) if get_origin(field.type) is tuple else value
        with pytest.raises(RegardError) as caught:
            kind(**{**needed, field.name: wrong})
        line = str(caught.value)
        assert re.fullmatch(
            r"[^\n]*\b" + field.name.replace("_", "[_-]") + r" must be (at least|at most|above|below|from) [^\n]+", line
        )
        assert f", got {format_number(value)}" in line


@dataclass(frozen=True)
class Example:
    count: Annotated[int | None, Bounds(1, 1000)] = 1
    share: Share | None = None
    part: OpenShare = 0.5
    sizes: tuple[Annotated[int, Bounds(2, 8)], ...] = ()
    heat: Annotated[float, Bounds(0.001, 10, hint="use {dashes}greedy")] = 1.0
    which_one: Annotated[int, Bounds(0, 5)] | str = "mean"
    name: str = ""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 100_000}, "count must be at most 1,000, got 100,000"),
        ({"count": 10**22}, "count must be at most 1,000, got 10,000,000,000,000,000,000,000"),
        ({"count": 10**400}, "count must be at most 1,000, got about 10^400"),
        ({"share": 1.0}, "share must be at least 0 and below 1, got 1.0"),
        ({"share": -0.1}, "share must be at least 0 and below 1, got -0.1"),
        ({"part": 0.0}, "part must be above 0 and below 1, got 0.0"),
        ({"sizes": (3, 1)}, "sizes must be at least 2, got 1"),
        ({"heat": 1e-300}, "heat must be at least 0.001, got 1e-300; use greedy"),
        ({"heat": math.nan}, "heat must be at least 0.001, got nan; use greedy"),
        ({"which_one": 6}, "which_one must be at most 5, got 6"),
    ],
)
def test_values_out_of_bounds_are_said(settings, text):
    with pytest.raises(RegardError, match=f"^{re.escape(text)}$"):
        check_bounds(Example(**settings))


def test_what_is_left_open_or_within_passes():
    for settings in ({}, {"count": None}, {"count": 1000}, {"share": 0}, {"sizes": (2, 8)}, {"which_one": "mean"}):
        check_bounds(Example(**settings))


def test_the_name_is_written_as_an_option_or_after_its_place():
    with pytest.raises(RegardError, match=r"^--which-one must be at least 0, got -1$"):
        check_bounds(Example(which_one=-1), "--")
    with pytest.raises(RegardError, match=r"^--heat must be at least 0.001, got 0.0; use --greedy$"):
        check_bounds(Example(heat=0.0), "--")
    with pytest.raises(RegardError, match=r"^look: which_one must be at least 0, got -1$"):
        check_bounds(Example(which_one=-1), "look: ")


def test_bounds_are_found_inside_other_types():
    assert find_bounds(Annotated[int | None, "help", Bounds(1, 2)]) == Bounds(1, 2)
    assert find_bounds(Annotated[Annotated[int, Bounds(1, 2)] | None, "help"]) == Bounds(1, 2)
    assert find_bounds(tuple[str, ...]) is None
    assert not Bounds(1).is_complete
    assert not Bounds(maximum=1).is_complete
