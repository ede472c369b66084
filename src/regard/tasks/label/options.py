"""What a request to label a text, a look at one and an explanation can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from regard.looking.options import LookOptions
from regard.settings import Between
from regard.tasks.actions import Given

Texts = Annotated[tuple[str, ...] | None, Parameter(allow_leading_hyphen=True)]
"""Texts, which may begin with a hyphen."""


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Which labels are given.

    Attributes:
        nbest: How many labels to rank; those that a text has are ranked in any case.
        threshold: Of several labels, how probable they must be; as tuned on the validation data unless set.
    """

    nbest: Annotated[int, Between(1, 1000)] = 1
    threshold: Annotated[float | None, Between(0, 1)] = None


@dataclass(frozen=True, kw_only=True)
class BesideOptions:
    """What a text is read with.

    Attributes:
        second: For a model of pairs of texts, the second text.
        context: For a model of dialogues, the texts before, the oldest first.
    """

    second: Given = None
    context: Texts = None


@dataclass(frozen=True, kw_only=True)
class LabelLookOptions(LookOptions, BesideOptions):
    """What a look at a classifier can be told.

    Attributes:
        kind: pooling (how much each word of the text counts) or self (between words); the first that the model has
            unless set.
    """


@dataclass(frozen=True, kw_only=True)
class LabelExplainOptions(BesideOptions):
    """What of a text is explained.

    Attributes:
        label: The label to explain; the one that the model gives unless set.
    """

    label: str | None = None
