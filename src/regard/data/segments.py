"""Plan batches of document segments for language models, under a token budget.

A span (start, stop) of a token file reads tokens[start : stop - 1] and predicts
tokens[start + 1 : stop], so it has stop - start - 1 targets. Spans never cross the end of a
document. They are rows of an array, because there can be millions.

A batch depends only on spans, settings, seed and epoch, so training can resume at any
batch index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Int

from regard.batch import PAD, TextBatch
from regard.data.batches import POOL_BATCHES, batch_name, order_by_length, split_by_budget
from regard.data.formats.lines import quote_text
from regard.data.token_file import TokenFile
from regard.errors import RegardError
from regard.text.tokenizer import Tokenizer

Span = tuple[int, int]
Spans = Int[np.ndarray, "_ 2"]

Windows = Int[np.ndarray, "_ 3"]

MIN_WHOLE_DOCUMENTS = 20
"""With at least this many documents, validation uses whole ones; with fewer, the end of each."""

MIN_WAVES = 8
"""Minimum number of waves if one is not enough: only the last one has empty rows."""

MAX_PIECE_SEGMENTS = 32
"""Maximum segments per piece, so batches differ between epochs and the model often starts from its initial state."""

SCORED_TOKENS, WARMUP_TOKENS = 4096, 512
"""Tokens scored per window, and tokens read before them, for a model that carries its state."""

MAX_SHOWN_TOKENS = 16  # tokens of a row shown in an error message


def get_document_spans(file: TokenFile) -> Spans:
    """Return the spans of whole documents."""
    return np.stack([file.starts, file.stops], axis=1)


def split_validation_spans(file: TokenFile, share: float, seed: int = 0) -> tuple[Spans, Spans]:
    """Split a text into training and validation spans, with about `share` of the tokens for validation.

    With many documents, random whole documents are used for validation, except those longer than the share. With
    few, the end of each document is used.
    """
    if not 0 < share < 1:
        raise RegardError(f"validation_share must be above 0 and below 1, got {share}")
    whole = get_document_spans(file)
    targets = count_targets(whole)
    if len(whole) < MIN_WHOLE_DOCUMENTS:
        first = whole[:, 1] - np.clip(np.round(targets * share).astype(np.int64), 1, targets - 1)
        train, valid = np.stack([whole[:, 0], first], axis=1), np.stack([first - 1, whole[:, 1]], axis=1)
        return train[count_targets(train) > 0], valid[count_targets(valid) > 0]
    max_targets = share * targets.sum()
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(whole))
    order = order[targets[order] <= max_targets]
    chosen = order[np.cumsum(targets[order]) <= max_targets]
    is_validation = np.isin(np.arange(len(whole)), chosen if len(chosen) else targets.argmin())
    return whole[~is_validation], whole[is_validation]


def count_targets(spans: Spans) -> Int[np.ndarray, " _"]:
    """Return the number of predicted tokens of each span."""
    return spans[:, 1] - spans[:, 0] - 1


class BatchSpans(NamedTuple):
    """One batch: the span of each row (empty if the row has ended), and whether the rows start here."""

    rows: tuple[Span, ...]
    fresh: bool


class TrainingPlan(Sequence[BatchSpans]):
    """The batches of one epoch, built on access; every target of every span is in exactly one batch.

    Documents are split into pieces, pieces of similar length form waves, and the rows of a
    wave are read segment by segment.

    Args:
        spans: Spans to train on.
        batch_tokens: Maximum number of tokens per batch, padding included.
        segment_length: Maximum number of tokens per row and batch.
        carries: Whether the model carries its state from one segment to the next. If so, documents are split into
            equal pieces, as long as possible while all rows are filled, up to `MAX_PIECE_SEGMENTS` segments. If
            not, a piece is one segment. Documents and segments are split at different positions in each epoch.
        seed: Seed of the random order, combined with `epoch`.
        epoch: Number of completed epochs.
    """

    def __init__(
        self, spans: Spans, *, batch_tokens: int, segment_length: int, carries: bool, seed: int = 0, epoch: int = 0
    ) -> None:
        if not 1 <= segment_length <= batch_tokens:
            raise RegardError(
                f"segment_length must be at least 1 and at most batch_tokens ({batch_tokens}), got {segment_length}"
            )
        random = np.random.Generator(np.random.PCG64([seed, epoch]))
        spans = spans[count_targets(spans) > 0]
        if carries:
            max_length = compute_piece_length(count_targets(spans), batch_tokens // segment_length, segment_length)
            parts = -(
                -max_length
                // (segment_length * int(random.integers(-(-3 * MAX_PIECE_SEGMENTS // 4), MAX_PIECE_SEGMENTS + 1)))
            )
            self.pieces = cut_equal_pieces(
                spans,
                stretch_piece_length(count_targets(spans), batch_tokens // segment_length, -(-max_length // parts)),
            )
        else:
            self.pieces = cut_random_pieces(spans, segment_length, random)
        lengths = count_targets(self.pieces)
        max_length = int(lengths.max(initial=1))
        pool = max(POOL_BATCHES * batch_tokens, MIN_WAVES * max_length * (batch_tokens // segment_length))
        order = order_by_length(np.stack([lengths, lengths], axis=1), random, pool)
        waves = split_by_budget(order, np.minimum(lengths, segment_length), batch_tokens) if len(order) else []
        self.waves = [waves[index] for index in random.permutation(len(waves))]
        self.max_lengths = np.array([lengths[wave].max() for wave in self.waves], np.int64)
        size = int(random.integers(-(-3 * segment_length // 4), segment_length + 1)) if carries else segment_length
        self.segments = np.where(self.max_lengths > segment_length, -(-self.max_lengths // size), 1)  # per wave
        self.stops = np.cumsum(self.segments)

    def __len__(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    @overload
    def __getitem__(self, index: int) -> BatchSpans: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BatchSpans]: ...
    def __getitem__(self, index: int | slice) -> BatchSpans | Sequence[BatchSpans]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        wave = int(np.searchsorted(self.stops, index, side="right"))
        number = index - int(self.stops[wave] - self.segments[wave])
        size = -(-int(self.max_lengths[wave]) // int(self.segments[wave]))
        rows = get_segments(self.pieces[self.waves[wave]], number, size)
        return BatchSpans(tuple((start, stop) for start, stop in rows.tolist()), number == 0)

    @property
    def padding(self) -> float:
        """Padding as a share of all positions of all batches."""
        positions = sum(
            len(wave) * int(max_length) for wave, max_length in zip(self.waves, self.max_lengths, strict=True)
        )
        return 1 - int(count_targets(self.pieces).sum()) / positions if positions else 0.0


def compute_piece_length(targets: Int[np.ndarray, " _"], rows: int, segment_length: int) -> int:
    """Return the maximum number of targets per piece that keeps the rows filled.

    If the pieces do not fit into one wave, a second wave could have a single row and still take as long. Shorter
    pieces give more waves, and only the last one is not full.
    """
    total = int(targets.sum())
    max_length = max(1, -(-total // rows))
    if int((-(-targets // max_length)).sum()) <= rows:
        return max_length
    return max(-(-total // (rows * MIN_WAVES)), min(max_length, segment_length))


def stretch_piece_length(targets: Int[np.ndarray, " spans"], rows: int, max_length: int) -> int:
    """Return a slightly larger piece length if that avoids a mostly empty last wave."""
    waves = int((-(-targets // max_length)).sum()) // rows
    longer = [int(max_length * (1 + step / 50)) for step in range(20)]
    return next((length for length in longer if (-(-targets // length)).sum() <= waves * rows), max_length)


def cut_equal_pieces(spans: Spans, max_length: int) -> Spans:
    """Split every span into as few pieces as possible, equal in length up to one target."""
    targets = count_targets(spans)
    counts = -(-targets // max_length)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # index of a piece in its span
    edges = [spans[owner, 0] + targets[owner] * index // counts[owner] for index in (number, number + 1)]
    return np.stack([edges[0], edges[1] + 1], axis=1)


def cut_random_pieces(spans: Spans, segment_length: int, random: np.random.Generator) -> Spans:
    """Split every long span into pieces of `segment_length` targets, from a random offset."""
    targets = count_targets(spans)
    offset = np.where(targets > segment_length, random.integers(1, segment_length + 1, len(spans)), targets)
    counts = 1 + -(-(targets - offset) // segment_length)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    stops = np.minimum(offset[owner] + number * segment_length, targets[owner])
    starts = np.where(number == 0, 0, stops[np.maximum(np.arange(len(owner)) - 1, 0)])
    return np.stack([spans[owner, 0] + starts, spans[owner, 0] + stops + 1], axis=1)


def get_segments(pieces: Spans, number: int, size: int) -> Spans:
    """Return segment `number` of each piece: `size` targets, fewer at the end of the piece, none after it."""
    last = pieces[:, 1] - 1
    starts = np.minimum(pieces[:, 0] + number * size, last)
    return np.stack([starts, np.minimum(starts + size, last) + 1], axis=1)


def build_text_batch(file: TokenFile, rows: Spans, fresh: bool) -> TextBatch:
    """Build a batch from spans."""
    lengths = count_targets(rows)
    width = int(lengths.max())
    positions = rows[:, :1] + np.arange(width + 1)
    tokens = file.tokens[np.minimum(positions, len(file.tokens) - 1)].astype(np.int64)
    inside = np.arange(width) < lengths[:, None]
    inputs, targets = np.where(inside, tokens[:, :-1], PAD), np.where(inside, tokens[:, 1:], PAD)
    return TextBatch(torch.from_numpy(inputs), torch.from_numpy(targets), fresh)


@dataclass(frozen=True)
class SegmentBatches:
    """A text to train on, with the interface of the training loop; see `TrainingPlan`."""

    file: TokenFile
    spans: Spans
    tokenizer: Tokenizer
    batch_tokens: int
    segment_length: int
    carries: bool
    seed: int

    def plan(self, epoch: int) -> TrainingPlan:
        return TrainingPlan(
            self.spans,
            batch_tokens=self.batch_tokens,
            segment_length=self.segment_length,
            carries=self.carries,
            seed=self.seed,
            epoch=epoch,
        )

    def batch(self, indices: BatchSpans, epoch: int) -> TextBatch:
        return build_text_batch(self.file, np.array(indices.rows, np.int64), indices.fresh)

    def name(self, indices: BatchSpans) -> str:
        return batch_name(self._name_row(start, stop) for start, stop in indices.rows if stop - start > 1)

    def _name_row(self, start: int, stop: int) -> str:
        document = int(np.searchsorted(self.file.stops, start, side="right"))
        text = self.tokenizer.decode(self.file.tokens[start : min(start + MAX_SHOWN_TOKENS, stop)].tolist())
        return f"document {document + 1} from token {start - int(self.file.starts[document])} on, {quote_text(text)}"


class ScoringWindow(NamedTuple):
    """A part of a text to score: tokens[score_from:stop], given tokens[read_from:stop - 1]."""

    read_from: int
    score_from: int
    stop: int


def build_evaluation_windows(spans: Spans, *, stride: int, warmup: int) -> Windows:
    """Build windows (rows as in `ScoringWindow`) that score every target once, `stride` targets per window.

    A window reads up to `warmup` extra tokens of its span before its targets, so at most stride + warmup tokens.
    """
    if stride < 1:
        raise RegardError(f"stride must be at least 1, got {stride}")
    if warmup < 0:
        raise RegardError(f"warmup must be at least 0, got {warmup}")
    counts = -(-count_targets(spans) // stride)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # index of a window in its span
    score_from = spans[owner, 0] + 1 + number * stride
    read_from = np.maximum(spans[owner, 0], score_from - 1 - warmup)
    return np.stack([read_from, score_from, np.minimum(score_from + stride, spans[owner, 1])], axis=1)


class PositionedBatch(NamedTuple):
    """A batch, and the position of each target in the token file."""

    batch: TextBatch
    positions: Int[torch.Tensor, "rows time"]


def iter_window_batches(
    windows: Windows, file: TokenFile, *, batch_tokens: int, segment_length: int
) -> Iterator[list[TextBatch]]:
    """Yield groups of windows of similar length, longest first, each as a list of segments to read in order.

    Targets that are not scored are PAD. Every row starts with its window, so results do not depend on the other
    rows of the group or on the token budget.
    """
    for segments in iter_positioned_batches(windows, file, batch_tokens=batch_tokens, segment_length=segment_length):
        yield [segment.batch for segment in segments]


def iter_positioned_batches(
    windows: Windows, file: TokenFile, *, batch_tokens: int, segment_length: int
) -> Iterator[list[PositionedBatch]]:
    """Yield the batches of `iter_window_batches` with the positions of their targets."""
    spans = windows[:, [0, 2]]
    lengths = count_targets(spans)
    order = np.argsort(-lengths, kind="stable")
    for group in split_by_budget(order, np.minimum(lengths, segment_length), batch_tokens) if len(order) else []:
        batches = []
        for number in range(-(-int(lengths[group].max()) // segment_length)):
            rows = get_segments(spans[group], number, segment_length)
            batch = build_text_batch(file, rows, fresh=number == 0)
            positions = torch.from_numpy(rows[:, :1] + 1 + np.arange(batch.targets.shape[1]))
            scored = positions >= torch.from_numpy(windows[group, 1:2])
            targets = batch.targets.where(scored, PAD)
            batches.append(PositionedBatch(TextBatch(batch.tokens, targets, batch.fresh), positions))
        yield batches
