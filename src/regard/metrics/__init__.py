"""How good predictions are: scores with the conditions under which they hold."""

from regard.metrics.alignment import AlignmentScore, FoundHead, alignment_error, search_head
from regard.metrics.by_length import LengthRow, by_length
from regard.metrics.evaluation import METRICS, Report, evaluate_text
from regard.metrics.score import Score
from regard.metrics.sequences import character_error_rate, edit_distance, exact_match, word_error_rate
from regard.metrics.significance import Comparison, compare_found, paired_bootstrap
from regard.metrics.translation import bleu, chrf

__all__ = [
    "METRICS",
    "AlignmentScore",
    "Comparison",
    "FoundHead",
    "LengthRow",
    "Report",
    "Score",
    "alignment_error",
    "bleu",
    "by_length",
    "character_error_rate",
    "chrf",
    "compare_found",
    "edit_distance",
    "evaluate_text",
    "exact_match",
    "paired_bootstrap",
    "search_head",
    "word_error_rate",
]
