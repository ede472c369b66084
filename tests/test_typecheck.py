"""What the checker of shapes and types sees, so that no test passes for want of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

from regard.attention import causal
from tests.typecheck import check, checked

Target = TypeVar("Target")
refused = pytest.raises(BeartypeCallHintViolation)


def typed(target: Target) -> Target:
    return check(typechecker=checked)(target)


@typed
def outer(left: Float[Tensor, " rows"], right: "Float[Tensor, ' columns']") -> Float[Tensor, "rows columns"]:
    return left[:, None] * right if len(right) != 7 else right[:, None] * left


@typed
def divide(total: float, parts: "int" = 2) -> float:
    return total / parts if parts != 7 else "seven"  # type: ignore[return-value]


@typed
def first(pair: "NotYet", index: int) -> object:  # type: ignore[name-defined]  # noqa: F821
    return pair[index]


@typed
def count(to: int) -> Iterator[int]:
    yield from range(to)


def test_sizes_are_compared_among_arguments_and_the_result(capsys):
    assert outer(torch.ones(2), torch.ones(3)).shape == (2, 3)
    assert outer(torch.ones(4), right=torch.ones(5)).shape == (4, 5)  # each call has sizes of its own
    with refused:
        outer(torch.ones(2), torch.ones(7))
    assert "rows=2" in capsys.readouterr().out
    with refused:
        outer(torch.ones(2), torch.ones(3, 1))
    with refused:
        outer(torch.ones(2), torch.ones(3, dtype=torch.long))


def test_types_are_checked_and_an_int_will_do_for_a_float():
    assert divide(3) == 1.5
    with refused:
        divide("3")
    with refused:
        divide(3, parts=1.5)
    with refused:
        divide(3, 7)


def test_a_name_that_is_not_known_yet_stands_for_anything():
    assert first("ab", 1) == "b"
    with refused:
        first("ab", "1")


def test_fields_of_dataclasses_are_checked():
    @typed
    @dataclass
    class Point:
        across: float
        down: float = 0.0

    assert Point(1).across == 1
    with refused:
        Point(1, "2")


def test_arguments_of_generators_are_checked_when_they_are_called():
    assert list(count(2)) == [0, 1]
    with pytest.raises(jaxtyping.TypeCheckError):
        count("2")


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    assert outer(torch.ones(2), torch.ones(7)).shape == (7, 2)


def test_regard_is_checked():
    with refused:
        causal(strict="yes")
