"""The commands predict, evaluate, look, explain and generate for runs of the task text."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import Action, File, Flag, Invocation
from regard.tasks.actions.evaluate import BuiltInOptions, ComparisonReport, Evaluate
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import Predict
from regard.tasks.actions.warnings import Warnings
from regard.tasks.options import get_field_names
from regard.tasks.progress import Progress, show_counter
from regard.tasks.text.options import SEEDS, GenerationOptions, SamplingOptions, TextExplainOptions

if TYPE_CHECKING:
    from regard.data.documents import Documents
    from regard.tasks.text.evaluation import ScoredFile, TextReport
    from regard.tasks.text.predictor import GeneratedText, TextPredictor

SEPARATOR = "\n---\n"
"""Separator between generated texts."""


@dataclass(frozen=True, kw_only=True)
class PredictText(Predict):
    """Compute the log-probability of each line.

    Attributes:
        source: File of texts, one per line; - for stdin.
        per_token: Also write each token with its log-probability, in nats.
        jsonl: Write one JSON object per line, with tokens and log-probabilities.
    """

    example: ClassVar[str] = "predict runs/book --per-token < lines.txt"
    unit: ClassVar[str] = "lines"

    per_token: Flag = False

    def check_model(self, predictor: TextPredictor) -> None:
        """Do nothing: every language model can score text."""

    def compute_answers(self, predictor: TextPredictor, inputs: Sequence[Any], progress: Progress | None) -> list[Any]:
        return predictor.score_texts(inputs, progress)

    def update_warnings(self, warnings: Warnings, predictor: TextPredictor, answer: Any) -> None:
        warnings.add_line(predictor.tokenizer.encode(answer.text))


@dataclass(frozen=True, kw_only=True)
class EvaluateText(Evaluate, BuiltInOptions):
    """Score a text: perplexity, bits per character, and loss by length of context.

    Attributes:
        data: Text file, folder of text files, - for stdin, or a built-in corpus (default: the built-in corpus the run
            was trained on).
        documents: Unit of text to treat as a document (default: from the recipe).
        context_length: Number of tokens to read at once (default: the maximum of the model).
        stride: Number of tokens to score per window, at most the context length (default: half the context length, or
            more for a recurrent model).
        against: Another run to compare with, by paired bootstrap over documents, or over lines if there are few; by
            loss per token if the tokens are the same, otherwise by bits per character.
    """

    example: ClassVar[str] = "evaluate runs/book --data other.txt"

    data: File | None = None
    documents: Literal["file", "line", "paragraph"] | None = None
    context_length: Annotated[int | None, Bounds(1, 1_000_000)] = None
    stride: Annotated[int | None, Bounds(1, 1_000_000)] = None
    against: Path | None = None

    def check(self) -> None:
        if self.against is not None and self.data == Path("-"):
            raise RegardError("--against cannot be combined with --data -: both runs read the data")

    def build_report(self, predictor: TextPredictor, invocation: Invocation) -> TextReport | ComparisonReport:
        from regard.tasks.loading import load_same_task
        from regard.tasks.text.compare import compare_scored_files

        corpus = self.find_corpus(predictor, None if self.data is None else str(self.data))
        if corpus is not None:
            return self.evaluate_corpus(predictor, corpus, invocation)
        if self.data is None:
            raise RegardError("--data is required: a text file or a folder of text files")
        other = None if self.against is None else load_same_task(predictor, self.against, invocation)
        documents = self.documents or predictor.recipe.data.document_unit
        scored = self.score(predictor, documents, invocation)
        if other is None or self.against is None:
            return scored.report
        other_documents = other.recipe.data.document_unit
        if self.documents is None and other_documents != documents and not invocation.quiet:
            print_message(
                f"{self.against} was trained with --documents {other_documents}, but is scored with {documents} "
                f"as {invocation.run} was trained, which may favor the latter; pass --documents to choose"
            )
        other_scored = self.score(other, documents, invocation)
        comparison = compare_scored_files((other, other_scored), (predictor, scored), self.data, documents)
        return ComparisonReport(scored.report, comparison, (self.against, invocation.run))

    def evaluate_corpus(self, predictor: TextPredictor, corpus: str, invocation: Invocation) -> TextReport:
        """Score new examples of a built-in corpus, and the attention to their gold words."""
        from regard.tasks.text.evaluation import evaluate_linked_texts

        if self.against is not None:
            raise RegardError(f"--against requires a text file as --data, got the built-in corpus {corpus}")
        texts = self.sample_examples(predictor, corpus)
        with show_counter(invocation.quiet, "tokens") as show:
            return evaluate_linked_texts(
                predictor, texts, context_length=self.context_length, stride=self.stride, progress=show
            )

    def score(self, predictor: TextPredictor, documents: Documents, invocation: Invocation) -> ScoredFile:
        """Score the data with a run."""
        from regard.tasks.text.evaluation import score_text_file

        assert self.data is not None
        window = {"context_length": self.context_length, "stride": self.stride}
        with show_counter(invocation.quiet, "tokens") as show:
            return score_text_file(predictor, self.data, documents=documents, **window, progress=show)


@dataclass(frozen=True, kw_only=True)
class LookAtText(Look):
    """Show where a language model looks, in the terminal or in the given files."""


@dataclass(frozen=True, kw_only=True)
class ExplainWord(Explain, TextExplainOptions):
    """Show how much each word mattered for a later one, by several methods, and how well they agree."""


@dataclass(frozen=True, kw_only=True)
class Generate(Action, GenerationOptions):
    """Generate texts from a prompt.

    Attributes:
        prompt: Beginning of the text; - for stdin.
        count: Number of texts to sample.
        seed: Seed of the first sampled text; the next texts use the seeds after it (default: random).
        jsonl: Write one JSON object per text, with its log-probability.
    """

    summary: ClassVar[str] = "Generate text with a language model."
    example: ClassVar[str] = 'generate runs/book --prompt "The " --max-tokens 200'
    hint: ClassVar[str] = "put quotes around the prompt"
    positional: ClassVar[tuple[str, ...]] = ("prompt",)

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    count: Annotated[int, Bounds(1, 1_000_000)] = 1
    jsonl: Flag = False

    def check(self) -> None:
        self.check_compatible_options()

    def check_compatible_options(self) -> None:
        """Raise a `RegardError` for options that contradict each other."""
        strategy = "--beam" if self.beam is not None else "--greedy" if self.greedy else None
        sampling_flags = [f"--{name.replace('_', '-')}" for name in self.sampling_options]
        if self.beam is not None and self.greedy:
            raise RegardError("--greedy cannot be combined with --beam; --beam 1 is greedy")
        if strategy is not None and sampling_flags:
            raise RegardError(f"{strategy} cannot be combined with {', '.join(sampling_flags)}: it does not sample")
        if strategy is not None and self.count > 1:
            raise RegardError(f"{strategy} cannot be combined with --count: all texts would be the same")
        if self.nbest is not None and self.beam is None:
            raise RegardError("--nbest requires --beam; use --count to sample several texts")
        if self.nbest is not None and self.beam is not None and self.nbest > self.beam:
            raise RegardError(f"--nbest must be at most --beam ({self.beam}), got {self.nbest}")

    def run(self, predictor: TextPredictor, invocation: Invocation) -> None:
        prompt = read_stdin() if self.prompt == "-" else self.prompt
        if not invocation.quiet:
            warn_unknown(predictor, prompt)
        if self.beam is not None:
            best = predictor.continuations(prompt, max_tokens=self.max_tokens, beam=self.beam, nbest=self.nbest or 1)
            separator = "\n" if self.jsonl else SEPARATOR
            print(*(to_json_line(text) if self.jsonl else prompt + text.text for text in best), sep=separator)
            return
        first_seed = secrets.randbelow(SEEDS) if self.seed is None else self.seed
        for index in range(self.count):
            write = self.write_record if self.jsonl else self.write_text
            write(predictor, prompt, (first_seed + index) % SEEDS, is_last=index + 1 == self.count)
        if self.seed is None and not self.greedy and not invocation.quiet:
            print_message(f"sampled with --seed {first_seed}")

    def build_sampling_options(self, seed: int) -> dict[str, Any]:
        """Return keyword arguments for `TextPredictor.generate`."""
        return {name: getattr(self, name) for name in get_field_names(SamplingOptions)} | {"seed": seed}

    def write_record(self, predictor: TextPredictor, prompt: str, seed: int, is_last: bool) -> None:
        """Write one text as a line of JSON, with its seed if it was sampled."""
        text = predictor.generate(prompt, **self.build_sampling_options(seed))
        print(to_json_line(text if self.greedy else replace(text, seed=seed)), flush=True)

    def write_text(self, predictor: TextPredictor, prompt: str, seed: int, is_last: bool) -> None:
        """Write one text, each part as soon as it is generated."""
        pieces = predictor.stream(prompt, **self.build_sampling_options(seed))  # checks the prompt
        print(prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print("\n" if is_last else SEPARATOR, end="", flush=True)


def read_stdin() -> str:
    """Read stdin, without the final line break."""
    from regard.data.formats import read_lines

    return "\n".join(read_lines(Path("-")))


def warn_unknown(predictor: TextPredictor, prompt: str) -> None:
    """Print to stderr how many tokens of a prompt are unknown."""
    from regard.batch import UNKNOWN

    tokens = predictor.tokenizer.encode(prompt)
    if UNKNOWN in tokens:
        print_message(f"{tokens.count(UNKNOWN)} of {len(tokens)} prompt tokens are unknown to the model")


def to_json_line(text: GeneratedText) -> str:
    """Return a text as a line of JSON."""
    return json.dumps(text.record(), ensure_ascii=False)
