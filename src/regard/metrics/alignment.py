"""How well links between words agree with those drawn by people (Och and Ney 2003)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple

from regard.alignment import (
    SHIFTS,
    Attended,
    Gold,
    Place,
    links_from,
    merge_words,
    select,
    shift_rows,
)
from regard.data.example import Links
from regard.errors import RegardError


@dataclass(frozen=True)
class AlignmentScore:
    """The agreement of all links of a corpus with the gold standard."""

    precision: float  # the share of our links that are possible
    recall: float  # the share of sure links that are ours
    error_rate: float
    sentences: int
    links: int
    sure: int

    def __str__(self) -> str:
        return (
            f"AER {self.error_rate:.4f} (precision {self.precision:.4f}|recall {self.recall:.4f}|"
            f"sentences:{self.sentences}|links:{self.links}|sure:{self.sure})"
        )

    def to_json(self) -> dict[str, float | int]:
        """Ready for `json.dumps`."""
        return asdict(self)


class FoundHead(NamedTuple):
    """An attention and how well its links agree with the gold standard."""

    place: Place
    score: AlignmentScore


def alignment_error(predicted: Sequence[Links], gold: Sequence[Gold]) -> AlignmentScore:
    """Precision |A∩P|/|A|, recall |A∩S|/|S| and the error rate 1 - (|A∩S|+|A∩P|)/(|A|+|S|), over all sentences.

    A are our links, S the sure and P the possible ones. Without a link of ours the
    precision is 0.
    """
    check_pairs("alignment_error", len(predicted), len(gold))
    pairs = list(zip(predicted, gold, strict=True))
    links, sure = sum(map(len, predicted)), sum(len(each.sure) for each in gold)
    if not sure:
        raise RegardError("alignment_error: the gold standard has no sure link; recall needs one")
    found_sure = sum(len(ours & each.sure) for ours, each in pairs)
    found_possible = sum(len(ours & each.possible) for ours, each in pairs)
    return AlignmentScore(
        precision=found_possible / links if links else 0.0,
        recall=found_sure / sure,
        error_rate=1 - (found_sure + found_possible) / (links + sure),
        sentences=len(gold),
        links=links,
        sure=sure,
    )


def search_head(
    examples: Sequence[Attended],
    gold: Sequence[Gold],
    *,
    shifts: Sequence[int] = SHIFTS,
    method: str = "argmax",
    threshold: float | None = None,
) -> FoundHead:
    """The attention whose links have the lowest error rate on a small gold standard.

    Tried are each head, the mean over the heads of each layer and that over all, with each
    shift; of equally good ones the first of these wins. The rate is that of the best of
    many, so state the rate on other sentences.
    """
    check_pairs("search_head", len(examples), len(gold))
    layers, heads = same_attentions(examples)
    tried = []
    for shift in shifts:
        words = [merge_words(shift_rows(weights, shift), source, target) for weights, source, target in examples]
        for layer, head in attentions(layers, heads):
            links = [links_from(select(each, layer, head), method, threshold) for each in words]
            tried.append(FoundHead(Place(layer, head, shift), alignment_error(links, gold)))
    return min(tried, key=lambda found: found.score.error_rate)


def same_attentions(examples: Sequence[Attended]) -> tuple[int, int]:
    """How many layers and heads all examples have."""
    shapes = [tuple(example.weights.shape) for example in examples]
    for place, shape in enumerate(shapes, start=1):
        if len(shape) != 4:
            raise RegardError(
                f"search_head: weights of example {place} are {shape}; (layers, heads, target, source) is needed"
            )
        if shape[:2] != shapes[0][:2]:
            raise RegardError(
                f"search_head: example {place} has {shape[0]} layers of {shape[1]} heads, "
                f"the first {shapes[0][0]} of {shapes[0][1]}; they must come from one model"
            )
    return shapes[0][0], shapes[0][1]


def attentions(layers: int, heads: int) -> list[tuple[int | None, int | None]]:
    """Each head, then the means that are more than one head."""
    found: list[tuple[int | None, int | None]] = list(product(range(layers), range(heads)))
    if heads > 1:
        found += [(layer, None) for layer in range(layers)]
    return found if layers == 1 else [*found, (None, None)]


def check_pairs(what: str, ours: int, gold: int) -> None:
    """Raise a `RegardError` unless there are as many sentences with our links as with those drawn by people."""
    if ours != gold:
        raise RegardError(
            f"{what}: {ours} alignments, {gold} in the gold standard; line n of one must be line n of the other"
        )
    if not gold:
        raise RegardError(f"{what}: there are no alignments; one is the least")
