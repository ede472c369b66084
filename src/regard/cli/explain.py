"""`regard explain`: which words mattered, by attention and by methods that do not ask it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.options import Flag

if TYPE_CHECKING:
    from regard.explaining import Explanation

Given = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""A text, which may begin with a hyphen."""


def explain(
    run: Path,
    text: Given = None,
    /,
    *,
    target: Given = None,
    word: int | None = None,
    label: str | None = None,
    second: Given = None,
    context: Annotated[list[str] | None, Parameter(allow_leading_hyphen=True)] = None,
    as_json: Annotated[Flag, Parameter("--json")] = False,
    html: Path | None = None,
    device: str = "auto",
) -> None:
    """Show how much each word of a text mattered for what a model says of it, by several methods, and their agreement.

    Args:
        run: A run folder made by regard train.
        text: The text; stdin unless given.
        target: Of a model of pairs, the target to explain; the one it predicts unless set.
        word: Which word to explain, counted from 0: of the target (all of it unless set), of the text that a language
            model reads (its last), or of the words to tag (the first whose tag is not O).
        label: The label or tag to explain; the one the model gives unless set.
        second: Of a classifier of pairs, the second text.
        context: Of a classifier of dialogues, a text before, the oldest first; may be given several times.
        as_json: Print one JSON object.
        html: Also write the words, shaded by each method, into this file, a page that needs nothing else.
        device: auto, cpu, cuda, cuda:1.
    """
    from regard.explaining import explain as explained
    from regard.loading import load

    model = load(run, chosen_device(device))
    found = explained(
        model,
        sys.stdin.read().strip() if text in (None, "-") else text,
        target=target,
        word=word,
        label=label,
        second=second,
        context=context,
    )
    print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else "\n".join(found.lines()))
    if html is not None:
        write_page(html, found)


def write_page(path: Path, found: Explanation) -> None:
    """The words once for each method, shaded by its magnitudes."""
    from regard.files import write_text
    from regard.views.words import words_page

    texts = [
        (found.words, found.shares(method), f"{found.what}: {method}, as shares of the sum of all magnitudes")
        for method in found.values
    ]
    write_text(path, words_page(texts))
