"""How good a language model is on a text it has not seen."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.batch import PAD
from regard.data.documents import Documents, read_documents
from regard.data.segments import (
    SCORED,
    WARMUP,
    Spans,
    Windows,
    document_spans,
    evaluation_windows,
    window_batches,
)
from regard.data.tokens import TokenFile, write_tokens
from regard.decoding.reading import read_on, summed_nats
from regard.errors import RegardError
from regard.metrics.language import by_distance, text_scores
from regard.metrics.score import Score
from regard.tasks.progress import Progress
from regard.tasks.text.predictor import TextPredictor

SAMPLES, FARTHEST = 256, 512
"""Windows, and their longest, by which loss against distance is measured."""

TOKENS, SEGMENT = 16_384, 256
"""Places of a batch, and how many tokens are read at once where more can be carried on."""


@dataclass(frozen=True)
class TextReport:
    """The scores of a text, and the loss by how far back the model could look."""

    scores: Sequence[Score]
    distances: Sequence[Score]

    def lines(self) -> list[str]:
        """All of it, a line each."""
        return [str(score) for score in [*self.scores, *self.distances]]

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {
            "scores": [score.to_json() for score in self.scores],
            "by_distance": [score.to_json() for score in self.distances],
        }


def evaluate_text_file(
    predictor: TextPredictor,
    path: str | Path,
    *,
    documents: Documents | None = None,
    context: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> TextReport:
    """Score a text: every token once, each after as many tokens before it as the conditions say.

    Args:
        predictor: The model.
        path: A file or a folder of text.
        documents: What a document is; as the model was trained unless told otherwise.
        context: Tokens that are read together; all that the model can unless told otherwise.
        stride: How many of these are scored, the others having been scored before; half of them,
            for a model that carries its state on all but 512, where that is more.
        progress: Told how many tokens are scored.
    """
    documents = documents or predictor.recipe.data.documents
    context, stride = windows_of(predictor, context, stride)
    with tempfile.TemporaryDirectory() as folder:
        file = write_tokens(Path(folder) / "text", read_documents(path, documents), predictor.tokenizer)
        spans = document_spans(file)
        windows = evaluation_windows(spans, stride=stride, warmup=context - stride)
        segment = min(context, SEGMENT) if predictor.model.carries else context
        groups = window_batches(windows, file, tokens=TOKENS, segment=segment)
        nats, count = summed_nats(predictor.model, groups, predictor.device, progress)
        conditions = f"context:{context}|stride:{stride}|documents:{documents}"
        if file.totals.unknown:
            conditions += f"|unknown:{file.totals.unknown}"
        scores = text_scores(nats, tokens=count, words=file.words, characters=file.characters, conditions=conditions)
        return TextReport(scores, distances(predictor, file, spans))


def windows_of(predictor: TextPredictor, context: int | None, stride: int | None) -> tuple[int, int]:
    """How much is read at once and how much of it is scored, or a `RegardError`."""
    most = predictor.model.most_places
    if context is None:
        context = most or max(stride or SCORED, 1) + WARMUP
    if context < 1 or (most is not None and context > most):
        reads = "1 or more tokens" if most is None else f"1 to {most} tokens"
        raise RegardError(f"evaluate: context is {context}; {predictor.name} reads {reads}")
    if stride is None:
        stride = max(1, context // 2, 0 if most else context - WARMUP)
    if not 1 <= stride <= context:
        raise RegardError(f"evaluate: stride is {stride}; a number from 1 to the context, {context}, is needed")
    return context, stride


def distances(predictor: TextPredictor, file: TokenFile, spans: Spans) -> list[Score]:
    """The loss by how many tokens were read before, over windows that are spread over the text and begin anew."""
    longest = min(predictor.model.most_places or FARTHEST, FARTHEST)
    windows = spread(evaluation_windows(spans, stride=longest, warmup=0), SAMPLES)
    nats, counts = torch.zeros(longest, dtype=torch.float64), torch.zeros(longest, dtype=torch.long)
    for segments in window_batches(windows, file, tokens=TOKENS, segment=longest):
        for batch, found in zip(segments, read_on(predictor.model, segments, predictor.device), strict=True):
            time = batch.targets.shape[1]
            nats[:time] -= found.double().sum(0).cpu()
            counts[:time] += (batch.targets != PAD).sum(0).cpu()
    return by_distance(nats.tolist(), counts.tolist())


def spread(windows: Windows, most: int) -> Windows:
    """At most so many windows, spread evenly over all."""
    return windows[:: max(1, -(-len(windows) // most))]
