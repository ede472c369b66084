"""`regard evaluate`: how good a trained model is on data it has not seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.alignment import aligned, attention_place, check_gold
from regard.cli.devices import chosen_device
from regard.cli.predict import counted
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.metrics import Report
    from regard.predictor import Prediction, Predictor

Unit = Literal["word", "character"]


@dataclass(frozen=True)
class Conditions:
    """Under which conditions text is scored."""

    lowercase: bool
    tokenize: str
    against_length: str
    unit: Unit


def evaluate(
    run: Path,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    data: str | None = None,
    count: int = 1000,
    variants: bool = False,
    beam: int | None = None,
    lowercase: bool = False,
    tokenize: str = "13a",
    against_length: str = "bleu",
    unit: Unit = "word",
    gold: Path | None = None,
    gold_base: Literal[0, 1] = 0,
    attention: str | None = None,
    shift: Literal[0, 1] = 0,
    out: Path | None = None,
    as_json: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Score a run: BLEU, chrF, exact match and edit rates, overall and by the length of the source.

    Args:
        run: A run folder made by regard train.
        source: A file of sources, one a line.
        target: The right answers, one a line.
        data: Instead of two files, one file of pairs, or a built-in corpus; the corpus the run was trained on
            unless set.
        count: Examples to make of a built-in corpus.
        variants: Pairs with the same source are right answers to it, of which any will do.
        beam: Hypotheses kept at each step, 1 is greedy; as in the run's recipe unless set.
        lowercase: Count upper and lower case as the same.
        tokenize: How BLEU cuts words: 13a, none, char, intl, zh.
        against_length: What is given by length: bleu, chrf, exact_match, word_error_rate, character_error_rate.
        unit: What a length counts.
        gold: Word links of each pair, in Pharaoh format, to score the attention with.
        gold_base: Whether the gold links count words from 0 or from 1.
        attention: Which attention is scored: 2.3 is head 3 of layer 2, mean all; the best on the gold links unless set.
        shift: 1 reads the alignment of a word at the step that reads it.
        out: Write the predictions to this file.
        as_json: Print one JSON object.
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress.
    """
    from regard.predictor import load

    model = load(run, chosen_device(device))
    examples = examples_of(model, source, target, data, count)
    sources, answers = grouped(examples) if variants else ([e.source for e in examples], [e.target for e in examples])
    with counted(quiet) as progress:
        predictions = model.predict(sources, beam=beam, progress=progress)
    if out is not None:
        write_predictions(out, predictions)
    conditions = Conditions(lowercase, tokenize, against_length, unit)
    reports = list(scored(model, predictions, answers, conditions))
    alignment = None
    if gold is not None or (examples[0].links is not None and model.model.attended):
        links = check_gold(gold, gold_base, examples)
        alignment = aligned(model, examples, links, attention_place(attention, shift))
    if as_json:
        record = {name: report.to_json() for name, report in reports}
        print(json.dumps({**record, **({"alignment": alignment.to_json()} if alignment else {})}, ensure_ascii=False))
        return
    for name, report in reports:
        print(name)
        for line in report.lines():
            print(f"  {line}")
    if alignment is not None:
        print(f"attention as word alignment\n  {alignment}")


def examples_of(
    model: Predictor, source: Path | None, target: Path | None, data: str | None, count: int
) -> Sequence[Example]:
    """What to evaluate on."""
    from regard.data.corpora import CORPORA, built_in
    from regard.data.formats import read_pairs, read_parallel

    if (source is None) != (target is None):
        raise RegardError(f"evaluate: --{'target' if target is None else 'source'} is missing; give both, or --data")
    if source is not None and target is not None:
        found = list(read_parallel(source, target))
    else:
        settings = model.recipe.data
        name = data or (settings.train if settings.train in CORPORA else None)
        if name is None:
            raise RegardError("evaluate: nothing to evaluate on; give --source and --target, or --data")
        if name in CORPORA:
            options = settings.corpus if name == settings.train else {}
            return built_in(name, train=0, valid=count, seed=model.recipe.training.seed + 1, **options)[1]
        found = list(read_pairs(name, format=settings.format, columns=settings.columns or None))
    if not found:
        raise RegardError(f"{data or source}: is empty; one pair is the least")
    return found


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
    yield "text", report_on(predictions, [each.text for each in predictions], answers, conditions)
    steps = model.tokenizers.target.steps
    if steps != type(steps)():
        prepared = [[steps.apply(each) for each in ([a] if isinstance(a, str) else a)] for a in answers]
        written = [each.written for each in predictions]
        as_is = replace(conditions, tokenize="none")
        yield "text as prepared for the model", report_on(predictions, written, prepared, as_is)


def report_on(
    predictions: Sequence[Prediction],
    texts: Sequence[str],
    answers: Sequence[str] | Sequence[list[str]],
    conditions: Conditions,
) -> Report:
    """All scores of some texts."""
    from regard.metrics import evaluate_text

    return evaluate_text(
        [prediction.source for prediction in predictions],
        texts,
        answers,
        lowercase=conditions.lowercase,
        tokenize=conditions.tokenize,
        against_length=conditions.against_length,
        unit=conditions.unit,
    )


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """One prediction a line."""
    from regard.cli.predict import in_line
    from regard.run import write_text

    write_text(path, "".join(f"{in_line(prediction.text)}\n" for prediction in predictions))
