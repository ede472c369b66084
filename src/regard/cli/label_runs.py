"""What `regard predict` and `regard evaluate` do with a classifier or a tagger."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.counting import after, counted, parts
from regard.cli.devices import chosen_device
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.data.labelled import Labelled
    from regard.label_predictor import Labelling, LabelPredictor, Tagging

AT_ONCE, WEIGHED_AT_ONCE = 1000, 100
"""Texts read before the first is answered; and sentences, where weights from every word to every word are held."""

BLANKS = str.maketrans("\t\n\r", "   ")
"""What would end a cell or a line."""


@dataclass(frozen=True)
class Output:
    """What is written of each text."""

    nbest: int = 1
    threshold: float | None = None
    why: bool = False
    html: Path | None = None
    jsonl: bool = False

    @property
    def weighed(self) -> bool:
        """Whether weights are needed."""
        return self.why or self.html is not None


def refuse_for(command: str, run: Path, task: str, options: Mapping[str, object]) -> None:
    """Raise a `RegardError` for an option that a run has no use for; None and False were not given."""
    what = {"label": "labels texts", "tag": "tags words"}[task]
    for name, value in options.items():
        if value is not None and value is not False:
            raise RegardError(f"{command}: --{name} is for other models; {run} {what}")


def print_labels(run: Path, source: Path, output: Output, *, device: str, quiet: bool) -> None:
    """Write the labels of each line, and why, if that is asked for."""
    from regard.data.formats import read_lines
    from regard.loading import load_labels

    model = load_labels(run, chosen_device(device))
    if output.weighed:
        model.check_attention()
    model.label([], output.nbest, output.threshold)  # what is wrong with them is said before any line is read
    by_hand = source == Path("-") and sys.stdin.isatty()
    done, shaded = 0, list[Any]()
    blank = label_line_of_nothing(output)
    with counted(quiet, "texts") as show:
        for some in parts(examples_of(model, read_lines(source)), 1 if by_hand else AT_ONCE):
            present = [example for example in some if example is not None]
            weighed = output.weighed or (output.jsonl and model.weighs)
            found = iter(
                model.label(present, output.nbest, output.threshold, return_weights=weighed, progress=after(done, show))
            )
            for example in some:
                if example is None:
                    print(blank)
                    continue
                labelling = next(found)
                print(label_lines(model, labelling, output))
                if output.html is not None:
                    shaded += [(*weighed, title_of(labelling)) for weighed in weighed_texts(labelling)]
            sys.stdout.flush()
            done += len(present)
    write_page(output.html, shaded, quiet=quiet)


def label_line_of_nothing(output: Output) -> str:
    """What is written of a line without text."""
    return json.dumps({"text": "", "labels": [], "ranked": [], "words": []}) if output.jsonl else ""


def examples_of(model: LabelPredictor, lines: Iterator[str]) -> Iterator[Labelled | None]:
    """Each line as the model takes it; a line without text is None, and ends a dialogue."""
    from regard.data.labelled import Labelled

    config = model.model.config
    before = deque[str](maxlen=config.before)
    for number, line in enumerate(lines, 1):
        text, tab, second = line.partition("\t") if config.pairs else (line, "", "")
        if not text.strip():
            before.clear()
            yield None
            continue
        if config.pairs and not second.strip():
            raise RegardError(
                f"line {number}: has one text; two with a tab between are needed, as {model.name} compares"
            )
        yield Labelled(text.strip(), (), second.strip() if tab else None, tuple(before))
        before.append(text.strip())


def label_lines(model: LabelPredictor, found: Labelling, output: Output) -> str:
    """What is written of a text."""
    if output.jsonl:
        return json.dumps(label_record(found), ensure_ascii=False)
    if output.nbest > 1:
        lines = "\t".join(
            f"{label.translate(BLANKS)} {probability:.4f}" for label, probability in found.ranked[: output.nbest]
        )
    else:
        lines = side_by_side(model, found.labels)
    if not output.why:
        return lines
    from regard.views.words import shade_words

    shaded = "\n".join(shade_words(words, weights) for words, weights in weighed_texts(found))
    return f"{lines}\n{shaded}\n"


def weighed_texts(found: Labelling) -> Iterator[tuple[Sequence[str], Sequence[float]]]:
    """The words of a text, and of a second one, with their weights."""
    for words, weights in ((found.words, found.weights), (found.second_words, found.second_weights)):
        if words is not None and weights is not None:
            yield words, weights


def side_by_side(model: LabelPredictor, labels: Sequence[str]) -> str:
    """Labels on one line, separated as in the data of the training."""
    return (model.recipe.data.separator or "|").join(label.translate(BLANKS) for label in labels)


def label_record(found: Labelling) -> dict[str, Any]:
    """A text and its labels as JSON has it."""
    record: dict[str, Any] = {
        "text": found.text,
        "labels": found.labels,
        "ranked": [each._asdict() for each in found.ranked],
        "words": found.words,
    }
    others = ("weights", "second_words", "second_weights", "context_weights")
    return record | {name: value for name in others if (value := getattr(found, name)) is not None}


def title_of(found: Labelling) -> str:
    """The labels of a text, the most probable with its probability."""
    best = found.ranked[0]
    others = [label for label in found.labels if label != best.label]
    return ", ".join([f"{best.label} ({best.probability:.0%})", *others]) if found.labels else "no label"


def write_page(path: Path | None, texts: Sequence[tuple[Sequence[str], Any, str]], *, quiet: bool) -> None:
    """Texts shaded by weight, as a page that needs nothing else."""
    if path is None:
        return
    from regard.files import write_text
    from regard.views.words import words_page

    write_text(path, words_page(texts))
    if not quiet:
        print(f"written: {path}", file=sys.stderr)


def print_tags(run: Path, source: Path, output: Output, *, words: bool, device: str, quiet: bool) -> None:
    """Write each word with its tag, a line each, and a blank line after each sentence."""
    from regard.data.formats import read_lines
    from regard.loading import load_tags
    from regard.tasks.tag import ENDINGS

    model = load_tags(run, chosen_device(device))
    if output.weighed:
        model.check_attention()
    by_hand = source == Path("-") and sys.stdin.isatty()
    own = words or source.name.removesuffix(".gz").endswith(ENDINGS)
    sentences: Iterator[str | list[str]] = word_lines(source, model.recipe.data.columns) if own else read_lines(source)
    weighed = output.weighed or (output.jsonl and bool(model.model.attended))
    done, shaded = 0, list[Any]()
    with counted(quiet, "sentences") as show:
        for some in parts(sentences, 1 if by_hand else WEIGHED_AT_ONCE if weighed else AT_ONCE):
            for tagging in model.predict(some, return_weights=weighed, progress=after(done, show)):
                print(tag_lines(tagging, output))
                if output.html is not None and tagging.words:
                    shaded.append((tagging.words, received(tagging), " ".join(tagging.tags)))
            sys.stdout.flush()
            done += len(some)
    write_page(output.html, shaded, quiet=quiet)


def word_lines(source: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Sentences of a word a line: alone, or in the same column as in the data of the training."""
    from regard.data.tagged import column_numbers, rows

    place = column_numbers(columns)[0] if columns else 1
    words: list[str] = []
    for row in rows(source):
        if row is not None:
            where, cells = row
            if 1 < len(cells) < place:
                raise RegardError(f"{where}: found {len(cells)} columns; the words of the training were column {place}")
            words.append(cells[0] if len(cells) == 1 else cells[place - 1])
        elif words:
            yield words
            words = []


