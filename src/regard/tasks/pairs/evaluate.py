"""The command `regard evaluate` for the task pairs: text metrics, and attention scored as word alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import FILE_OR_STDIN, File, Flag, Invocation
from regard.tasks.actions.evaluate import (
    BuiltInOptions,
    ComparisonReport,
    Evaluate,
    join_lines,
    rename_data_options,
)
from regard.tasks.actions.predict import to_single_line
from regard.tasks.actions.warnings import Warnings
from regard.tasks.pairs.actions import add_source
from regard.tasks.pairs.links import (
    WORDS,
    LinkUnit,
    check_gold,
    choose_link_units,
    force_examples,
    get_shifts,
    to_attended,
    unzip_examples,
)
from regard.tasks.pairs.options import BeamBounds, SearchOptions, resolve_table
from regard.tasks.progress import show_counter

if TYPE_CHECKING:
    from regard.alignment import HeadSelection
    from regard.data.example import Example
    from regard.metrics import AlignmentScore, TextPredictionReport
    from regard.tasks.pairs.prediction import Prediction
    from regard.tasks.pairs.predictor import PairPredictor

VALIDATED_BY = {"exact": "exact_match", "chrf": "chrf"}
"""Validation metric of a run -> score to report first; BLEU for all others, where it is meaningful."""


@dataclass(frozen=True)
class AlignmentResult:
    """The score of one attention against gold links."""

    attention: HeadSelection
    score: AlignmentScore
    chosen_by_gold: bool
    units: str  # what the links connect, such as source words and target words

    def __str__(self) -> str:
        how = "best on these gold links" if self.chosen_by_gold else "from --attention"
        return f"{self.score} attention {self.attention}, {how}"

    def to_json(self) -> dict[str, object]:
        """Return values for `json.dumps`."""
        return {
            "attention": self.attention._asdict(),
            "searched": self.chosen_by_gold,
            "units": self.units,
            **asdict(self.score),
        }


@dataclass(frozen=True)
class PairReport:
    """The scores of predictions, and of the attention as alignment."""

    texts: dict[str, TextPredictionReport]
    alignment: AlignmentResult | None

    def lines(self) -> list[str]:
        """Return the report, one line per score."""
        scores = [line for name, report in self.texts.items() for line in (name, *(f"  {s}" for s in report.lines()))]
        if self.alignment is None:
            return scores
        return [*scores, f"attention as alignment of {self.alignment.units}", f"  {self.alignment}"]

    def to_json(self) -> dict[str, Any]:
        """Return values for `json.dumps`."""
        scores: dict[str, Any] = {name: report.to_json() for name, report in self.texts.items()}
        return scores if self.alignment is None else {**scores, "alignment": self.alignment.to_json()}


@dataclass(frozen=True, kw_only=True)
class EvaluatePairs(Evaluate, BuiltInOptions):
    """Score predictions: exact match, BLEU, chrF and edit rates.

    Attributes:
        source: File of sources, one per line.
        target: File of reference targets, one per line.
        data: File of pairs, or a built-in corpus (default: the built-in corpus the run was trained on).
        format: File format (default: a format of named columns from the recipe, or from the file name).
        columns: Columns of the file: source,target, as in training (default: from the recipe).
        on_empty: What to do with an example that has an empty part.
        variants: Treat the targets of equal sources as alternative references.
        beam: Beam size; 1 for greedy search (default: from the recipe).
        lowercase: Ignore case.
        tokenize: Tokenization for BLEU: 13a, none, char, intl or zh.
        against_length: Score to report first and by source length: bleu, chrf, exact_match, word_error_rate (edits per
            word), whole_word_error_rate (1 - exact match), token_error_rate or character_error_rate (default: the
            metric the run was validated with).
        unit: Unit of length (default: words, or characters if most sources are a single word).
        gold: File of gold links, one line per pair, in Pharaoh format; scores the attention as alignment.
        gold_base: Index of the first word or token in the gold links.
        gold_unit: What the gold links connect (default: words; tokens for a side that is mostly single words).
        attention: Attention to score: 2.3 for head 3 of layer 2, 2 for the mean of layer 2, or mean for the mean of all
            (default: the best on the gold links).
        shift: Decoder step to take the alignment of a word from: 0 for the step that writes it, 1 for the step that
            reads it (default: 0, or the better one if the attention is searched).
        against: Another run, or a file of its predictions, one per line, to compare with by paired bootstrap on the
            score that is reported first.
        out: Write the predictions to this file.
        mistakes: Write the wrong predictions to this file: source, prediction and references, separated by tabs.
    """

    source: File | None = None
    target: File | None = None
    data: Annotated[str | None, FILE_OR_STDIN] = None
    format: str | None = None
    columns: str | None = None
    on_empty: Literal["error", "skip"] = "error"
    variants: Flag = False
    beam: Annotated[int | None, BeamBounds] = None
    lowercase: Flag = False
    tokenize: str = "13a"
    against_length: str | None = None
    unit: Literal["word", "character"] | None = None
    gold: Path | None = None
    gold_base: Literal[0, 1] = 0
    gold_unit: LinkUnit | None = None
    attention: str | None = None
    shift: Literal[0, 1] | None = None
    against: Path | None = None
    out: Path | None = None
    mistakes: Path | None = None

    def check(self) -> None:
        self.parse_attention()
        if (self.source is None) != (self.target is None):
            given, missing = ("source", "target") if self.target is None else ("target", "source")
            raise RegardError(f"--{given} requires --{missing}")
        if self.source is not None and self.data is not None:
            raise RegardError("--source cannot be combined with --data")
        self.compute_scores(["a"], ["a"], ["a"], self.against_length)

    def parse_attention(self) -> HeadSelection | None:
        """Return the attention given by --attention, if any."""
        from regard.alignment import parse_selection

        return None if self.attention is None else parse_selection(self.attention, self.shift or 0)

    def build_report(self, predictor: PairPredictor, invocation: Invocation) -> PairReport | ComparisonReport:
        from regard.files import write_text
        from regard.metrics import paired_bootstrap

        predictor.check(SearchOptions(beam=self.beam))
        other = self.load_other(predictor, invocation)
        if self.gold is not None:
            predictor.check_attention()
        examples = self.load_examples(predictor)
        alignment = self.score_alignment(predictor, examples)
        compose = predictor.tokenizers.target.steps.compose
        examples = [replace(example, target=compose(example.target)) for example in examples]
        sources, answers = group_targets(examples) if self.variants else unzip_examples(examples)
        with show_counter(invocation.quiet) as show:
            predictions = predictor.predict(sources, beam=self.beam, progress=show)
        if self.out is not None:
            write_text(self.out, join_lines(to_single_line(prediction.text) for prediction in predictions))
        if self.mistakes is not None:
            write_text(self.mistakes, join_lines(self.iter_mistakes(predictions, answers)))
        if not invocation.quiet:
            warnings = Warnings("source tokens")
            for prediction in predictions:
                add_source(warnings, predictor, prediction)
            warnings.print_all()
        report = PairReport(dict(self.iter_text_scores(predictor, predictions, answers)), alignment)
        if self.against is None:
            return report
        texts = [prediction.text for prediction in predictions]
        other_texts = [compose(text) for text in self.predict_other(other, sources, invocation)]
        comparison = paired_bootstrap(
            other_texts,
            texts,
            answers,
            report.texts["text"].against_length,
            lowercase=self.lowercase,
            tokenize=self.tokenize,
        )
        return ComparisonReport(report, comparison, (self.against, invocation.run))

    def iter_mistakes(
        self, predictions: Sequence[Prediction], answers: Sequence[str] | Sequence[list[str]]
    ) -> Iterator[str]:
        """Yield a line for each prediction that equals no reference: source, prediction and references."""
        from regard.metrics.sequences import find_matches

        matches = find_matches([prediction.text for prediction in predictions], answers, lowercase=self.lowercase)
        for prediction, accepted, is_right in zip(predictions, answers, matches, strict=True):
            if not is_right:
                references = [accepted] if isinstance(accepted, str) else accepted
                yield "\t".join(map(to_single_line, (prediction.source, prediction.text, *references)))

    def load_other(self, predictor: PairPredictor, invocation: Invocation) -> PairPredictor | None:
        """Load the run of --against; None if it is a file of predictions, or not given."""
        from regard.tasks.loading import load_same_task

        if self.against is None or self.against.is_file():
            return None
        if not self.against.exists():
            raise RegardError(f"{self.against}: not found; expected a run folder or a file of predictions")
        other: PairPredictor = load_same_task(predictor, self.against, invocation)
        other.check(SearchOptions(beam=self.beam))
        check_same_columns(predictor, other, (invocation.run, self.against))
        tokens, other_tokens = predictor.tokenizers.description, other.tokenizers.description
        if tokens != other_tokens and not invocation.quiet:
            print_message(
                f"note: the tokens of {self.against} are {other_tokens}, those of {invocation.run} {tokens}; "
                "their scores compare only if both were trained for this data"
            )
        return other

    def predict_other(self, other: PairPredictor | None, sources: Sequence[str], invocation: Invocation) -> list[str]:
        """Return the predictions of the other run, or those of its file."""
        from regard.data.formats import read_lines
        from regard.data.pair_check import pluralize

        assert self.against is not None
        if other is not None:
            with show_counter(invocation.quiet) as show:
                return [prediction.text for prediction in other.predict(sources, beam=self.beam, progress=show)]
        texts = list(read_lines(self.against))
        if len(texts) != len(sources):
            raise RegardError(
                f"{self.against} has {pluralize(len(texts), 'line')} for {pluralize(len(sources), 'source')}; "
                "line n must be the prediction for source n"
            )
        return texts

    @rename_data_options()
    def load_examples(self, predictor: PairPredictor) -> Sequence[Example]:
        """Return the examples to evaluate on."""
        from regard.data.formats import read_pairs, read_parallel

        if self.source is not None and self.target is not None:
            examples = list(read_parallel(self.source, self.target, on_empty=self.on_empty))
            name = str(self.source)
        else:
            corpus = self.find_corpus(predictor, self.data)
            if corpus is not None:
                return self.sample_examples(predictor, corpus)
            if self.data is None:
                raise RegardError(
                    "--data is required: a file of pairs or a built-in corpus; or pass --source and --target"
                )
            name = self.data
            format_name, columns = resolve_table(name, self.format, self.columns, predictor)
            examples = list(read_pairs(name, format=format_name, columns=columns, on_empty=self.on_empty))
        if not examples:
            raise RegardError(f"{name} is empty; expected at least one pair")
        return examples

    def iter_text_scores(
        self, predictor: PairPredictor, predictions: Sequence[Prediction], answers: Sequence[str] | Sequence[list[str]]
    ) -> Iterator[tuple[str, TextPredictionReport]]:
        """Yield the scores of the final text and, if the target is preprocessed, of the model's raw output."""
        metric = self.against_length or VALIDATED_BY.get(predictor.recipe.training.metric)
        select_text = predictor.tokenizers.source.select_text
        sources = [select_text(prediction.source) for prediction in predictions]
        yield "text", self.compute_scores(sources, [prediction.text for prediction in predictions], answers, metric)
        steps = predictor.tokenizers.target.steps
        if steps.rewrites:
            prepared = [[steps.prepare(text) for text in ([a] if isinstance(a, str) else a)] for a in answers]
            raw_texts = [prediction.raw_text for prediction in predictions]
            yield (
                "text as prepared for the model",
                self.compute_scores(sources, raw_texts, prepared, metric, tokenize="none"),
            )

    def compute_scores(
        self,
        sources: Sequence[str],
        texts: Sequence[str],
        answers: Sequence[str] | Sequence[list[str]],
        metric: str | None,
        tokenize: str | None = None,
    ) -> TextPredictionReport:
        """Return all scores of some texts."""
        from regard.metrics import evaluate_text

        return evaluate_text(
            sources,
            texts,
            answers,
            lowercase=self.lowercase,
            tokenize=tokenize or self.tokenize,
            against_length=metric,
            unit=self.unit,
        )

    def score_alignment(self, predictor: PairPredictor, examples: Sequence[Example]) -> AlignmentResult | None:
        """Score the attention on the reference targets against gold links, from a file or from the corpus, if any."""
        from regard.alignment import GoldLinks, align, read_pharaoh
        from regard.data.pair_check import pluralize
        from regard.metrics import alignment_error, search_head

        if self.gold is None and not has_links(predictor, examples):
            return None
        gold = [GoldLinks(example.links or frozenset()) for example in examples]
        if self.gold is not None:
            gold = read_pharaoh(self.gold, self.gold_base)
            if len(gold) != len(examples):
                raise RegardError(
                    f"{self.gold} has {pluralize(len(gold), 'line')} for {pluralize(len(examples), 'pair')}; "
                    "line n must align pair n"
                )
        forced, attention = force_examples(predictor, examples), self.parse_attention()
        units = WORDS if self.gold is None else choose_link_units(self.gold_unit, predictor, forced)
        attended = [to_attended(predictor, prediction, units) for prediction in forced]
        if self.gold is not None:
            check_gold(self.gold, gold, attended, units)
        description = units.describe(predictor)
        if attention is None:
            best = search_head(attended, gold, shifts=get_shifts(self.shift))
            return AlignmentResult(best.selection, best.score, chosen_by_gold=True, units=description)
        links = [align(attended_pair, attention) for attended_pair in attended]
        return AlignmentResult(attention, alignment_error(links, gold), chosen_by_gold=False, units=description)


def check_same_columns(predictor: PairPredictor, other: PairPredictor, runs: tuple[Path, Path]) -> None:
    """Raise a `RegardError` if another run has other numbers of columns, so that it cannot read the same data."""
    from regard.data.pair_check import pluralize

    counts, other_counts = predictor.tokenizers.column_counts, other.tokenizers.column_counts
    if other_counts != counts:
        raise RegardError(
            f"--against {runs[1]}: expected {pluralize(counts[0], 'source column')} and "
            f"{pluralize(counts[1], 'target column')}, as {runs[0]} has, got {other_counts[0]} and {other_counts[1]}"
        )


def group_targets(examples: Sequence[Example]) -> tuple[list[str], list[list[str]]]:
    """Return each source once, with all its targets."""
    answers: dict[str, list[str]] = {}
    for example in examples:
        answers.setdefault(example.source, []).append(example.target)
    return list(answers), list(answers.values())


def has_links(predictor: PairPredictor, examples: Sequence[Example]) -> bool:
    """Return whether the examples have gold links that fit the model's words, and the model has attention."""
    moses = predictor.tokenizers.source.steps.moses or predictor.tokenizers.target.steps.moses
    return bool(predictor.model.attentions) and not moses and all(example.links is not None for example in examples)
