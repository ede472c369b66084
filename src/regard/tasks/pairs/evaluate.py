"""`regard evaluate` of a run that answers sources: text scores, and attention as word alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.errors import RegardError
from regard.tasks.actions import STDIN_TOO, File, Flag, Invocation
from regard.tasks.actions.evaluate import Evaluate, as_file, columns_of, own_options
from regard.tasks.actions.predict import in_line
from regard.tasks.actions.remarks import Remarks
from regard.tasks.pairs.links import apart, attend_to, check_gold, shifts_of
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.progress import counted

if TYPE_CHECKING:
    from regard.alignment import Place
    from regard.data.example import Example
    from regard.metrics import AlignmentScore, Report
    from regard.tasks.pairs.predictor import PairPredictor, Prediction

COUNT = 1000
IDLE = 2000
"""Draws in a row that bring no new example of a corpus, after which it has no more."""

VALIDATED_BY = {"exact": "exact_match", "chrf": "chrf"}
"""What comes first for a run validated by these; for any other BLEU does, where it says anything."""


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


@dataclass(frozen=True)
class PairReport:
    """The scores of predictions, as read and as written by the model, and of the attention as word alignment."""

    texts: dict[str, Report]
    alignment: Found | None

    def lines(self) -> list[str]:
        """All of it, a line each."""
        scores = [line for name, report in self.texts.items() for line in (name, *(f"  {s}" for s in report.lines()))]
        return scores if self.alignment is None else [*scores, "attention as word alignment", f"  {self.alignment}"]

    def to_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        scores: dict[str, Any] = {name: report.to_json() for name, report in self.texts.items()}
        return scores if self.alignment is None else {**scores, "alignment": self.alignment.to_json()}


@dataclass(frozen=True, kw_only=True)
class EvaluatePairs(Evaluate):
    """Score predictions: exact match, BLEU, chrF and edit rates.

    Attributes:
        source: A file of sources, one a line.
        target: The right answers, one a line.
        data: Instead of two files, one file of pairs, or a built-in corpus; the corpus the run was trained on
            unless set.
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
        out: Write the predictions to this file.
    """

    source: File | None = None
    target: File | None = None
    data: Annotated[str | None, STDIN_TOO] = None
    format: str | None = None
    columns: str | None = None
    empty: Literal["error", "skip"] = "error"
    count: int | None = None
    seed: int | None = None
    variants: Flag = False
    beam: int | None = None
    lowercase: Flag = False
    tokenize: str = "13a"
    against_length: str | None = None
    unit: Literal["word", "character"] | None = None
    gold: Path | None = None
    gold_base: Literal[0, 1] = 0
    attention: str | None = None
    shift: Literal[0, 1] | None = None
    out: Path | None = None

    def check(self) -> None:
        self.place()
        if (self.source is None) != (self.target is None):
            missing = "target" if self.target is None else "source"
            raise RegardError(f"evaluate: --{missing} is missing; give --source and --target, or --data")
        if self.source is not None and self.data is not None:
            raise RegardError(f"evaluate: found --source {self.source} and --data {self.data}; give one of them")
        if self.count is not None and self.count < 1:
            raise RegardError(f"--count is {self.count}; 1 is the least")
        self.scores(["a"], ["a"], ["a"], self.against_length)

    def place(self) -> Place | None:
        """The attention to score, where one is named."""
        from regard.alignment import parse_place

        return None if self.attention is None else parse_place(self.attention, self.shift or 0)

    def report(self, predictor: PairPredictor, given: Invocation) -> PairReport:
        from regard.files import write_text

        predictor.check(SearchOptions(beam=self.beam))
        if self.gold is not None:
            predictor.check_attention()
        examples = self.examples(predictor)
        alignment = self.align(predictor, examples)
        sources, answers = grouped(examples) if self.variants else apart(examples)
        with counted(given.quiet) as show:
            predictions = predictor.predict(sources, beam=self.beam, progress=show)
        if self.out is not None:
            write_text(self.out, as_file(in_line(prediction.text) for prediction in predictions))
        if not given.quiet:
            remarks = Remarks("source tokens")
            for prediction in predictions:
                remarks.hear(prediction.pair.source, prediction.source)
            remarks.say()
        return PairReport(dict(self.text_scores(predictor, predictions, answers)), alignment)

    @own_options()
    def examples(self, predictor: PairPredictor) -> Sequence[Example]:
        """What to evaluate on."""
        from regard.data.corpora import CORPORA
        from regard.data.formats import read_pairs, read_parallel

        settings = predictor.recipe.data
        if self.source is not None and self.target is not None:
            found = list(read_parallel(self.source, self.target, empty=self.empty))
            name = str(self.source)
        else:
            name = self.data or (settings.train if settings.train in CORPORA else None) or ""
            if not name:
                raise RegardError("evaluate: nothing to evaluate on; give --source and --target, or --data")
            if name in CORPORA:
                return self.drawn(predictor, name)
            columns = columns_of(self.columns, predictor)
            found = list(read_pairs(name, format=self.format, columns=columns or None, empty=self.empty))
        if not found:
            raise RegardError(f"{name}: is empty; one pair is the least")
        return found

    def drawn(self, predictor: PairPredictor, name: str) -> Sequence[Example]:
        """Examples of a built-in corpus that no run was trained on."""
        from regard.data.corpora import stream

        recipe = predictor.recipe
        options = recipe.data.corpus if name == recipe.data.train else {}
        seed, count = recipe.training.seed + 1 if self.seed is None else self.seed, self.count or COUNT
        found: dict[str, Example] = {}
        idle = 0
        for example in stream(name, part="valid", seed=seed, **options):
            idle = idle + 1 if example.source in found else 0
            found.setdefault(example.source, example)
            if len(found) == count or idle > IDLE:
                break
        return list(found.values())

    def text_scores(
        self, predictor: PairPredictor, predictions: Sequence[Prediction], answers: Sequence[str] | Sequence[list[str]]
    ) -> Iterator[tuple[str, Report]]:
        """The text as a reader sees it, and, where text is prepared for the model, as the model writes it."""
        from regard.text.steps import NO_STEPS

        by = self.against_length or VALIDATED_BY.get(predictor.recipe.training.metric)
        sources = [prediction.source for prediction in predictions]
        yield "text", self.scores(sources, [each.text for each in predictions], answers, by)
        steps = predictor.tokenizers.target.steps
        if steps != NO_STEPS:
            prepared = [[steps.apply(each) for each in ([a] if isinstance(a, str) else a)] for a in answers]
            written = [each.written for each in predictions]
            yield "text as prepared for the model", self.scores(sources, written, prepared, by, tokenize="none")

    def scores(
        self,
        sources: Sequence[str],
        texts: Sequence[str],
        answers: Sequence[str] | Sequence[list[str]],
        by: str | None,
        tokenize: str | None = None,
    ) -> Report:
        """All scores of some texts."""
        from regard.metrics import evaluate_text

        return evaluate_text(
            sources,
            texts,
            answers,
            lowercase=self.lowercase,
            tokenize=tokenize or self.tokenize,
            against_length=by,
            unit=self.unit,
        )

    def align(self, predictor: PairPredictor, examples: Sequence[Example]) -> Found | None:
        """Score the attention of the right answers against gold links, of a file or of the examples, if any are."""
        from regard.alignment import Gold, align, read_pharaoh
        from regard.metrics import alignment_error, search_head

        if self.gold is None and not has_links(predictor, examples):
            return None
        gold = [Gold(example.links or frozenset()) for example in examples]
        if self.gold is not None:
            gold = read_pharaoh(self.gold, self.gold_base)
            if len(gold) != len(examples):
                raise RegardError(
                    f"{self.gold} has {len(gold)} lines, there are {len(examples)} pairs; line n must link pair n"
                )
        attended, place = attend_to(predictor, examples), self.place()
        if self.gold is not None:
            check_gold(self.gold, gold, attended)
        if place is None:
            best = search_head(attended, gold, shifts=shifts_of(self.shift))
            return Found(best.place, best.score, searched=True)
        return Found(place, alignment_error([align(each, place) for each in attended], gold), searched=False)


def grouped(examples: Sequence[Example]) -> tuple[list[str], list[list[str]]]:
    """Each source once, with all its targets."""
    answers: dict[str, list[str]] = {}
    for example in examples:
        answers.setdefault(example.source, []).append(example.target)
    return list(answers), list(answers.values())


def has_links(predictor: PairPredictor, examples: Sequence[Example]) -> bool:
    """Whether examples have links, between the words that the model sees too, and the model attention."""
    moses = predictor.tokenizers.source.steps.moses or predictor.tokenizers.target.steps.moses
    return bool(predictor.model.attentions) and not moses and all(example.links is not None for example in examples)
