"""What evaluating and aligning pairs share: the attention of a run, and gold links to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import Attended, Gold
    from regard.data.example import Example
    from regard.tasks.pairs.predictor import PairPredictor, Prediction


def attended_of(prediction: Prediction) -> Attended:
    """The weights of a prediction and the words of its tokens."""
    from regard.alignment import Attended

    assert prediction.weights is not None
    return Attended(prediction.weights, prediction.source_words, prediction.target_words)


def apart(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """Sources and targets."""
    return [example.source for example in examples], [example.target for example in examples]


def attend_to(model: PairPredictor, examples: Sequence[Example]) -> list[Attended]:
    """Where a model looks while it reads given targets."""
    return [attended_of(each) for each in model.force(*apart(examples), return_weights=True)]


def check_gold(path: Path, gold: Sequence[Gold], attended: Sequence[Attended]) -> None:
    """Raise a `RegardError` for a link to a word that there is not."""
    for number, (links, each) in enumerate(zip(gold, attended, strict=True), start=1):
        for side, words, places in (
            ("source", each.source_words, [source for source, _ in links.possible]),
            ("target", each.target_words, [target for _, target in links.possible]),
        ):
            count = len({word for word in words if word is not None})
            if places and max(places) >= count:
                raise RegardError(
                    f"{path}, line {number}: links word {max(places)} of the {side}, counted from 0, where there are "
                    f"{count}; are they counted from 1 (--gold-base 1), or cut into words otherwise?"
                )


def shifts_of(shift: int | None) -> tuple[int, ...]:
    """The shifts to try: all unless one was asked for."""
    from regard.alignment import SHIFTS

    return SHIFTS if shift is None else (shift,)
