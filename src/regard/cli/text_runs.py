"""What `regard predict` and `regard evaluate` do with a language model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.counting import after, counted, parts
from regard.cli.devices import chosen_device
from regard.cli.remarks import Remarks
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.text_predictor import Reading

AT_ONCE = 1000
"""Lines read before the first is answered."""


def task_of_run(run: Path) -> str:
    """What a run does: answers (pairs), writes on (text), labels or tags."""
    from regard.run import Run

    return str(Run(run).read_card().get("task"))


def refuse_for_text(command: str, run: Path, options: Mapping[str, object]) -> None:
    """Raise a `RegardError` for an option that a language model has no use for; None and False were not given."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise RegardError(f"{command}: --{name} is for models of pairs; {run} is a language model")


def print_surprises(run: Path, source: Path, *, tokens: bool, jsonl: bool, device: str, quiet: bool) -> None:
    """Write the log-probability of each line, and of each of its tokens if they are asked for."""
    from regard.data.formats import read_lines
    from regard.loading import load_text

    model = load_text(run, chosen_device(device))
    by_hand = source == Path("-") and sys.stdin.isatty()
    done, remarks = 0, Remarks("tokens")
    with counted(quiet, "lines") as show:
        for several in parts(read_lines(source), 1 if by_hand else AT_ONCE):
            for reading in model.read(several, progress=after(done, show)):
                print(json_line(reading) if jsonl else text_line(reading, tokens))
                remarks.count(model.tokenizer.encode(reading.text))
            sys.stdout.flush()
            done += len(several)
    if not quiet:
        remarks.say()


def text_line(reading: Reading, tokens: bool) -> str:
    """The log-probability of a line, and behind tabs each token with its surprise."""
    found = [f"{reading.log_probability:.4f}"]
    if tokens:
        surprise = zip(reading.tokens, reading.log_probabilities, strict=True)
        found += [f"{token} {abs(value):.2f}" for token, value in surprise]
    return "\t".join(found)


def json_line(reading: Reading) -> str:
    """A line that was read as a JSON object."""
    record = {
        "text": reading.text,
        "log_probability": reading.log_probability,
        "tokens": reading.tokens,
        "log_probabilities": reading.log_probabilities,
    }
    return json.dumps(record, ensure_ascii=False)


def print_text_report(
    run: Path,
    text: Path | None,
    documents: Literal["file", "line", "blank"] | None,
    context: int | None,
    stride: int | None,
    *,
    as_json: bool,
    device: str,
    quiet: bool,
) -> None:
    """Score a text and write what was found."""
    from regard.loading import load_text
    from regard.text_evaluation import evaluate_text_file

    if text is None:
        raise RegardError("evaluate: nothing to evaluate on; give a file or folder of text by --text")
    model = load_text(run, chosen_device(device))
    with counted(quiet, "tokens") as show:
        report = evaluate_text_file(model, text, documents=documents, context=context, stride=stride, progress=show)
    print(json.dumps(report.to_json(), ensure_ascii=False) if as_json else "\n".join(report.lines()))