def tag_lines(tagging: Tagging, output: Output) -> str:
    """What is written of a sentence."""
    if output.jsonl:
        record: dict[str, Any] = {
            "words": tagging.words,
            "tags": tagging.tags,
            "probabilities": tagging.probabilities,
            "spans": [
                {**span._asdict(), "text": " ".join(tagging.words[span.first : span.last + 1])}
                for span in tagging.spans
            ],
        }
        if tagging.weights is not None and tagging.words:
            record["weights"] = received(tagging)
        return json.dumps(record, ensure_ascii=False)
    lines = "".join(f"{word}\t{tag}\n" for word, tag in zip(tagging.words, tagging.tags, strict=True))
    if not output.why or not tagging.words:
        return lines
    from regard.views.words import shade_words

    return f"{lines}{shade_words(tagging.words, received(tagging), title='attention received')}\n"


def received(tagging: Tagging) -> list[float]:
    """How much attention each word got, the mean over layers, heads and the words that looked."""
    assert tagging.weights is not None
    found: list[float] = tagging.weights.mean((0, 1, 2)).tolist()
    return found


@dataclass(frozen=True)
class Asked:
    """What a classifier or tagger is scored on."""

    data: str | None
    format: str | None
    columns: str | None
    empty: str


@dataclass(frozen=True)
class Findings:
    """What a run found in data, beside what is there: the labels of each text, or the spans of each sentence."""

    report: Any
    found: Sequence[Collection[Hashable]]
    gold: Sequence[Collection[Hashable]]
    lines: Sequence[str]  # the predictions, as --out has them


