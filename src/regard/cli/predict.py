"""`regard predict`: sources in, targets out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.devices import chosen_device
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.predictor import Prediction

AT_ONCE = 2000
"""Sources read before the first is answered: enough to sort them by length, few enough for a stream of any size."""


def predict(
    run: Path,
    /,
    *,
    source: Path = Path("-"),
    beam: int | None = None,
    nbest: int = 1,
    length_penalty: float | None = None,
    longest: int | None = None,
    log_probabilities: bool = False,
    jsonl: bool = False,
    weights: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Write the target of each line.

    Args:
        run: A run folder made by regard train.
        source: A file of sources, one a line; - is stdin.
        beam: Hypotheses kept at each step, 1 is greedy; as in the run's recipe unless set.
        nbest: Targets for each source, the best first, one a line.
        length_penalty: 0 prefers short targets; as in the run's recipe unless set.
        longest: Tokens of a target at the most.
        log_probabilities: Put the log-probability and a tab before each target.
        jsonl: Write a JSON object for each source, with tokens and alternatives.
        weights: With --jsonl, also write the attention: layers, heads, target, source.
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress.
    """
    from regard.data.formats import read_lines
    from regard.predictor import load

    if weights and not jsonl:
        raise RegardError("--weights: needs --jsonl; a line of text has no room for them")
    if nbest < 1:
        raise RegardError(f"--nbest is {nbest}; 1 is the least")
    model = load(run, chosen_device(device))
    lines = read_lines(source)
    with counted(quiet) as progress:
        while several := list(islice(lines, AT_ONCE)):
            found = model.predict(
                several,
                beam=beam,
                nbest=nbest,
                length_penalty=length_penalty,
                longest=longest,
                return_weights=weights,
                progress=progress,
            )
            for prediction in found:
                write(prediction, log_probabilities=log_probabilities, jsonl=jsonl)


def write(prediction: Prediction, *, log_probabilities: bool, jsonl: bool) -> None:
    """One prediction to stdout."""
    if jsonl:
        alternatives = [record(each) for each in prediction.alternatives]
        print(
            json.dumps(
                {"source": prediction.source, **alternatives[0], "alternatives": alternatives[1:]}, ensure_ascii=False
            )
        )
        return
    for each in prediction.alternatives:
        print(f"{each.log_probability:.4f}\t{in_line(each.text)}" if log_probabilities else in_line(each.text))


def in_line(text: str) -> str:
    """A text that stays on its line, whatever the model wrote."""
    return text.replace("\n", " ").replace("\r", " ")


def record(prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON has it."""
    found: dict[str, Any] = {
        "text": prediction.text,
        "log_probability": prediction.log_probability,
        "source_tokens": prediction.source_tokens,
        "target_tokens": prediction.target_tokens,
    }
    if prediction.weights is not None:
        found["weights"] = prediction.weights.tolist()
    return found


@contextmanager
def counted(quiet: bool) -> Iterator[Any]:
    """A count of what is done, on a terminal that shows it."""
    if quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f} sources"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        before, last = 0, 0

        def progress(done: int) -> None:
            nonlocal before, last
            before += last if done < last else 0  # a new part of the stream counts from the start
            last = done
            bar.update(task, completed=before + done)

        yield progress
