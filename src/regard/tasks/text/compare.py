"""Compare two language models on a text by paired bootstrap over its documents or lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int

from regard.data.documents import Documents, read_documents
from regard.errors import RegardError
from regard.metrics.score import MetricScore
from regard.metrics.significance import Comparison, SentenceCounts, compare_counts, ratio
from regard.tasks.text.evaluation import ScoredFile
from regard.tasks.text.predictor import TextPredictor
from regard.text import Tokenizer

MANY_DOCUMENTS = 20
"""Number of documents from which they are resampled; the lines of fewer documents are."""


def compare_scored_files(
    first: tuple[TextPredictor, ScoredFile],
    second: tuple[TextPredictor, ScoredFile],
    path: str | Path,
    documents: Documents,
) -> Comparison:
    """Compare two models that scored the same text.

    Models with the same tokens are compared by their loss per token, others by bits per character.
    """
    (first_predictor, first_scored), (second_predictor, second_scored) = first, second
    line_lengths = list(iter_part_lengths(path, documents, by_line=True))
    unit, first_parts, second_parts = choose_parts(
        (first_predictor.tokenizer, first_scored), (second_predictor.tokenizer, second_scored), len(line_lengths)
    )
    if np.array_equal(first_scored.tokens, second_scored.tokens):
        name, signature, factor = "loss", "nats per token", 1.0
        is_target = np.ones(len(first_parts))
        is_target[np.concatenate([[0], first_scored.stops[:-1]])] = 0  # <bos> is not predicted
        lengths = np.bincount(first_parts, is_target)
    else:
        name, signature, factor = "bits per character", "different tokens", math.log(2)
        lengths = np.array(line_lengths if unit == "lines" else list(iter_part_lengths(path, documents)), float)

    def count(scored: ScoredFile, parts: Int[np.ndarray, " tokens"]) -> tuple[MetricScore, SentenceCounts]:
        counts = np.stack([np.bincount(parts, scored.nats, len(lengths)) / factor, lengths], axis=1)
        conditions = f"{signature}|{unit}:{len(lengths)}|{scored.conditions}"
        return MetricScore(name, ratio(counts.sum(0)), conditions), counts

    return compare_counts(
        count(first_scored, first_parts), count(second_scored, second_parts), ratio, lower_is_better=True
    )


def choose_parts(
    first: tuple[Tokenizer, ScoredFile], second: tuple[Tokenizer, ScoredFile], line_count: int
) -> tuple[str, Int[np.ndarray, " tokens"], Int[np.ndarray, " other_tokens"]]:
    """Return what to resample, and the document or line of each token for both models.

    Raises:
        RegardError: There is only one document, and it has one line, or a tokenizer does not know line ends.
    """
    scored_files = (first[1], second[1])
    first_documents, second_documents = (find_documents(scored) for scored in scored_files)
    if len(first[1].stops) >= MANY_DOCUMENTS:
        return "documents", first_documents, second_documents
    first_lines, second_lines = (find_lines(tokenizer, scored) for tokenizer, scored in (first, second))
    if first_lines[-1] == second_lines[-1] == line_count - 1 > 0:
        return "lines", first_lines, second_lines
    if len(first[1].stops) > 1:
        return "documents", first_documents, second_documents
    raise RegardError("--against: expected a text of at least two lines or documents, to resample them, got one")


def find_documents(scored: ScoredFile) -> Int[np.ndarray, " tokens"]:
    """Return the document of each token."""
    return np.searchsorted(scored.stops, np.arange(len(scored.tokens)), side="right")


def find_lines(tokenizer: Tokenizer, scored: ScoredFile) -> Int[np.ndarray, " tokens"]:
    """Return the line of each token, counted over all documents; a line includes its end."""
    line_ends = np.array([tokenizer.id_to_piece(token_id).count(b"\n") for token_id in range(tokenizer.size)])
    ends = line_ends[scored.tokens]
    return np.cumsum(ends) - ends + find_documents(scored)


def iter_part_lengths(path: str | Path, documents: Documents, *, by_line: bool = False) -> Iterator[int]:
    """Yield the number of characters of each document, or of each line of each document."""
    length = 0
    for text, last in read_documents(path, documents):
        *complete, rest = text.split("\n") if by_line else [text]
        for line in complete:
            yield length + len(line) + 1
            length = 0
        length += len(rest)
        if last:
            yield length
            length = 0
