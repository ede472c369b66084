"""The commands predict, look and explain for runs of the task pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.maps.options import TargetLookOptions
from regard.messages import print_message
from regard.tasks.actions import Flag, Invocation, OptionalText
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import Predict, require_single_line
from regard.tasks.actions.warnings import Warnings
from regard.tasks.pairs.options import PairExplainOptions, SearchOptions

if TYPE_CHECKING:
    from regard.text import Tokenizer

NBEST_COLUMNS = ("source number", "score (log-probability / length penalty)", "log-probability", "target")


@dataclass(frozen=True, kw_only=True)
class PredictPairs(Predict, SearchOptions):
    """Predict a target for each line.

    Attributes:
        source: File of sources, one per line; - for stdin. Columns that were joined are separated by tabs.
        nbest: Number of targets per source, best first. Above 1, each line has the number of the source, the score that
            ranks the targets (log-probability / length penalty), the log-probability and the target, separated by tabs.
        log_probabilities: Prefix each target with its log-probability and a tab.
        jsonl: Write one JSON object per source, with tokens, log-probabilities and alternatives.
        weights: Include attention weights in the JSON, indexed by layer, head, target and source token; requires
            --jsonl.
        draw: Draw the attention map of the best target below it.
        picture: Save the attention map to this file (.png, .svg or .pdf); requires a single source.
    """

    unit: ClassVar[str] = "sources"
    token_name: ClassVar[str] = "source tokens"

    log_probabilities: Flag = False
    weights: Flag = False
    draw: Flag = False
    picture: Path | None = None

    def check(self) -> None:
        super().check()
        from regard.views.matrix import check_suffix

        if self.weights and not self.jsonl:
            raise RegardError("--weights requires --jsonl")
        if self.draw and self.jsonl:
            raise RegardError("--draw cannot be combined with --jsonl; use --weights instead")
        if self.picture is not None:
            check_suffix(self.picture)

    def needs_weights(self, predictor: Any) -> bool:
        return self.weights or self.draw or self.picture is not None

    def iter_inputs(self, predictor: Any) -> Iterator[Any]:
        lines = super().iter_inputs(predictor)
        if self.text is None:
            lines = iter_checked_lines(lines, predictor.tokenizers.source, self.source)
        return lines if self.picture is None else require_single_line(lines)

    def describe_long_inputs(self, predictor: Any, inputs: Sequence[str], first: int) -> str | None:
        limit = predictor.recipe.data.max_tokens
        lengths = [len(predictor.tokenizers.source.encode(text)) for text in inputs]
        long = [index for index, length in enumerate(lengths) if length > limit]
        if not long:
            return None
        more = f" ({len(long):,} such lines so far)" if len(long) > 1 else ""
        return (
            f"note: line {first + long[0]:,} has {lengths[long[0]]:,} tokens, training had at most {limit:,}{more}; "
            "the prediction may be slow and poor"
        )

    def run(self, predictor: Any, invocation: Invocation) -> None:
        self.check_model(predictor)
        if self.nbest > 1 and not self.jsonl and not invocation.quiet:
            print_message(f"columns: {', '.join(NBEST_COLUMNS)}")
        super().run(predictor, invocation)

    def format_answer(self, predictor: Any, answer: Any, number: int) -> str:
        if self.picture is not None:
            predictor.attention_map(answer).save_picture(self.picture)
        if self.jsonl and not self.weights:
            return json.dumps(remove_weights(answer.record()), ensure_ascii=False)
        drawing = f"\n{predictor.attention_map(answer).draw()}\n" if self.draw else ""
        lines = super().format_answer(predictor, answer, number)
        if self.nbest > 1 and not self.jsonl:
            lines = "\n".join(f"{number}\t{line}" for line in lines.split("\n"))
        return lines + drawing

    def update_warnings(self, warnings: Warnings, predictor: Any, answer: Any) -> None:
        add_source(warnings, predictor, answer)


def iter_checked_lines(lines: Iterator[str], tokenizer: Tokenizer, path: Path) -> Iterator[str]:
    """Yield the lines of a file; raise a `RegardError` with the line number if one lacks a column."""
    from regard.data.formats.lines import format_path

    for number, line in enumerate(lines, start=1):
        try:
            tokenizer.check_text(line)
        except RegardError as error:
            raise RegardError(f"{format_path(path)}, line {number}: {error}") from None
        yield line


def add_source(warnings: Warnings, predictor: Any, answer: Any) -> None:
    """Add the source of a prediction to the warnings."""
    from regard.batch import UNKNOWN
    from regard.text.column_tokenizer import ColumnTokenizer

    tokenizer, source = predictor.tokenizers.source, answer.source
    warnings.add_line(answer.pair.source, "" if isinstance(tokenizer, ColumnTokenizer) else source)
    if UNKNOWN in answer.pair.source:
        warnings.add_unknown_names(tokenizer.find_unknown_tokens(source))


def remove_weights(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without weights, which may have been computed only for a picture."""
    targets = [
        {name: value for name, value in target.items() if name != "weights"} for target in record["alternatives"]
    ]
    return {"source": record["source"], **targets[0], "alternatives": targets}


@dataclass(frozen=True, kw_only=True)
class LookAtPair(Look, TargetLookOptions):
    """Show where a model looks, in the terminal or in the given files.

    Attributes:
        kind: Attention to show: cross (target to source), or encoder or decoder of a Transformer (default: the first
            the model has).
    """

    target: OptionalText = None


@dataclass(frozen=True, kw_only=True)
class ExplainTarget(Explain, PairExplainOptions):
    """Show how much each source word mattered for the target, by several methods, and how well they agree."""
