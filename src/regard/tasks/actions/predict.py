"""`regard predict`: lines in, answers out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import RegardError
from regard.tasks.actions import Action, File, Flag, Invocation
from regard.tasks.actions.remarks import Remarks
from regard.tasks.progress import Progress, after, counted, parts

AT_ONCE = 2000
"""Subjects read before the first is answered: enough to sort them by length, few enough for a stream of any size."""

Shaded = tuple[Sequence[str], Sequence[float], str]
"""Words, the weight of each, and a title."""


@dataclass(frozen=True, kw_only=True)
class Predict(Action):
    """Answer each line of a file.

    Attributes:
        source: A file of texts, one a line; - is stdin.
        jsonl: Write a JSON object for each text.
    """

    summary: ClassVar[str] = "Write the target, labels or tags, or the log-probability, of each line."
    example: ClassVar[str] = "predict runs/dates --beam 5 < in.txt > out.txt"
    instead: ClassVar[str] = "give the file by --source {first}, or < {first}"
    unit: ClassVar[str] = "texts"  # what is counted
    tokens_of: ClassVar[str] = "tokens"

    source: File = Path("-")
    jsonl: Flag = False

    def subjects(self, predictor: Any) -> Iterator[Any]:
        """What to answer, in the form its predictor reads; None for a line that has no answer."""
        from regard.data.formats import read_lines

        return read_lines(self.source)

    def answers(self, predictor: Any, subjects: Sequence[Any], progress: Progress | None) -> list[Any]:
        """The answers to some subjects."""
        from regard.tasks.predictor import Request

        requests = [Request(subject, self) for subject in subjects]
        return predictor.answer(requests, return_weights=self.weighed(predictor), progress=progress)

    def weighed(self, predictor: Any) -> bool:
        """Whether attention weights are needed."""
        return False

    def at_once(self, predictor: Any) -> int:
        """How many subjects are read before the first is answered."""
        return 1 if self.source == Path("-") and sys.stdin.isatty() else AT_ONCE

    def check_model(self, predictor: Any) -> None:
        """Raise a `RegardError` for options that this model cannot answer by, before any line is read."""
        if self.weighed(predictor):
            predictor.check_attention()
        predictor.check(self)

    def write(self, predictor: Any, answer: Any) -> str:
        """What is written of an answer; None is the answer to a line that has none."""
        return json.dumps(answer.record(), ensure_ascii=False) if self.jsonl else "\n".join(answer.lines(self))

    def hear(self, remarks: Remarks, predictor: Any, answer: Any) -> None:
        """Tell the remarks of what was read for an answer."""
        return

    def run(self, predictor: Any, given: Invocation) -> None:
        self.check_model(predictor)
        remarks, shaded, done = Remarks(self.tokens_of), list[Shaded](), 0
        with counted(given.quiet, self.unit) as show:
            for some in parts(self.subjects(predictor), self.at_once(predictor)):
                present = [subject for subject in some if subject is not None]
                answers = iter(self.answers(predictor, present, after(done, show)))
                for subject in some:
                    answer = None if subject is None else next(answers)
                    print(self.write(predictor, answer))
                    if answer is not None:
                        self.hear(remarks, predictor, answer)
                        shaded += self.shaded(answer)
                sys.stdout.flush()
                done += len(present)
        self.finish(shaded, given)
        if not given.quiet:
            remarks.say()

    def shaded(self, answer: Any) -> Sequence[Shaded]:
        """The words of an answer for a page of shaded words, where one was asked for."""
        return ()

    def finish(self, shaded: Sequence[Shaded], given: Invocation) -> None:
        """Do what is left when all lines are answered."""
        return


@dataclass(frozen=True, kw_only=True)
class PredictFromWords(Predict):
    """Answer each line by a model that weighs words.

    Attributes:
        why: Also show the words, shaded by their attention weights.
        html: Write the shaded words into this file, a page that needs nothing else.
    """

    why: Flag = False
    html: Path | None = None

    def weighed(self, predictor: Any) -> bool:
        return self.why or self.html is not None or (self.jsonl and predictor.weighs)

    def shaded(self, answer: Any) -> Sequence[Shaded]:
        return () if self.html is None else answer.shaded()

    def finish(self, shaded: Sequence[Shaded], given: Invocation) -> None:
        if self.html is None:
            return
        from regard.files import write_text
        from regard.views.words import words_page

        write_text(self.html, words_page(shaded))
        if not given.quiet:
            print(f"written: {self.html}", file=sys.stderr)


def only_line(lines: Iterator[str]) -> Iterator[str]:
    """The only line there is, or a `RegardError`."""
    first = list(islice(lines, 2))
    if len(first) != 1:
        raise RegardError(f"--picture: there is {'more than one source' if first else 'no source'}; give one line")
    return iter(first)


def in_line(text: str) -> str:
    """A text that stays on its line, whatever the model wrote."""
    return text.replace("\n", " ").replace("\r", " ")
