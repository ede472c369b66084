"""Commands on a run of a language model: predict, evaluate, look, explain, generate."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from regard.errors import RegardError
from regard.tasks.actions import Action, File, Flag, Invocation
from regard.tasks.actions.evaluate import Evaluate
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import Predict
from regard.tasks.actions.remarks import Remarks
from regard.tasks.options import names_of
from regard.tasks.progress import Progress, counted
from regard.tasks.text.options import SEEDS, DrawOptions, WordOptions, WriteOptions

if TYPE_CHECKING:
    from regard.tasks.text.evaluation import TextReport
    from regard.tasks.text.predictor import Text, TextPredictor

BETWEEN = "\n---\n"
"""What stands between two texts."""


@dataclass(frozen=True, kw_only=True)
class PredictText(Predict):
    """Write the log-probability of each line.

    Attributes:
        source: A file of texts, one a line; - is stdin.
        tokens: Also write each token and how much it surprised the model, in nats.
        jsonl: Write a JSON object for each line, with its tokens and their log-probabilities.
    """

    example: ClassVar[str] = "predict runs/book --tokens < lines.txt"
    unit: ClassVar[str] = "lines"

    tokens: Flag = False

    def check_model(self, predictor: TextPredictor) -> None:
        """There is nothing that a text cannot be read by."""

    def answers(self, predictor: TextPredictor, subjects: Sequence[Any], progress: Progress | None) -> list[Any]:
        return predictor.read(subjects, progress)

    def hear(self, remarks: Remarks, predictor: TextPredictor, answer: Any) -> None:
        remarks.hear(predictor.tokenizer.encode(answer.text))


@dataclass(frozen=True, kw_only=True)
class EvaluateText(Evaluate):
    """Score a text: perplexity, bits a character, and the loss by how far back the model could look.

    Attributes:
        text: A file or folder of text.
        documents: What a document is; as the model was trained unless set.
        context: How many tokens are read together; as many as the model can unless set.
        stride: How many of these are scored each time; half of them for gpt unless set.
    """

    example: ClassVar[str] = "evaluate runs/book --text other.txt"

    text: File | None = None
    documents: Literal["file", "line", "blank"] | None = None
    context: int | None = None
    stride: int | None = None

    def check(self) -> None:
        if self.text is None:
            raise RegardError("evaluate: nothing to evaluate on; give a file or folder of text by --text")

    def report(self, predictor: TextPredictor, given: Invocation) -> TextReport:
        from regard.tasks.text.evaluation import evaluate_text_file

        assert self.text is not None
        conditions: dict[str, Any] = {"documents": self.documents, "context": self.context, "stride": self.stride}
        with counted(given.quiet, "tokens") as show:
            return evaluate_text_file(predictor, self.text, **conditions, progress=show)


@dataclass(frozen=True, kw_only=True)
class LookAtText(Look):
    """Show where a language model looks back: in the terminal or, if files are named, in these."""


@dataclass(frozen=True, kw_only=True)
class ExplainWord(Explain, WordOptions):
    """Show how much each word mattered for one after it, by several methods, and their agreement."""


@dataclass(frozen=True, kw_only=True)
class Generate(Action, WriteOptions):
    """Write texts that begin with a prompt.

    Attributes:
        prompt: What the text begins with; - is stdin.
        count: How many texts to draw.
        seed: Of the first text drawn, the others have those that follow; each time another unless set.
        jsonl: Write a JSON object for each text, with its log-probability.
    """

    summary: ClassVar[str] = "Write on with a language model."
    example: ClassVar[str] = 'generate runs/book --prompt "The " --tokens 200'
    instead: ClassVar[str] = 'give what to begin with by --prompt "{words}"'

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    count: int = 1
    jsonl: Flag = False

    def check(self) -> None:
        for name in ("tokens", "top_k", "beam", "nbest", "count"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise RegardError(f"--{name.replace('_', '-')}: {number} is too few; 1 is the least")
        self.check_drawing()
        self.check_together()

    def check_together(self) -> None:
        """Raise a `RegardError` for options that contradict each other."""
        way = "--beam" if self.beam is not None else "--greedy" if self.greedy else None
        drawn = [f"--{name.replace('_', '-')}" for name in self.drawn]
        if self.beam is not None and self.greedy:
            raise RegardError("--greedy: does not go with --beam; a beam of 1 is greedy")
        if way is not None and drawn:
            raise RegardError(f"{way}: does not go with {', '.join(drawn)}; it draws nothing")
        if way is not None and self.count > 1:
            raise RegardError(f"{way}: does not go with --count; it draws nothing, so that all texts would be one")
        if self.nbest is not None and self.beam is None:
            raise RegardError("--nbest: needs --beam; drawn texts are counted by --count")
        if self.nbest is not None and self.beam is not None and self.nbest > self.beam:
            raise RegardError(
                f"--nbest: {self.nbest} best of a beam of {self.beam} are too many; set --beam to {self.nbest} or more"
            )

    def run(self, predictor: TextPredictor, given: Invocation) -> None:
        prompt = from_stdin() if self.prompt == "-" else self.prompt
        if not given.quiet:
            say_unknown(predictor, prompt)
        if self.beam is not None:
            best = predictor.continuations(prompt, tokens=self.tokens, beam=self.beam, nbest=self.nbest or 1)
            between = "\n" if self.jsonl else BETWEEN
            print(*(as_json(text) if self.jsonl else prompt + text.text for text in best), sep=between)
            return
        first = secrets.randbelow(SEEDS) if self.seed is None else self.seed
        for place in range(self.count):
            write = self.write_record if self.jsonl else self.write_text
            write(predictor, prompt, (first + place) % SEEDS, is_last=place + 1 == self.count)
        if self.seed is None and not self.greedy and not given.quiet:
            print(f"drawn with --seed {first}", file=sys.stderr)

    def how(self, seed: int) -> dict[str, Any]:
        """How a text is drawn, as the predictor takes it."""
        return {name: getattr(self, name) for name in names_of(DrawOptions)} | {"seed": seed}

    def write_record(self, predictor: TextPredictor, prompt: str, seed: int, is_last: bool) -> None:
        """Write one text as a line of JSON, with its seed unless nothing was drawn."""
        text = predictor.generate(prompt, **self.how(seed))
        print(as_json(text if self.greedy else replace(text, seed=seed)), flush=True)

    def write_text(self, predictor: TextPredictor, prompt: str, seed: int, is_last: bool) -> None:
        """Write one text, each piece as soon as it is there."""
        pieces = predictor.stream(prompt, **self.how(seed))  # says what is wrong with the prompt
        print(prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print("\n" if is_last else BETWEEN, end="", flush=True)


def from_stdin() -> str:
    """All of stdin, without the end of its last line."""
    from regard.data.formats import read_lines

    return "\n".join(read_lines(Path("-")))


def say_unknown(predictor: TextPredictor, prompt: str) -> None:
    """Say on stderr how much of a prompt the model does not know."""
    from regard.batch import UNKNOWN

    tokens = predictor.tokenizer.encode(prompt)
    if UNKNOWN in tokens:
        unknown = f"{tokens.count(UNKNOWN)} of {len(tokens)} tokens"
        print(f"{unknown} of the prompt are unknown to the model", file=sys.stderr)


def as_json(text: Text) -> str:
    """A text as a JSON object."""
    return json.dumps(text.record(), ensure_ascii=False)
