"""How well spans of words are found, each counted whole: its type, its first and its last word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from regard.errors import RegardError
from regard.metrics.labels import Counts, ScoreReport, check_pairs, counts_by_kind, macro, total
from regard.metrics.score import Score
from regard.schemes import Scheme, spans_of


@dataclass(frozen=True)
class SpanReport(ScoreReport):
    """Precision, recall and F1 of all spans together, their means over the types, and the counts of each type."""

    kinds = "by_type"

    f1: Score
    precision: Score
    recall: Score
    macro_f1: Score
    macro_precision: Score
    macro_recall: Score
    by_type: dict[str, Counts]


def span_report(
    predictions: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], *, strict: Scheme | None = None
) -> SpanReport:
    """Score the spans that predicted tags mark against those of the gold tags, equal to seqeval's numbers.

    Tags are read as conlleval and seqeval do unless told otherwise, whatever the scheme; with a
    strict scheme (BIO, BIOES or BILOU) spans that are not whole do not count, as in seqeval's
    strict mode. Means are over the types that are predicted or gold.
    """
    check_pairs("span_report", len(predictions), len(gold))
    for place, (tags, right) in enumerate(zip(predictions, gold, strict=True), start=1):
        if len(tags) != len(right):
            raise RegardError(
                f"span_report: sentence {place} has {len(tags)} predicted tags, {len(right)} gold; each word has one"
            )
    ours, theirs = ([set(spans_of(tags, strict)) for tags in each] for each in (predictions, gold))
    by_type = counts_by_kind(ours, theirs, attrgetter("type"))
    counts, means = total(by_type), macro(by_type)
    mode = f"mode:strict|scheme:{strict}" if strict else "mode:default"
    together = f"{mode}|{counts.signature()}|sentences:{len(gold)}"
    apart = f"{mode}|types:{len(by_type)}|sentences:{len(gold)}"
    return SpanReport(
        f1=Score("F1", counts.f1, together),
        precision=Score("precision", counts.precision, together),
        recall=Score("recall", counts.recall, together),
        macro_f1=Score("macro F1", means.f1, apart),
        macro_precision=Score("macro precision", means.precision, apart),
        macro_recall=Score("macro recall", means.recall, apart),
        by_type=by_type,
    )
