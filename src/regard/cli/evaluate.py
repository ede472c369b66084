"""`regard evaluate`: how good a trained model is on data it has not seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from regard.cli.alignment import attend_to, check_gold, shifts_of
from regard.cli.counting import counted
from regard.cli.devices import chosen_device
from regard.cli.label_runs import Asked, print_findings, refuse_for
from regard.cli.options import STDIN_TOO, File, Flag
from regard.cli.predict import in_line
from regard.cli.remarks import Remarks
from regard.cli.text_runs import print_text_report, refuse_for_text, task_of_run
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import Place
    from regard.data.example import Example
    from regard.metrics import AlignmentScore, Report
    from regard.predictor import Prediction, Predictor

COUNT = 1000
IDLE = 2000
"""Draws in a row that bring no new example of a corpus, after which it has no more."""

VALIDATED_BY = {"exact": "exact_match", "chrf": "chrf"}
"""What comes first for a run validated by these; for any other BLEU does, where it says anything."""

Unit = Literal["word", "character"]
Base = Literal[0, 1]


@dataclass(frozen=True)
class Data:
    """What to evaluate on, as it was asked for."""

    source: Path | None
    target: Path | None
    data: str | None
    format: str | None
    columns: str | None
    empty: Literal["error", "skip"]
    count: int | None
    seed: int | None


@dataclass(frozen=True)
class Conditions:
    """Under which conditions text is scored."""

    lowercase: bool
    tokenize: str
    against_length: str | None
    unit: Unit | None


@dataclass(frozen=True)
class Found:
    """How well one attention of a model agrees with gold links."""

    place: Place
    score: AlignmentScore
    searched: bool

    def __str__(self) -> str:
        how = "the best on these gold links" if self.searched else "as asked for"
        return f"{self.score} attention {self.place}, {how}"

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {"attention": self.place._asdict(), "searched": self.searched, **asdict(self.score)}


def evaluate(
    run: Path,
    /,
    *,
    source: File | None = None,
    target: File | None = None,
    text: File | None = None,
    documents: Literal["file", "line", "blank"] | None = None,
    context: int | None = None,
    stride: int | None = None,
    data: Annotated[str | None, STDIN_TOO] = None,
    format: str | None = None,  # noqa: A002
    columns: str | None = None,
    empty: Literal["error", "skip"] = "error",
    count: int | None = None,
    seed: int | None = None,
    variants: Flag = False,
    beam: int | None = None,
    lowercase: Flag = False,
    tokenize: str = "13a",
    against_length: str | None = None,
    unit: Unit | None = None,
    gold: Path | None = None,
    gold_base: Base = 0,
    attention: str | None = None,
    shift: Literal[0, 1] | None = None,
    against: Path | None = None,
    out: Path | None = None,
    as_json: Annotated[Flag, Parameter("--json")] = False,
    device: str = "auto",
    quiet: Flag = False,
) -> None:
    """Score a run: exact match, BLEU, chrF and edit rates; of a text perplexity; of labels and tags accuracy and F1.

    Args:
        run: A run folder made by regard train.
        source: A file of sources, one a line.
        target: The right answers, one a line.
        text: For a language model, a file or folder of text.
        documents: For a language model, what a document is; as it was trained unless set.
        context: For a language model, how many tokens are read together; as many as it can unless set.
        stride: For a language model, how many of these are scored each time; half of them for gpt unless set.
        data: Instead of two files, one file of pairs, or a built-in corpus; the corpus the run was trained on
            unless set. For labels and tags, a file like that of the training.
        format: Of a file of pairs; by its name unless set.
        columns: Of a file of pairs: source and target, with a comma between; as in the run's recipe unless set.
        empty: What to do with a pair whose source or target is empty.
        count: Examples to make of a built-in corpus; 1000 unless set, fewer where it has no more.
        seed: Of a built-in corpus; one more than the run's unless set.
        variants: Pairs with the same source are right answers to it, of which any will do.
        beam: Hypotheses kept at each step, 1 is greedy; as in the run's recipe unless set.
        lowercase: Count upper and lower case as the same.
        tokenize: How BLEU cuts words: 13a, none, char, intl, zh.
        against_length: What is given first, and by length: bleu, chrf, exact_match, word_error_rate or
            character_error_rate; what the run was validated by unless set.
        unit: What a length counts; words, or characters where sources are mostly one word, unless set.
        gold: Word links of each pair, in Pharaoh format, to score the attention with.
        gold_base: Whether the gold links count words from 0 or from 1.
        attention: Which attention is scored: 2.3 is head 3 of layer 2, mean all; the best on the gold links unless set.
        shift: 1 reads the alignment of a word at the step that reads it, 0 at the step that writes it.
        against: Of labels and tags, another run to compare with, by paired bootstrap.
        out: Write the predictions to this file.
        as_json: Print one JSON object.
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress, and do not say that much of the source is unknown.
    """
    from regard.alignment import parse_place
    from regard.loading import load_pairs

    task = task_of_run(run)
    if task in ("label", "tag"):
        others: dict[str, object] = {"source": source, "target": target, "text": text, "documents": documents}
        others |= {"context": context, "stride": stride, "count": count, "seed": seed, "variants": variants}
        others |= {"beam": beam, "lowercase": lowercase, "tokenize": tokenize != "13a", "unit": unit, "gold": gold}
        others |= {"against-length": against_length, "gold-base": gold_base != 0}
        others |= {"attention": attention, "shift": shift}
        if task == "tag":
            others |= {"format": format, "empty": empty != "error"}
        refuse_for("evaluate", run, task, others)
        asked_for = Asked(data, format, columns, empty)
        print_findings(run, asked_for, task, against=against, out=out, as_json=as_json, device=device, quiet=quiet)
        return
    if against is not None:
        raise RegardError(f"evaluate: --against is for labels and tags; {run} has none")
    if task == "text":
        of_pairs: dict[str, object] = {"source": source, "target": target, "data": data, "format": format}
        of_pairs |= {"columns": columns, "empty": empty != "error", "count": count, "seed": seed, "variants": variants}
        of_pairs |= {"beam": beam, "lowercase": lowercase, "tokenize": tokenize != "13a", "unit": unit, "out": out}
        of_pairs |= {"against-length": against_length, "gold": gold, "gold-base": gold_base != 0}
        refuse_for_text("evaluate", run, of_pairs | {"attention": attention, "shift": shift})
        print_text_report(run, text, documents, context, stride, as_json=as_json, device=device, quiet=quiet)
        return
    for name, value in {"text": text, "documents": documents, "context": context, "stride": stride}.items():
        if value is not None:
            raise RegardError(f"evaluate: --{name} is for language models; {run} answers sources")
    place = None if attention is None else parse_place(attention, shift or 0)
    asked = Data(source, target, data, format, columns, empty, count, seed)
    check_asked(asked)
    conditions = Conditions(lowercase, tokenize, against_length, unit)
    check_conditions(conditions)
    model = load_pairs(run, chosen_device(device))
    if gold is not None:
        model.check_attention()
    examples = read_examples(model, asked)
    alignment = align_with(model, examples, gold, gold_base, place, shift)
    sources, answers = grouped(examples) if variants else ([e.source for e in examples], [e.target for e in examples])
    with counted(quiet) as show:
        predictions = model.predict(sources, beam=beam, progress=show)
    if out is not None:
        write_predictions(out, predictions)
    if not quiet:
        remarks = Remarks()
        remarks.hear(predictions)
        remarks.say()
    by = against_length or VALIDATED_BY.get(model.recipe.training.metric)
    conditions = replace(conditions, against_length=by)
    print_reports(dict(scored(model, predictions, answers, conditions)), alignment, as_json=as_json)


def print_reports(reports: dict[str, Report], alignment: Found | None, *, as_json: bool) -> None:
    """All that was found, to stdout."""
    if as_json:
        record: dict[str, object] = {name: report.to_json() for name, report in reports.items()}
        if alignment is not None:
            record["alignment"] = alignment.to_json()
        print(json.dumps(record, ensure_ascii=False))
        return
    for name, report in reports.items():
        print(name)
        for line in report.lines():
            print(f"  {line}")
    if alignment is not None:
        print(f"attention as word alignment\n  {alignment}")


def check_asked(asked: Data) -> None:
    """Raise a `RegardError` unless it is said in one way what to evaluate on."""
    if (asked.source is None) != (asked.target is None):
        missing = "target" if asked.target is None else "source"
        raise RegardError(f"evaluate: --{missing} is missing; give --source and --target, or --data")
    if asked.source is not None and asked.data is not None:
        raise RegardError(f"evaluate: found --source {asked.source} and --data {asked.data}; give one of them")
    if asked.count is not None and asked.count < 1:
        raise RegardError(f"--count is {asked.count}; 1 is the least")


def check_conditions(conditions: Conditions) -> None:
    """Raise a `RegardError` for what nothing can be scored by, before anything is predicted."""
    report_on(["a"], ["a"], ["a"], conditions)


def read_examples(model: Predictor, asked: Data) -> Sequence[Example]:
    """What to evaluate on; what is wrong with it is said in the options of this command."""
    try:
        return examples_of(model, asked)
    except RegardError as error:
        raise RegardError(str(error).replace("--data.", "--")) from None


def examples_of(model: Predictor, asked: Data) -> Sequence[Example]:
    """What to evaluate on."""
    from regard.data.corpora import CORPORA
    from regard.data.formats import read_pairs, read_parallel

    settings = model.recipe.data
    if asked.source is not None and asked.target is not None:
        found = list(read_parallel(asked.source, asked.target, empty=asked.empty))
        name = str(asked.source)
    else:
        name = asked.data or (settings.train if settings.train in CORPORA else None) or ""
        if not name:
            raise RegardError("evaluate: nothing to evaluate on; give --source and --target, or --data")
        if name in CORPORA:
            return drawn(model, name, asked)
        columns = settings.columns if asked.columns is None else asked.columns.split(",")
        found = list(read_pairs(name, format=asked.format, columns=columns or None, empty=asked.empty))
    if not found:
        raise RegardError(f"{name}: is empty; one pair is the least")
    return found


def drawn(model: Predictor, name: str, asked: Data) -> Sequence[Example]:
    """Examples of a built-in corpus that no run was trained on."""
    from regard.data.corpora import stream

    recipe = model.recipe
    options = recipe.data.corpus if name == recipe.data.train else {}
    seed, count = recipe.training.seed + 1 if asked.seed is None else asked.seed, asked.count or COUNT
    found: dict[str, Example] = {}
    idle = 0
    for example in stream(name, part="valid", seed=seed, **options):
        idle = idle + 1 if example.source in found else 0
        found.setdefault(example.source, example)
        if len(found) == count or idle > IDLE:
            break
    return list(found.values())


def grouped(examples: Sequence[Example]) -> tuple[list[str], list[list[str]]]:
    """Each source once, with all its targets."""
    answers: dict[str, list[str]] = {}
    for example in examples:
        answers.setdefault(example.source, []).append(example.target)
    return list(answers), list(answers.values())


def scored(
    model: Predictor,
    predictions: Sequence[Prediction],
    answers: Sequence[str] | Sequence[list[str]],
    conditions: Conditions,
) -> Iterator[tuple[str, Report]]:
    """The report on the text as a reader sees it, and, where text is prepared for the model, as the model writes it."""
    from regard.text.steps import NO_STEPS

    sources = [prediction.source for prediction in predictions]
    yield "text", report_on(sources, [each.text for each in predictions], answers, conditions)
    steps = model.tokenizers.target.steps
    if steps != NO_STEPS:
        prepared = [[steps.apply(each) for each in ([a] if isinstance(a, str) else a)] for a in answers]
        written = [each.written for each in predictions]
        yield (
            "text as prepared for the model",
            report_on(sources, written, prepared, replace(conditions, tokenize="none")),
        )


def report_on(
    sources: Sequence[str],
    texts: Sequence[str],
    answers: Sequence[str] | Sequence[list[str]],
    conditions: Conditions,
) -> Report:
    """All scores of some texts."""
    from regard.metrics import evaluate_text

    return evaluate_text(sources, texts, answers, **vars(conditions))


def align_with(
    model: Predictor, examples: Sequence[Example], path: Path | None, base: Base, place: Place | None, shift: int | None
) -> Found | None:
    """Score the attention of the right answers against gold links, those of a file or of the examples, if any are."""
    from regard.alignment import Gold, align, read_pharaoh
    from regard.metrics import alignment_error, search_head

    if path is None and not has_links(model, examples):
        return None
    if path is None:
        gold = [Gold(example.links or frozenset()) for example in examples]
    else:
        gold = read_pharaoh(path, base)
        if len(gold) != len(examples):
            raise RegardError(f"{path} has {len(gold)} lines, there are {len(examples)} pairs; line n must link pair n")
    attended = attend_to(model, examples)
    if path is not None:
        check_gold(path, gold, attended)
    if place is None:
        best = search_head(attended, gold, shifts=shifts_of(shift))
        return Found(best.place, best.score, searched=True)
    return Found(place, alignment_error([align(each, place) for each in attended], gold), searched=False)


def has_links(model: Predictor, examples: Sequence[Example]) -> bool:
    """Whether examples have links, between the words that the model sees too, and the model attention."""
    apart = model.tokenizers.source.steps.moses or model.tokenizers.target.steps.moses
    return bool(model.model.attended) and not apart and all(example.links is not None for example in examples)


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """One prediction a line."""
    from regard.files import write_text

    write_text(path, "".join(f"{in_line(prediction.text)}\n" for prediction in predictions))
