"""Metrics of predictions; every score carries the conditions under which it was computed."""

from regard.metrics.alignment import AlignmentScore, ScoredHead, alignment_error, search_head
from regard.metrics.by_length import LengthRow, score_by_length
from regard.metrics.evaluation import METRICS, TextPredictionReport, evaluate_text
from regard.metrics.score import MetricScore
from regard.metrics.sequences import (
    character_error_rate,
    edit_distance,
    exact_match,
    token_error_rate,
    whole_word_error_rate,
    word_error_rate,
)
from regard.metrics.significance import Comparison, compare_f1, paired_bootstrap
from regard.metrics.translation import bleu, chrf

__all__ = [
    "METRICS",
    "AlignmentScore",
    "Comparison",
    "LengthRow",
    "MetricScore",
    "ScoredHead",
    "TextPredictionReport",
    "alignment_error",
    "bleu",
    "character_error_rate",
    "chrf",
    "compare_f1",
    "edit_distance",
    "evaluate_text",
    "exact_match",
    "paired_bootstrap",
    "score_by_length",
    "search_head",
    "token_error_rate",
    "whole_word_error_rate",
    "word_error_rate",
]
