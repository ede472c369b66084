"""Evaluate a language model on a text."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer

from regard.batch import PAD
from regard.data.documents import Chunk, Documents, read_documents
from regard.data.example import LinkedText
from regard.data.segments import (
    SCORED_TOKENS,
    WARMUP_TOKENS,
    Spans,
    Windows,
    build_evaluation_windows,
    get_document_spans,
    iter_positioned_batches,
    iter_window_batches,
)
from regard.data.token_file import TokenFile, write_tokens
from regard.decoding.score_text import iter_segment_log_probabilities
from regard.errors import RegardError
from regard.metrics.gold_attention import GoldAttention
from regard.metrics.language import score_distance_bands, score_text
from regard.metrics.score import MetricScore
from regard.tasks.progress import Progress
from regard.tasks.text.gold_attention import ContrastScore, score_contrasts, score_text_attention
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.prepare import to_chunks

SAMPLES, FARTHEST = 256, 512
"""Number of windows, and their maximum length, for the loss by length of context."""

TOKENS, SEGMENT = 16_384, 256
"""Batch size in tokens, and tokens per segment for models that carry state."""


@dataclass(frozen=True)
class TextReport:
    """The scores of a text, and its loss by length of context."""

    scores: Sequence[MetricScore]
    distances: Sequence[MetricScore]
    contrasts: ContrastScore | None = None  # of a text with contrasts
    attention: GoldAttention | None = None  # of a text with gold links

    def lines(self) -> list[str]:
        """Return the report, one line per score."""
        gold = [score for score in (self.contrasts, self.attention) if score is not None]
        return [str(score) for score in [*self.scores, *self.distances, *gold]]

    def to_json(self) -> dict[str, object]:
        """Return values for `json.dumps`."""
        gold = {"contrasts": self.contrasts, "gold_attention": self.attention}
        return {
            "scores": [score.to_json() for score in self.scores],
            "by_distance": [score.to_json() for score in self.distances],
            **{name: score.to_json() for name, score in gold.items() if score is not None},
        }


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """A tokenized text with -log p of each token, and its report."""

    report: TextReport
    tokens: Integer[np.ndarray, " tokens"]
    stops: Int[np.ndarray, " documents"]  # end of each document, after its <eos>
    nats: Float[np.ndarray, " tokens"]
    conditions: str


def evaluate_text_file(
    predictor: TextPredictor,
    path: str | Path,
    *,
    documents: Documents | None = None,
    context_length: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> TextReport:
    """Score every token of a text once, with a sliding window.

    Args:
        predictor: The language model.
        path: A text file, or a folder of text files.
        documents: The unit of text to treat as a document; by default as in training.
        context_length: The number of tokens to read at once; by default the maximum of the model.
        stride: The number of tokens to score per window; the others only give context. By default half the context
            length; for a model that carries state, all but 512, if that is more.
        progress: Called with the number of tokens scored so far.

    Returns:
        The scores, with their conditions, and the loss by length of context.

    Example:
        >>> evaluate_text_file(regard.load("runs/book"), "test.txt").lines()
    """
    scored = score_text_file(
        predictor, path, documents=documents, context_length=context_length, stride=stride, progress=progress
    )
    return scored.report


def score_text_file(
    predictor: TextPredictor,
    path: str | Path,
    *,
    documents: Documents | None = None,
    context_length: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> ScoredFile:
    """Return the report of `evaluate_text_file`, and what each token costs."""
    documents = documents or predictor.recipe.data.document_unit
    return score_documents(
        predictor, read_documents(path, documents), documents, context_length, stride, progress=progress
    )


def evaluate_linked_texts(
    predictor: TextPredictor,
    texts: Sequence[LinkedText],
    *,
    context_length: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> TextReport:
    """Score texts of a built-in corpus as `evaluate_text_file` does, and by their contrasts and gold links."""
    scored = score_documents(predictor, to_chunks(texts), "line", context_length, stride, progress=progress)
    contrasts, attention = score_contrasts(predictor, texts), score_text_attention(predictor, texts)
    return replace(scored.report, contrasts=contrasts, attention=attention)


def score_documents(
    predictor: TextPredictor,
    chunks: Iterable[Chunk],
    documents: Documents,
    context_length: int | None,
    stride: int | None,
    *,
    progress: Progress | None,
) -> ScoredFile:
    """Score every token of some documents once, with a sliding window."""
    context_length, stride = resolve_window(predictor, context_length, stride)
    with tempfile.TemporaryDirectory() as folder:
        file = write_tokens(Path(folder) / "text", chunks, predictor.tokenizer)
        spans = get_document_spans(file)
        nats, _ = compute_token_nats(predictor, file, spans, (context_length, stride), progress)
        conditions = f"context:{context_length}|stride:{stride}|documents:{documents}"
        if file.totals.unknown:
            conditions += f"|unknown:{file.totals.unknown}"
        scores = score_text(
            float(nats.sum()),
            tokens=len(file.tokens) - len(file),  # <bos> is not predicted
            words=file.words,
            characters=file.characters,
            conditions=conditions,
        )
        report = TextReport(scores, measure_loss_by_distance(predictor, file, spans))
        return ScoredFile(report, np.array(file.tokens), np.array(file.stops), nats, conditions)


def compute_token_nats(
    predictor: TextPredictor, file: TokenFile, spans: Spans, window: tuple[int, int], progress: Progress | None = None
) -> tuple[Float[np.ndarray, " tokens"], Bool[np.ndarray, " tokens"]]:
    """Return -log p of each token of a file, and which tokens are scored: those of the spans, except their first.

    Args:
        predictor: The language model.
        file: The tokens.
        spans: The parts of the file to score.
        window: Context length and stride, as from `resolve_window`.
        progress: Called with the number of tokens scored so far.
    """
    context_length, stride = window
    windows = build_evaluation_windows(spans, stride=stride, warmup=context_length - stride)
    segment_length = min(context_length, SEGMENT) if predictor.model.stateful else context_length
    nats, is_scored, count = np.zeros(len(file.tokens)), np.zeros(len(file.tokens), dtype=bool), 0
    for segments in iter_positioned_batches(windows, file, batch_tokens=TOKENS, segment_length=segment_length):
        batches = [segment.batch for segment in segments]
        for (batch, positions), log_probabilities in zip(
            segments, iter_segment_log_probabilities(predictor.model, batches, predictor.device), strict=True
        ):
            has_target = batch.targets != PAD
            scored = positions[has_target].numpy()
            nats[scored], is_scored[scored] = -log_probabilities.double().cpu()[has_target].numpy(), True
            count += len(scored)
            if progress is not None:
                progress(count)
    return nats, is_scored


def resolve_window(predictor: TextPredictor, context_length: int | None, stride: int | None) -> tuple[int, int]:
    """Return the context length and the stride, with defaults filled in; raise a `RegardError` if out of bounds."""
    max_positions = predictor.model.max_length
    if context_length is None:
        context_length = max_positions or max(stride or SCORED_TOKENS, 1) + WARMUP_TOKENS
    if context_length < 1 or (max_positions is not None and context_length > max_positions):
        bounds = "at least 1" if max_positions is None else f"from 1 to {max_positions}"
        raise RegardError(f"evaluate: context_length must be {bounds} for {predictor.name}, got {context_length}")
    if stride is None:
        stride = max(1, context_length // 2, 0 if max_positions else context_length - WARMUP_TOKENS)
    if not 1 <= stride <= context_length:
        raise RegardError(f"evaluate: stride must be from 1 to context_length ({context_length}), got {stride}")
    return context_length, stride


def measure_loss_by_distance(predictor: TextPredictor, file: TokenFile, spans: Spans) -> list[MetricScore]:
    """Return the loss by length of context."""
    max_distance = get_max_distance(predictor)
    nats, counts = torch.zeros(max_distance, dtype=torch.float64), torch.zeros(max_distance, dtype=torch.long)
    for row_nats, has_target in iter_nats_by_distance(predictor, file, spans):
        time = has_target.shape[1]
        nats[:time] += row_nats.sum(0)
        counts[:time] += has_target.sum(0)
    return score_distance_bands(nats.tolist(), counts.tolist())


def iter_nats_by_distance(
    predictor: TextPredictor, file: TokenFile, spans: Spans
) -> Iterator[tuple[Float[torch.Tensor, "windows tokens"], Bool[torch.Tensor, "windows tokens"]]]:
    """Yield -log p of tokens in windows without earlier context, spread over the text, and where there is a token."""
    max_distance = get_max_distance(predictor)
    windows = thin_windows(build_evaluation_windows(spans, stride=max_distance, warmup=0), SAMPLES)
    for segments in iter_window_batches(windows, file, batch_tokens=TOKENS, segment_length=max_distance):
        for batch, log_probabilities in zip(
            segments, iter_segment_log_probabilities(predictor.model, segments, predictor.device), strict=True
        ):
            yield -log_probabilities.double().cpu(), batch.targets != PAD


def get_max_distance(predictor: TextPredictor) -> int:
    """Return the longest context to measure the loss for."""
    return min(predictor.model.max_length or FARTHEST, FARTHEST)


def thin_windows(windows: Windows, max_windows: int) -> Windows:
    """Return at most `max_windows` windows, evenly spaced."""
    return windows[:: max(1, -(-len(windows) // max_windows))]
