"""`regard explain`: which words mattered, by attention and by methods that do not ask it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from regard.tasks.actions import Action, Flag, Invocation
from regard.tasks.actions.look import read_text

if TYPE_CHECKING:
    from regard.explaining.explanation import Explanation


@dataclass(frozen=True, kw_only=True)
class Explain(Action):
    """Show how much each word of a text mattered for what a model says of it, by several methods, and their agreement.

    Attributes:
        as_json: Print one JSON object.
        html: Also write the words, shaded by each method, into this file, a page that needs nothing else.
    """

    summary: ClassVar[str] = "Show which words mattered: attention beside other explanations."
    example: ClassVar[str] = 'explain runs/questions "Who wrote Emma ?"'
    instead: ClassVar[str] = "put quotes around the text"
    reads_text: ClassVar[bool] = True

    as_json: Annotated[Flag, Parameter("--json")] = False
    html: Path | None = None

    def run(self, predictor: Any, given: Invocation) -> None:
        from regard.explaining.methods import explained

        found = explained(predictor.explain(read_text(given.text), self))
        print(json.dumps(found.to_json(), ensure_ascii=False) if self.as_json else "\n".join(found.lines()))
        if self.html is not None:
            write_page(self.html, found)


def write_page(path: Path, found: Explanation) -> None:
    """The words once for each method, shaded by its magnitudes."""
    from regard.files import write_text
    from regard.views.words import words_page

    texts = [
        (found.words, found.shares(method), f"{found.what}: {method}, as shares of the sum of all magnitudes")
        for method in found.values
    ]
    write_text(path, words_page(texts))
