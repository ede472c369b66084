"""`regard predict`: answer each line of a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import Action, File, Flag, Invocation
from regard.tasks.actions.warnings import Warnings
from regard.tasks.progress import Progress, iter_chunks, offset_progress, show_counter

AT_ONCE = 2000
"""Number of inputs to read before answering: enough to sort them by length, few enough for endless streams."""

Shaded = tuple[Sequence[str], Sequence[float], str]
"""Words, their weights, and a title."""


@dataclass(frozen=True, kw_only=True)
class Predict(Action):
    """Answer each line of a file.

    Attributes:
        text: Text to predict for, instead of a file; - is stdin.
        source: File with one text per line; - is stdin.
        jsonl: Print one JSON object per text.
    """

    summary: ClassVar[str] = "Print the target, labels, tags or log-probability of each line."
    example: ClassVar[str] = "predict runs/dates --beam 5 < in.txt > out.txt"
    hint: ClassVar[str] = "put quotes around the text"
    positional: ClassVar[tuple[str, ...]] = ("text",)
    unit: ClassVar[str] = "texts"  # unit of the counter
    token_name: ClassVar[str] = "tokens"

    text: str | None = None
    source: File = Path("-")
    jsonl: Flag = False

    def check(self) -> None:
        if self.text is not None and self.source != Path("-"):
            raise RegardError("TEXT cannot be combined with --source")
        if self.text is not None and os.path.isfile(self.text):
            raise RegardError(f"{self.text} is a file; pass it with --source {self.text}")

    def read_lines(self) -> Iterator[str]:
        """Yield the given text, or the lines of the source."""
        from regard.data.formats import read_lines

        return read_lines(self.source) if self.text in (None, "-") else iter([str(self.text)])

    def iter_inputs(self, predictor: Any) -> Iterator[Any]:
        """Yield the inputs of the predictor; None for a line without an answer."""
        return self.read_lines()

    def compute_answers(self, predictor: Any, inputs: Sequence[Any], progress: Progress | None) -> list[Any]:
        """Answer a list of inputs."""
        from regard.tasks.predictor import Request

        requests = [Request(input_, self) for input_ in inputs]
        return predictor.answer(requests, return_weights=self.needs_weights(predictor), progress=progress)

    def needs_weights(self, predictor: Any) -> bool:
        """Return whether attention weights are needed."""
        return False

    def get_chunk_size(self, predictor: Any) -> int:
        """Return the number of inputs to read before answering."""
        return 1 if self.source == Path("-") and sys.stdin.isatty() else AT_ONCE

    def check_model(self, predictor: Any) -> None:
        """Raise a `RegardError` for options that the model does not support, before any line is read."""
        if self.needs_weights(predictor):
            predictor.check_attention()
        predictor.check(self)

    def format_answer(self, predictor: Any, answer: Any, number: int) -> str:
        """Format the answer to an input, counted from 1, for printing; None stands for a line without an answer."""
        return json.dumps(answer.record(), ensure_ascii=False) if self.jsonl else "\n".join(answer.lines(self))

    def update_warnings(self, warnings: Warnings, predictor: Any, answer: Any) -> None:
        """Add the input of an answer to the warnings."""
        return

    def describe_long_inputs(self, predictor: Any, inputs: Sequence[Any], first: int) -> str | None:
        """Describe the inputs, counted from `first`, that are longer than any in training; None if there are none."""
        return None

    def run(self, predictor: Any, invocation: Invocation) -> None:
        self.check_model(predictor)
        warnings, shaded, done, number = Warnings(self.token_name), list[Shaded](), 0, 0
        long_inputs = None  # described once
        with show_counter(invocation.quiet, self.unit) as show:
            for chunk in iter_chunks(self.iter_inputs(predictor), self.get_chunk_size(predictor)):
                if long_inputs is None and not invocation.quiet:
                    long_inputs = self.describe_long_inputs(predictor, chunk, number + 1)
                    if long_inputs is not None:
                        print_message(long_inputs)
                nonempty = [input_ for input_ in chunk if input_ is not None]
                answers = iter(self.compute_answers(predictor, nonempty, offset_progress(done, show)))
                for input_ in chunk:
                    answer = None if input_ is None else next(answers)
                    number += 1
                    print(self.format_answer(predictor, answer, number))
                    if answer is not None:
                        self.update_warnings(warnings, predictor, answer)
                        shaded += self.get_shaded_words(answer)
                sys.stdout.flush()
                done += len(nonempty)
        self.finish(shaded, invocation)
        if not invocation.quiet:
            warnings.print_all()

    def get_shaded_words(self, answer: Any) -> Sequence[Shaded]:
        """Return the shaded words of an answer for --html; empty without --html."""
        return ()

    def finish(self, shaded: Sequence[Shaded], invocation: Invocation) -> None:
        """Finish after all lines are answered."""
        return


@dataclass(frozen=True, kw_only=True)
class PredictFromWords(Predict):
    """Answer each line with a model that has weights of words.

    Attributes:
        why: Also show the words, shaded by their attention weights.
        html: Write a self-contained HTML page with the shaded words.
    """

    why: Flag = False
    html: Path | None = None

    def needs_weights(self, predictor: Any) -> bool:
        return self.why or self.html is not None or (self.jsonl and predictor.has_word_weights)

    def get_shaded_words(self, answer: Any) -> Sequence[Shaded]:
        return () if self.html is None else answer.shaded_words()

    def finish(self, shaded: Sequence[Shaded], invocation: Invocation) -> None:
        if self.html is None:
            return
        from regard.files import write_text
        from regard.views.words import build_words_page

        write_text(self.html, build_words_page(shaded))
        if not invocation.quiet:
            print_message(f"wrote {self.html}")


def require_single_line(lines: Iterator[str]) -> Iterator[str]:
    """Return the only line; raise a `RegardError` if there are none or more."""
    first = list(islice(lines, 2))
    if len(first) != 1:
        raise RegardError(f"--picture: expected one source line, got {'more' if first else 'none'}")
    return iter(first)


def to_single_line(text: str) -> str:
    """Replace line breaks by spaces."""
    return text.replace("\n", " ").replace("\r", " ")
