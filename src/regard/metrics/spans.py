"""Metrics of span tagging: a span is correct if its type, first and last word are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from regard.errors import RegardError
from regard.metrics.labels import (
    PredictionCounts,
    ScoreReport,
    check_predictions,
    count_by_kind,
    macro_average,
    sum_counts,
)
from regard.metrics.score import MetricScore
from regard.schemes import Scheme, tags_to_spans


@dataclass(frozen=True)
class SpanReport(ScoreReport):
    """Precision, recall and F1 over all spans, their means over types, and the counts per type."""

    kinds = "by_type"

    f1: MetricScore
    precision: MetricScore
    recall: MetricScore
    macro_f1: MetricScore
    macro_precision: MetricScore
    macro_recall: MetricScore
    by_type: dict[str, PredictionCounts]


def span_report(
    predictions: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], *, strict: Scheme | None = None
) -> SpanReport:
    """Score the spans of predicted tags against gold tags; the numbers equal seqeval's.

    Means are over the types that are predicted or gold.

    Args:
        predictions: Predicted tags of each sentence.
        gold: Gold tags of each sentence.
        strict: Scheme (BIO, BIOES or BILOU) in which incomplete spans do not count, as in seqeval's strict mode. By
            default tags are read leniently for any scheme, as conlleval and seqeval do.

    Raises:
        RegardError: The numbers of sentences or tags differ.
    """
    check_predictions("span_report", len(predictions), len(gold))
    for number, (tags, right) in enumerate(zip(predictions, gold, strict=True), start=1):
        if len(tags) != len(right):
            raise RegardError(
                f"span_report: sentence {number}: expected {len(right)} predicted tags, as in gold, got {len(tags)}"
            )
    predicted_spans, gold_spans = (
        [set(tags_to_spans(tags, strict)) for tags in sentences] for sentences in (predictions, gold)
    )
    by_type = count_by_kind(predicted_spans, gold_spans, attrgetter("type"))
    counts, means = sum_counts(by_type), macro_average(by_type)
    mode = f"mode:strict|scheme:{strict}" if strict else "mode:default"
    micro_conditions = f"{mode}|{counts.signature()}|sentences:{len(gold)}"
    macro_conditions = f"{mode}|types:{len(by_type)}|sentences:{len(gold)}"
    return SpanReport(
        f1=MetricScore("F1", counts.f1, micro_conditions),
        precision=MetricScore("precision", counts.precision, micro_conditions),
        recall=MetricScore("recall", counts.recall, micro_conditions),
        macro_f1=MetricScore("macro F1", means.f1, macro_conditions),
        macro_precision=MetricScore("macro precision", means.precision, macro_conditions),
        macro_recall=MetricScore("macro recall", means.recall, macro_conditions),
        by_type=by_type,
    )
