"""Options of requests, look and explain for classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from regard.bounds import Bounds, check_bounds
from regard.maps.options import LookOptions
from regard.tasks.actions import OptionalText

OptionalTexts = Annotated[tuple[str, ...] | None, Parameter(allow_leading_hyphen=True)]
"""Texts that may begin with a hyphen."""


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options of the ranking of labels.

    Attributes:
        nbest: Number of labels to rank; predicted labels are always included.
        threshold: Minimum probability of a label, for models with several labels per text; by default tuned on the
            validation data.
    """

    nbest: Annotated[int, Bounds(1, 1000)] = 1
    threshold: Annotated[float | None, Bounds(0, 1)] = None

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class ExtraTextOptions:
    """Texts that come with the text to classify.

    Attributes:
        second: The second text, for a model of text pairs.
        context: The previous texts, oldest first, for a model of dialogues.
    """

    second: OptionalText = None
    context: OptionalTexts = None


@dataclass(frozen=True, kw_only=True)
class LabelLookOptions(LookOptions, ExtraTextOptions):
    """Options of `look` for a classifier.

    Attributes:
        kind: pooling (the weight of each word) or self (attention between words); by default the first that the
            model has.
    """


@dataclass(frozen=True, kw_only=True)
class LabelExplainOptions(ExtraTextOptions):
    """Options of `explain` for a classifier.

    Attributes:
        label: The label to explain; by default the most probable one.
    """

    label: str | None = None
