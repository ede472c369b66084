"""`regard explain`: which words mattered, by attention and by other attribution methods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from regard.messages import print_message
from regard.tasks.actions import Action, Flag, Invocation
from regard.tasks.actions.look import read_text

if TYPE_CHECKING:
    from regard.attribution.explanation import Explanation


@dataclass(frozen=True, kw_only=True)
class Explain(Action):
    """Show how much each word of a text mattered for a prediction, by several methods, and how well they agree.

    Attributes:
        as_json: Print one JSON object.
        html: Also write a self-contained HTML page with the words shaded by each method.
    """

    summary: ClassVar[str] = "Show which words mattered: attention compared with other methods."
    example: ClassVar[str] = 'explain runs/questions "Who wrote Emma ?"'
    hint: ClassVar[str] = "put quotes around the text"
    takes_ensemble: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True

    as_json: Annotated[Flag, Parameter("--json")] = False
    html: Path | None = None

    def run(self, predictor: Any, invocation: Invocation) -> None:
        explanation = predictor.explain(read_text(invocation.text), self)
        print(
            json.dumps(explanation.to_json(), ensure_ascii=False)
            if self.as_json
            else "\n".join(explanation.format_lines())
        )
        if self.html is not None:
            write_explanation_page(self.html, explanation)
            if not invocation.quiet:
                print_message(f"wrote {self.html}")


def write_explanation_page(path: Path, explanation: Explanation) -> None:
    """Write a page with the words once for each method, shaded by magnitude."""
    from regard.files import write_text
    from regard.views.words import build_words_page

    texts = [
        (
            explanation.words,
            explanation.compute_shares(method),
            f"{explanation.description}: {method}, as shares of the sum of all magnitudes",
        )
        for method in explanation.values
    ]
    write_text(path, build_words_page(texts))
