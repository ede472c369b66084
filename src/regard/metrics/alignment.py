"""Alignment error rate against human word alignments (Och and Ney 2003)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple

from regard.alignment import (
    SHIFTS,
    AttentionExample,
    GoldLinks,
    HeadSelection,
    extract_links,
    merge_words,
    select_attention,
    shift_rows,
)
from regard.data.example import Links
from regard.errors import RegardError


@dataclass(frozen=True)
class AlignmentScore:
    """The agreement of the links of a corpus with the gold alignment."""

    precision: float  # share of predicted links that are possible links
    recall: float  # share of sure links that are predicted
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
        """Return a dictionary for `json.dumps`."""
        return asdict(self)


class ScoredHead(NamedTuple):
    """A selected attention and the score of its links."""

    selection: HeadSelection
    score: AlignmentScore


def alignment_error(predicted: Sequence[Links], gold: Sequence[GoldLinks]) -> AlignmentScore:
    """Compute the alignment error rate over all sentences.

    With predicted links A, sure links S and possible links P: precision |A∩P|/|A|, recall |A∩S|/|S| and
    error rate 1 - (|A∩S|+|A∩P|)/(|A|+|S|). The precision of no links is 0.

    Args:
        predicted: Predicted links of each sentence.
        gold: Gold links of each sentence.

    Returns:
        Precision, recall and error rate.

    Raises:
        RegardError: The numbers of sentences differ, or there is no sure link.
    """
    check_alignments("alignment_error", len(predicted), len(gold))
    pairs = list(zip(predicted, gold, strict=True))
    links, sure = sum(map(len, predicted)), sum(len(gold_links.sure) for gold_links in gold)
    if not sure:
        raise RegardError("alignment_error: the gold alignment must have at least one sure link")
    sure_matches = sum(len(predicted_links & gold_links.sure) for predicted_links, gold_links in pairs)
    possible_matches = sum(len(predicted_links & gold_links.possible) for predicted_links, gold_links in pairs)
    return AlignmentScore(
        precision=possible_matches / links if links else 0.0,
        recall=sure_matches / sure,
        error_rate=1 - (sure_matches + possible_matches) / (links + sure),
        sentences=len(gold),
        links=links,
        sure=sure,
    )


def search_head(
    examples: Sequence[AttentionExample],
    gold: Sequence[GoldLinks],
    *,
    shifts: Sequence[int] = SHIFTS,
    method: str = "argmax",
    threshold: float | None = None,
) -> ScoredHead:
    """Find the attention whose links have the lowest error rate on a small gold alignment.

    Tries each head, the mean over the heads of each layer and the mean over all heads, with
    each shift; the first of equally good ones wins. The returned rate is the best of many, so
    report the rate on other sentences.

    Args:
        examples: Attention weights and words of each sentence, from one model.
        gold: Gold links of each sentence.
        shifts: Shifts to try; see `regard.alignment.shift_rows`.
        method: How weights become links; see `regard.alignment.extract_links`.
        threshold: Minimum weight of a link; see `regard.alignment.extract_links`.

    Returns:
        The best attention and its score.
    """
    check_alignments("search_head", len(examples), len(gold))
    layers, heads = check_same_shape(examples)
    tried = []
    for shift in shifts:
        words = [merge_words(shift_rows(weights, shift), source, target) for weights, source, target in examples]
        for layer, head in list_attentions(layers, heads):
            links = [
                extract_links(select_attention(word_weights, layer, head), method, threshold) for word_weights in words
            ]
            tried.append(ScoredHead(HeadSelection(layer, head, shift), alignment_error(links, gold)))
    return min(tried, key=lambda result: result.score.error_rate)


def check_same_shape(examples: Sequence[AttentionExample]) -> tuple[int, int]:
    """Return the number of layers and heads; raise a `RegardError` if examples differ."""
    shapes = [tuple(example.weights.shape) for example in examples]
    for number, shape in enumerate(shapes, start=1):
        if len(shape) != 4:
            raise RegardError(
                f"search_head: example {number}: expected weights of shape (layers, heads, target, source), got {shape}"
            )
        if shape[:2] != shapes[0][:2]:
            raise RegardError(
                f"search_head: example {number}: expected {shapes[0][0]} layers of {shapes[0][1]} heads, "
                f"as in the first, got {shape[0]} of {shape[1]}"
            )
    return shapes[0][0], shapes[0][1]


def list_attentions(layers: int, heads: int) -> list[tuple[int | None, int | None]]:
    """List each head, then the means over several heads."""
    selections: list[tuple[int | None, int | None]] = list(product(range(layers), range(heads)))
    if heads > 1:
        selections += [(layer, None) for layer in range(layers)]
    return selections if layers == 1 else [*selections, (None, None)]


def check_alignments(metric: str, predicted: int, gold: int) -> None:
    """Check that there is one predicted alignment per gold alignment."""
    if predicted != gold:
        raise RegardError(
            f"{metric}: expected one gold alignment per sentence, got {predicted} predicted and {gold} gold alignments"
        )
    if not gold:
        raise RegardError(f"{metric}: expected at least one alignment, got none")