def print_findings(
    run: Path,
    asked: Asked,
    task: str,
    *,
    against: Path | None,
    out: Path | None,
    as_json: bool,
    device: str,
    quiet: bool,
) -> None:
    """Score labels or tags, beside those of another run if one is given, and write what was found."""
    from regard.files import write_text
    from regard.metrics import compare_found

    look = label_findings if task == "label" else tag_findings
    ours = look(run, asked, device=device, quiet=quiet)
    theirs = None if against is None else look(against, asked, device=device, quiet=quiet)
    comparison = None if theirs is None else compare_found(theirs.found, ours.found, ours.gold)
    if as_json:
        record = ours.report.to_json() | ({} if comparison is None else {"against": comparison.to_json()})
        print(json.dumps(record, ensure_ascii=False))
    else:
        print("\n".join(ours.report.lines()))
        if comparison is not None:
            print(f"{against} and {run}, {comparison}")
    if out is not None:
        write_text(out, "".join(f"{line}\n" for line in ours.lines))


def label_findings(run: Path, asked: Asked, *, device: str, quiet: bool) -> Findings:
    """What a classifier finds in data."""
    from regard.loading import load_labels
    from regard.metrics.labels import above, label_report, several_report

    model = load_labels(run, chosen_device(device))
    examples = labelled_data(model, asked)
    with counted(quiet, "texts") as show:
        probabilities = model.probabilities(examples, show)
    gold, labels = [example.labels for example in examples], model.labels
    if not any(set(each) & set(labels) for each in gold):
        found = ", ".join(sorted({label for each in gold for label in each})[:5])
        raise RegardError(f"{asked.data}: has no label that {run} knows, but {found}; is it the right column?")
    report: Any
    chosen: list[list[str]]
    if model.model.config.several:
        threshold = float(model.model.threshold)
        report = several_report(probabilities, gold, labels, threshold=threshold, best=min(5, len(labels)))
        chosen = [sorted(each) for each in above(probabilities, labels, threshold)]
    else:
        if odd := next((each for each in gold if len(each) > 1), None):
            raise RegardError(f"{asked.data}: a text has the labels {', '.join(odd)}; {run} tells one each")
        chosen = [[labels[place]] for place in probabilities.argmax(-1).tolist()]
        report = label_report([one for (one,) in chosen], [one for (one,) in gold])
    return Findings(report, chosen, gold, [side_by_side(model, each) for each in chosen])


def labelled_data(model: LabelPredictor, asked: Asked) -> list[Labelled]:
    """The examples to score, read as those of the training were unless it is said otherwise."""
    from dataclasses import replace

    from regard.tasks.label.prepare import read_all_labelled

    if asked.data is None:
        raise RegardError("evaluate: nothing to evaluate on; give a file of texts and labels by --data")
    data = model.recipe.data
    columns = data.columns if asked.columns is None else tuple(asked.columns.split(","))
    settings = replace(data, format=asked.format, columns=columns, empty=asked.empty)
    try:
        return read_all_labelled(asked.data, settings)
    except RegardError as error:
        raise RegardError(str(error).replace("--data.", "--")) from None


def tag_findings(run: Path, asked: Asked, *, device: str, quiet: bool) -> Findings:
    """What a tagger finds in data."""
    from regard.data.tagged import read_tagged
    from regard.loading import load_tags
    from regard.metrics.labels import label_report
    from regard.metrics.spans import span_report
    from regard.schemes import spans_of

    if asked.data is None:
        raise RegardError("evaluate: nothing to evaluate on; give a file of words and tags by --data")
    model = load_tags(run, chosen_device(device))
    columns = model.recipe.data.columns if asked.columns is None else asked.columns.split(",")
    sentences = list(read_tagged(asked.data, columns or None))
    if not sentences:
        raise RegardError(f"{asked.data}: is empty; one sentence is the least")
    with counted(quiet, "sentences") as show:
        taggings = model.predict([sentence.words for sentence in sentences], progress=show)
    found, gold = [each.tags for each in taggings], [sentence.tags for sentence in sentences]
    lines = [tag_lines(each, Output()) for each in taggings]
    if model.model.config.scheme == "plain":
        report: Any = label_report(*([tag for tags in part for tag in tags] for part in (found, gold)))
        return Findings(
            report, [list(enumerate(each)) for each in found], [list(enumerate(each)) for each in gold], lines
        )
    return Findings(span_report(found, gold), list(map(spans_of, found)), list(map(spans_of, gold)), lines)
