"""Exact match and error rates of predicted text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from regard.metrics.score import MetricScore, References, collect_references

LengthUnit = Literal["word", "character"]


class Edits(NamedTuple):
    """The edit distance of a prediction, and the length of the reference."""

    edits: int
    length: int


def exact_match(predictions: Sequence[str], references: References, *, lowercase: bool = False) -> MetricScore:
    """Return the share of predictions that equal a reference, ignoring differences in whitespace; 0 to 1.

    Args:
        predictions: Predicted texts.
        references: Reference, or several references, for each prediction.
        lowercase: Whether to ignore case.
    """
    right = find_matches(predictions, references, lowercase=lowercase)
    return MetricScore("exact match", sum(right) / len(right), build_signature(references, lowercase))


def whole_word_error_rate(
    predictions: Sequence[str], references: References, *, lowercase: bool = False
) -> MetricScore:
    """Return the share of predictions that equal no reference, 1 - exact match.

    This is what "word error rate" means if each source is one word, as in grapheme-to-phoneme
    conversion. The arguments are those of `exact_match`.
    """
    exact = exact_match(predictions, references, lowercase=lowercase)
    return replace(exact, name="word error rate (1 - exact match)", value=1 - exact.value)


def word_error_rate(predictions: Sequence[str], references: References, *, lowercase: bool = False) -> MetricScore:
    """Return the number of word edits per reference word; 0 is perfect, and values above 1 are possible.

    Args:
        predictions: Predicted texts.
        references: Reference, or several references, for each prediction; the nearest counts.
        lowercase: Whether to ignore case.
    """
    rate = error_rate(predictions, references, "word", lowercase=lowercase)
    return replace(rate, name="word error rate (edits per word)")


def token_error_rate(predictions: Sequence[str], references: References, *, lowercase: bool = False) -> MetricScore:
    """Return the number of token edits per reference token, for targets whose tokens are separated by spaces.

    Tokens are phones, for example: this is the phone error rate of grapheme-to-phoneme
    conversion. The value and the arguments are those of `word_error_rate`.
    """
    rate = error_rate(predictions, references, "word", lowercase=lowercase)
    return replace(rate, name="token error rate (edits per token, such as a phone)")


def character_error_rate(predictions: Sequence[str], references: References, *, lowercase: bool = False) -> MetricScore:
    """Return the number of character edits per reference character (code points, including spaces).

    The arguments are those of `word_error_rate`.
    """
    return error_rate(predictions, references, "character", lowercase=lowercase)


def error_rate(
    predictions: Sequence[str], references: References, unit: LengthUnit, *, lowercase: bool = False
) -> MetricScore:
    """Return all edits divided by the length of all references, in words or characters.

    If all references are empty, the rate is the number of edits.
    """
    all_edits = count_edits(predictions, references, unit, lowercase=lowercase)
    total = sum(edit.edits for edit in all_edits) / max(sum(edit.length for edit in all_edits), 1)
    return MetricScore(f"{unit} error rate", total, build_signature(references, lowercase))


def find_matches(predictions: Sequence[str], references: References, *, lowercase: bool = False) -> list[bool]:
    """Return whether each prediction equals a reference, ignoring differences in whitespace."""
    answers = collect_references("exact match", predictions, references)
    return [
        apply_case(prediction, lowercase).split() in [apply_case(answer, lowercase).split() for answer in accepted]
        for prediction, accepted in zip(predictions, answers, strict=True)
    ]


def count_edits(
    predictions: Sequence[str], references: References, unit: LengthUnit, *, lowercase: bool = False
) -> list[Edits]:
    """Return the edits from each prediction to its nearest reference, the longest of equally near ones."""
    answers = collect_references(f"{unit} error rate", predictions, references)
    nearest = []
    for prediction, accepted in zip(predictions, answers, strict=True):
        predicted = to_units(apply_case(prediction, lowercase), unit)
        right = [to_units(apply_case(answer, lowercase), unit) for answer in accepted]
        candidates = [Edits(edit_distance(predicted, answer), len(answer)) for answer in right]
        nearest.append(min(candidates, key=lambda way: (way.edits, -way.length)))
    return nearest


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return the Levenshtein distance: the fewest insertions, deletions and replacements.

    Uses the bit-parallel algorithm of Myers (1999) in the form of Hyyrö (2001): a column of the
    distance table is two integers whose bits mark rises and falls between rows, so each item
    of `right` takes a few integer operations.

    Args:
        left: A sequence, such as a string or a list of words.
        right: Another sequence.

    Example:
        >>> edit_distance("kitten", "sitting")
        3
    """
    if not left:
        return len(right)
    row_bits: dict[Hashable, int] = {}
    for row, item in enumerate(left):
        row_bits[item] = row_bits.get(item, 0) | 1 << row
    every, last = (1 << len(left)) - 1, 1 << len(left) - 1
    rises, falls, distance = every, 0, len(left)
    for item in right:
        equal = row_bits.get(item, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal
        along_rises = falls | ~(diagonal | rises) & every
        along_falls = rises & diagonal
        distance += bool(along_rises & last) - bool(along_falls & last)
        along_rises, along_falls = along_rises << 1 | 1, along_falls << 1
        steady = equal | falls
        rises, falls = (along_falls | ~(steady | along_rises)) & every, along_rises & steady & every
    return distance


def to_units(text: str, unit: LengthUnit) -> Sequence[str]:
    """Split a text into words or characters."""
    return text.split() if unit == "word" else text


def apply_case(text: str, lowercase: bool) -> str:
    """Lowercase a text if `lowercase` is set."""
    return text.lower() if lowercase else text


def build_signature(references: References, lowercase: bool) -> str:
    """Return the conditions in the style of sacrebleu's signatures."""
    counts = {1 if isinstance(reference, str) else len(reference) for reference in references}
    reference_count = counts.pop() if len(counts) == 1 else "var"
    return f"nrefs:{reference_count}|case:{'lc' if lowercase else 'mixed'}|sentences:{len(references)}"
