"""`regard evaluate`: how good a trained model is on data it has not seen."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from cyclopts import Parameter

from regard.errors import RegardError
from regard.tasks.actions import STDIN_TOO, Action, Flag, Invocation


@runtime_checkable
class Report(Protocol):
    """What an evaluation found."""

    def lines(self) -> list[str]:
        """All of it, a line each."""

    def to_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Action):
    """Score a run.

    Attributes:
        as_json: Print one JSON object.
    """

    summary: ClassVar[str] = "Score a run on data it has not seen."
    example: ClassVar[str] = "evaluate runs/mine --source t.en --target t.de"
    instead: ClassVar[str] = "give the file by --data {first} or --text {first}, or two by --source and --target"

    as_json: Annotated[Flag, Parameter("--json")] = False

    @abstractmethod
    def report(self, predictor: Any, given: Invocation) -> Report:
        """Score the run."""

    def run(self, predictor: Any, given: Invocation) -> None:
        self.show(self.report(predictor, given))

    def show(self, report: Report) -> None:
        """Print a report."""
        print(json.dumps(report.to_json(), ensure_ascii=False) if self.as_json else "\n".join(report.lines()))


@dataclass(frozen=True)
class Findings:
    """What a run found in data, beside what is there: the labels of each text, or the spans of each sentence."""

    report: Any
    found: Sequence[Collection[Hashable]]
    gold: Sequence[Collection[Hashable]]
    lines: Sequence[str]  # the predictions, as --out has them


@dataclass(frozen=True)
class Compared:
    """A report, and how another run compares with it."""

    report: Report
    comparison: Any
    runs: tuple[Path | str, Path | str]

    def lines(self) -> list[str]:
        """The report, and a line on the other run below it."""
        other, own = self.runs
        return [*self.report.lines(), f"{other} and {own}, {self.comparison}"]

    def to_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {**self.report.to_json(), "against": self.comparison.to_json()}


@dataclass(frozen=True, kw_only=True)
class EvaluateFindings(Evaluate):
    """Score what a run finds in texts, beside another run if one is given.

    Attributes:
        data: A file like that of the training.
        columns: Its columns; as in the run's recipe unless set.
        against: Another run to compare with, by paired bootstrap.
        out: Write the predictions to this file.
    """

    wanted: ClassVar[str]  # what --data is a file of

    data: Annotated[str | None, STDIN_TOO] = None
    columns: str | None = None
    against: Path | None = None
    out: Path | None = None

    def check(self) -> None:
        if self.data is None:
            raise RegardError(f"evaluate: nothing to evaluate on; give {self.wanted} by --data")

    @abstractmethod
    def findings(self, predictor: Any, given: Invocation) -> Findings:
        """What a run finds in the data."""

    def report(self, predictor: Any, given: Invocation) -> Report:
        return self.findings(predictor, given).report

    def run(self, predictor: Any, given: Invocation) -> None:
        from regard.files import write_text
        from regard.metrics import compare_found
        from regard.tasks.loading import load_like

        other = None if self.against is None else load_like(predictor, self.against, given)
        ours = self.findings(predictor, given)
        report: Report = ours.report
        if self.against is not None:
            theirs = self.findings(other, replace(given, run=self.against))
            report = Compared(report, compare_found(theirs.found, ours.found, ours.gold), (self.against, given.run))
        self.show(report)
        if self.out is not None:
            write_text(self.out, as_file(ours.lines))


def columns_of(columns: str | None, predictor: Any) -> tuple[str, ...]:
    """The columns that are named, with commas between; those of the run's recipe unless there are any."""
    return predictor.recipe.data.columns if columns is None else tuple(columns.split(","))


@contextmanager
def own_options() -> Iterator[None]:
    """Say what is wrong with data in the options of this command, whose names have no section before them."""
    try:
        yield
    except RegardError as error:
        raise RegardError(str(error).replace("--data.", "--")) from None


def as_file(lines: Iterable[str]) -> str:
    """The content of a file of these lines."""
    return "".join(f"{line}\n" for line in lines)
