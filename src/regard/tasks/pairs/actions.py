"""Commands on a run that answers sources by targets: predict, look, explain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import RegardError
from regard.looking.options import TargetLookOptions
from regard.tasks.actions import Flag, Given
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import Predict, only_line
from regard.tasks.actions.remarks import Remarks
from regard.tasks.pairs.options import SearchOptions, TargetOptions


@dataclass(frozen=True, kw_only=True)
class PredictPairs(Predict, SearchOptions):
    """Write the target of each line.

    Attributes:
        source: A file of sources, one a line; - is stdin.
        nbest: Targets for each source, the best first, one a line; empty lines where there are no more.
        log_probabilities: Put the log-probability and a tab before each target.
        jsonl: Write a JSON object for each source, with tokens, log-probabilities and alternatives.
        weights: With --jsonl, also write the attention: layers, heads, target, source.
        draw: Draw the attention of each source's best target beneath it.
        picture: Of one source, draw the attention into this file: .png, .svg or .pdf.
    """

    unit: ClassVar[str] = "sources"
    tokens_of: ClassVar[str] = "source tokens"

    log_probabilities: Flag = False
    weights: Flag = False
    draw: Flag = False
    picture: Path | None = None

    def check(self) -> None:
        from regard.views.matrix import check_ending

        if self.weights and not self.jsonl:
            raise RegardError("--weights: needs --jsonl; a line of text has no room for them")
        if self.draw and self.jsonl:
            raise RegardError("--draw: does not go with --jsonl; ask for --weights there")
        if self.picture is not None:
            check_ending(self.picture)

    def weighed(self, predictor: Any) -> bool:
        return self.weights or self.draw or self.picture is not None

    def subjects(self, predictor: Any) -> Iterator[Any]:
        lines = super().subjects(predictor)
        return lines if self.picture is None else only_line(lines)

    def write(self, predictor: Any, answer: Any) -> str:
        if self.picture is not None:
            predictor.attention_map(answer).picture(self.picture)
        if self.jsonl and not self.weights:
            return json.dumps(without_weights(answer.record()), ensure_ascii=False)
        drawing = f"\n{predictor.attention_map(answer).draw()}\n" if self.draw else ""
        return super().write(predictor, answer) + drawing

    def hear(self, remarks: Remarks, predictor: Any, answer: Any) -> None:
        remarks.hear(answer.pair.source, answer.source)


def without_weights(record: dict[str, Any]) -> dict[str, Any]:
    """A record without weights, which may have been needed for a picture alone."""
    targets = [{name: value for name, value in each.items() if name != "weights"} for each in record["alternatives"]]
    return {"source": record["source"], **targets[0], "alternatives": targets}


@dataclass(frozen=True, kw_only=True)
class LookAtPair(Look, TargetLookOptions):
    """Show where a model looks: in the terminal or, if files are named, in these.

    Attributes:
        kind: Which attention: cross (from target to source), encoder or decoder of a Transformer; the first that the
            model has unless set.
    """

    target: Given = None


@dataclass(frozen=True, kw_only=True)
class ExplainTarget(Explain, TargetOptions):
    """Show how much each word of a source mattered for its target, by several methods, and their agreement."""
