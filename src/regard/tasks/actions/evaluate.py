"""`regard evaluate`: score a trained model on data it has not seen."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, runtime_checkable

from cyclopts import Parameter

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.messages import escape_lines
from regard.tasks.actions import FILE_OR_STDIN, Action, Flag, Invocation

if TYPE_CHECKING:
    from regard.metrics import Comparison
    from regard.metrics.gold_attention import GoldAttention


@runtime_checkable
class PrintableReport(Protocol):
    """The result of an evaluation."""

    def lines(self) -> list[str]:
        """Return the report as lines."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Action):
    """Score a run.

    Attributes:
        as_json: Print one JSON object.
    """

    summary: ClassVar[str] = "Score a run on data it has not seen."
    example: ClassVar[str] = "evaluate runs/mine --source t.en --target t.de"
    hint: ClassVar[str] = "pass two files with --source and --target"
    positional: ClassVar[tuple[str, ...]] = ("data",)

    as_json: Annotated[Flag, Parameter("--json")] = False

    @abstractmethod
    def build_report(self, predictor: Any, invocation: Invocation) -> PrintableReport:
        """Score the run."""

    def run(self, predictor: Any, invocation: Invocation) -> None:
        self.print_report(self.build_report(predictor, invocation))

    def print_report(self, report: PrintableReport) -> None:
        """Print a report."""
        if self.as_json:
            print(json.dumps(report.to_json(), ensure_ascii=False))
        else:
            print(escape_lines("\n".join(report.lines())))


@dataclass(frozen=True)
class ReportWithAttention:
    """A report, with the attention on gold words."""

    report: Any  # with the methods of `PrintableReport`
    attention: GoldAttention

    def lines(self) -> list[str]:
        """Return the lines of the report, and a line on the attention."""
        return [*self.report.lines(), str(self.attention)]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {**self.report.to_json(), "gold_attention": self.attention.to_json()}


def add_attention(report: Any, attention: GoldAttention | None) -> Any:
    """Return a report with the attention on gold words, if it was scored."""
    return report if attention is None else ReportWithAttention(report, attention)


@dataclass(frozen=True, kw_only=True)
class BuiltInOptions:
    """Options of an evaluation on new examples of a built-in corpus.

    Attributes:
        count: Number of examples to generate from a built-in corpus (default: 1000, or as many as it has).
        seed: Seed for examples of a built-in corpus (default: the run's seed plus 1).
    """

    count: Annotated[int | None, Bounds(1, 10_000_000)] = None
    seed: Annotated[int | None, Bounds(0, 2**32 - 1)] = None

    def find_corpus(self, predictor: Any, data: str | None) -> str | None:
        """Return the built-in corpus to evaluate on: the one given as data, or that of the training without data."""
        from regard.tasks.built_in import is_built_in

        name = predictor.recipe.data.train if data is None else data
        return name if is_built_in(name, predictor.task_name) else None

    def sample_examples(self, predictor: Any, corpus: str) -> list[Any]:
        """Generate examples of a built-in corpus from its validation split."""
        from regard.tasks.built_in import sample_new_examples

        return sample_new_examples(predictor.recipe, corpus, seed=self.seed, count=self.count)


@dataclass(frozen=True)
class EvaluationResult:
    """The predictions of a run and the gold labels of each text, or spans of each sentence."""

    report: Any
    predictions: Sequence[Collection[Hashable]]
    gold: Sequence[Collection[Hashable]]
    prediction_lines: Sequence[str]  # the predictions as --out writes them


@dataclass(frozen=True)
class ComparisonReport:
    """A report, with a comparison to another run."""

    report: PrintableReport
    comparison: Comparison
    runs: tuple[Path, Path]  # the other one, and the one of the report

    def lines(self) -> list[str]:
        """Return the lines of the report, a line that compares the runs, and a verdict."""
        other, this_run = self.runs
        verdict = self.comparison.describe_verdict(other, this_run)
        return [*self.report.lines(), f"{other} and {this_run}, {self.comparison}", verdict]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        comparison = {**self.comparison.to_json(), "verdict": self.comparison.describe_verdict(*self.runs)}
        return {**self.report.to_json(), "against": comparison}


@dataclass(frozen=True, kw_only=True)
class EvaluateWithComparison(Evaluate, BuiltInOptions):
    """Score the predictions of a run, and compare them to another run if one is given.

    Attributes:
        data: A file in the format of the training data, or a built-in corpus.
        columns: Columns of the file; by default as in the run's recipe.
        against: Another run to compare with, using paired bootstrap.
        out: Write the predictions to this file.
    """

    expected_data: ClassVar[str]  # description of the file to pass as --data

    data: Annotated[str | None, FILE_OR_STDIN] = None
    columns: str | None = None
    against: Path | None = None
    out: Path | None = None

    def load_test_examples(self, predictor: Any) -> list[Any]:
        """Generate new examples of a built-in corpus, or read the file."""
        corpus = self.find_corpus(predictor, self.data)
        if corpus is not None:
            return self.sample_examples(predictor, corpus)
        if self.data is None:
            raise RegardError(f"--data is required: {self.expected_data}")
        return self.read_examples(predictor)

    @abstractmethod
    def read_examples(self, predictor: Any) -> list[Any]:
        """Read the examples of the file."""

    @abstractmethod
    def evaluate(self, predictor: Any, invocation: Invocation) -> EvaluationResult:
        """Predict the data with a run and score the predictions."""

    def build_report(self, predictor: Any, invocation: Invocation) -> PrintableReport:
        return self.evaluate(predictor, invocation).report

    def run(self, predictor: Any, invocation: Invocation) -> None:
        from regard.files import write_text
        from regard.metrics import compare_f1
        from regard.tasks.loading import load_same_task

        other = None if self.against is None else load_same_task(predictor, self.against, invocation)
        result = self.evaluate(predictor, invocation)
        report: PrintableReport = result.report
        if self.against is not None:
            other_result = self.evaluate(other, replace(invocation, run=self.against))
            report = ComparisonReport(
                report,
                compare_f1(other_result.predictions, result.predictions, result.gold),
                (self.against, invocation.run),
            )
        self.print_report(report)
        if self.out is not None:
            write_text(self.out, join_lines(result.prediction_lines))


def parse_columns(columns: str | None, predictor: Any) -> tuple[str, ...]:
    """Split column names at commas; by default return those of the run's recipe."""
    recipe_columns: tuple[str, ...] = predictor.recipe.data.columns
    return recipe_columns if columns is None else tuple(columns.split(","))


@contextmanager
def rename_data_options() -> Iterator[None]:
    """Replace `--data.x` by `--x` in error messages, as the options of this command are named."""
    try:
        yield
    except RegardError as error:
        raise RegardError(str(error).replace("--data.", "--")) from None


def join_lines(lines: Iterable[str]) -> str:
    """Join lines to the content of a file."""
    return "".join(f"{line}\n" for line in lines)
