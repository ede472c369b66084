"""Whether a prediction is right, and how far it is from right."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

from regard.metrics.score import Answers, Score, right_answers

Unit = Literal["word", "character"]


class Edits(NamedTuple):
    """What it takes to put a prediction right, and how long the right answer is."""

    edits: int
    length: int


def exact_match(predictions: Sequence[str], references: Answers, *, lowercase: bool = False) -> Score:
    """The share of predictions that equal a right answer, to the last space; 0 to 1."""
    right = matches(predictions, references, lowercase=lowercase)
    return Score("exact match", sum(right) / len(right), signature(references, lowercase))


def word_error_rate(predictions: Sequence[str], references: Answers, *, lowercase: bool = False) -> Score:
    """Words to insert, delete or replace, for each word of the right answers; 0 is perfect, above 1 possible."""
    return error_rate(predictions, references, "word", lowercase=lowercase)


def character_error_rate(predictions: Sequence[str], references: Answers, *, lowercase: bool = False) -> Score:
    """As `word_error_rate`, for characters (code points, spaces among them)."""
    return error_rate(predictions, references, "character", lowercase=lowercase)


def error_rate(predictions: Sequence[str], references: Answers, unit: Unit, *, lowercase: bool = False) -> Score:
    """All edits over the length of all right answers, in words or characters; of several the nearest.

    Where all right answers are empty there is nothing to divide by: the rate is then the
    number of edits.
    """
    found = edits(predictions, references, unit, lowercase=lowercase)
    total = sum(each.edits for each in found) / max(sum(each.length for each in found), 1)
    return Score(f"{unit} error rate", total, signature(references, lowercase))


def matches(predictions: Sequence[str], references: Answers, *, lowercase: bool = False) -> list[bool]:
    """Whether each prediction equals a right answer; any space between words is as good as another."""
    answers = right_answers("exact match", predictions, references)
    return [
        cased(prediction, lowercase).split() in [cased(answer, lowercase).split() for answer in each]
        for prediction, each in zip(predictions, answers, strict=True)
    ]


def edits(predictions: Sequence[str], references: Answers, unit: Unit, *, lowercase: bool = False) -> list[Edits]:
    """The way from each prediction to the nearest of its right answers, the longest of equally near ones."""
    answers = right_answers(f"{unit} error rate", predictions, references)
    found = []
    for prediction, each in zip(predictions, answers, strict=True):
        ours = units(cased(prediction, lowercase), unit)
        right = [units(cased(answer, lowercase), unit) for answer in each]
        ways = [Edits(edit_distance(ours, answer), len(answer)) for answer in right]
        found.append(min(ways, key=lambda way: (way.edits, -way.length)))
    return found


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and replacements that turn one sequence into the other (Levenshtein).

    A column of the table of distances is two numbers, whose bits say where it rises and
    falls by one from a row to the next; a step along `right` takes a few operations on
    them, however long `left` is (Myers 1999, as Hyyrö 2001 puts it).
    """
    if not left:
        return len(right)
    places: dict[Hashable, int] = {}
    for row, item in enumerate(left):
        places[item] = places.get(item, 0) | 1 << row
    every, last = (1 << len(left)) - 1, 1 << len(left) - 1
    rises, falls, distance = every, 0, len(left)
    for item in right:
        equal = places.get(item, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal
        along_rises = falls | ~(diagonal | rises) & every
        along_falls = rises & diagonal
        distance += bool(along_rises & last) - bool(along_falls & last)
        along_rises, along_falls = along_rises << 1 | 1, along_falls << 1
        steady = equal | falls
        rises, falls = (along_falls | ~(steady | along_rises)) & every, along_rises & steady & every
    return distance


def units(text: str, unit: Unit) -> Sequence[str]:
    """What is counted: words between spaces, or characters."""
    return text.split() if unit == "word" else text


def cased(text: str, lowercase: bool) -> str:
    """The text, with upper case as lower where the two count as the same."""
    return text.lower() if lowercase else text


def signature(references: Answers, lowercase: bool) -> str:
    """The conditions, in the words of sacrebleu's signatures."""
    counts = {1 if isinstance(each, str) else len(each) for each in references}
    several = counts.pop() if len(counts) == 1 else "var"
    return f"nrefs:{several}|case:{'lc' if lowercase else 'mixed'}|sentences:{len(references)}"
