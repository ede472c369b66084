"""What of a text is read together: segments of documents, side by side, by a budget of tokens.

A span (start, stop) of a token file is read as tokens[start : stop - 1] to predict
tokens[start + 1 : stop]: it has stop - start - 1 targets. No span reaches over the end of
a document. Spans are rows of an array, as there may be millions.

What a batch holds is a function of spans, settings, seed and epoch alone, so training
goes on from any batch by its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Int

from regard.batch import PAD, TextBatch
from regard.data.batches import POOL, batch_name, cut, like_lengths
from regard.data.formats.lines import quoted
from regard.data.tokens import TokenFile
from regard.errors import RegardError
from regard.text.tokenizer import Tokenizer

Span = tuple[int, int]
Spans = Int[np.ndarray, "_ 2"]

Windows = Int[np.ndarray, "_ 3"]

MANY = 20
"""Documents from which on whole ones are held out; of fewer, the end of each."""

WAVES = 8
"""Into how many waves a text is cut at least, if one will not do: the last of them has empty rows."""

LONG = 32
"""Segments of a piece, at most, so that batches differ between epochs and a model often begins with nothing known."""

SCORED, WARMUP = 4096, 512
"""Tokens of a window that are scored, and read before them, for a model that carries its state on."""

FIRST = 16  # tokens of a row that are shown in an error


def document_spans(file: TokenFile) -> Spans:
    """Every document whole."""
    return np.stack([file.starts, file.stops], axis=1)


def hold_out(file: TokenFile, share: float, seed: int = 0) -> tuple[Spans, Spans]:
    """What to train on and what to validate with, about this share of the tokens.

    Of many documents some whole ones, chosen at random, are held out; none that is longer than the share alone,
    unless all are. Of few, the last part of each.
    """
    if not 0 < share < 1:
        raise RegardError(f"hold_out: share is {share}; 0 < share < 1 is needed")
    whole = document_spans(file)
    targets = targets_of(whole)
    if len(whole) < MANY:
        first = whole[:, 1] - np.clip(np.round(targets * share).astype(np.int64), 1, targets - 1)
        train, valid = np.stack([whole[:, 0], first], axis=1), np.stack([first - 1, whole[:, 1]], axis=1)
        return train[targets_of(train) > 0], valid[targets_of(valid) > 0]
    most = share * targets.sum()
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(whole))
    order = order[targets[order] <= most]
    chosen = order[np.cumsum(targets[order]) <= most]
    held = np.isin(np.arange(len(whole)), chosen if len(chosen) else targets.argmin())
    return whole[~held], whole[held]


def targets_of(spans: Spans) -> Int[np.ndarray, " _"]:
    """How many tokens are predicted in each span."""
    return spans[:, 1] - spans[:, 0] - 1


class Cut(NamedTuple):
    """One batch: the span of each row, empty for a row that is at its end, and whether the rows begin here."""

    rows: tuple[Span, ...]
    fresh: bool


class TrainingPlan(Sequence[Cut]):
    """The batches of one epoch, made as they are asked for; every target of every span is in one of them.

    Documents are cut into pieces, pieces of like length are put side by side in waves, and
    a wave is read in segments, one after the other.

    Args:
        spans: What to train on.
        tokens: How many tokens a batch has at most, padding included.
        segment: How many tokens of a row are read at once, at most.
        carries: Whether the model carries on what it knows from one segment to the next. If so, documents are cut
            into equal pieces, as long as can be while all rows are filled, up to `LONG` segments. If not, a piece is
            one segment. Long documents are cut at other places in each epoch, and so are segments.
        seed: What decides the order, with `epoch`.
        epoch: How often the text has been read before.
    """

    def __init__(
        self, spans: Spans, *, tokens: int, segment: int, carries: bool, seed: int = 0, epoch: int = 0
    ) -> None:
        if not 1 <= segment <= tokens:
            raise RegardError(
                f"batches: a segment of {segment} tokens in a batch of {tokens}; from 1 to all are needed"
            )
        random = np.random.Generator(np.random.PCG64([seed, epoch]))
        spans = spans[targets_of(spans) > 0]
        if carries:
            longest = longest_piece(targets_of(spans), tokens // segment, segment)
            parts = -(-longest // (segment * int(random.integers(-(-3 * LONG // 4), LONG + 1))))
            self.pieces = equal_pieces(spans, filling(targets_of(spans), tokens // segment, -(-longest // parts)))
        else:
            self.pieces = pieces_from(spans, segment, random)
        lengths = targets_of(self.pieces)
        longest = int(lengths.max(initial=1))
        pool = max(POOL * tokens, WAVES * longest * (tokens // segment))
        order = like_lengths(np.stack([lengths, lengths], axis=1), random, pool)
        waves = cut(order, np.minimum(lengths, segment), tokens) if len(order) else []
        self.waves = [waves[place] for place in random.permutation(len(waves))]
        self.longest = np.array([lengths[wave].max() for wave in self.waves], np.int64)
        size = int(random.integers(-(-3 * segment // 4), segment + 1)) if carries else segment
        self.segments = np.where(self.longest > segment, -(-self.longest // size), 1)  # of each wave
        self.stops = np.cumsum(self.segments)

    def __len__(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    @overload
    def __getitem__(self, place: int) -> Cut: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Cut]: ...
    def __getitem__(self, place: int | slice) -> Cut | Sequence[Cut]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        wave = int(np.searchsorted(self.stops, place, side="right"))
        number = place - int(self.stops[wave] - self.segments[wave])
        size = -(-int(self.longest[wave]) // int(self.segments[wave]))
        rows = segments_of(self.pieces[self.waves[wave]], number, size)
        return Cut(tuple((start, stop) for start, stop in rows.tolist()), number == 0)

    @property
    def padding(self) -> float:
        """The share of all places of all batches that is padding."""
        places = sum(len(wave) * int(longest) for wave, longest in zip(self.waves, self.longest, strict=True))
        return 1 - int(targets_of(self.pieces).sum()) / places if places else 0.0


def longest_piece(targets: Int[np.ndarray, " _"], rows: int, segment: int) -> int:
    """How many targets a piece may have, so that rows are filled.

    Where the pieces of one wave do not fit into the rows, a second wave might have one row only, and take as long;
    shorter pieces make more waves, of which only the last is not full.
    """
    total = int(targets.sum())
    most = max(1, -(-total // rows))
    if int((-(-targets // most)).sum()) <= rows:
        return most
    return max(-(-total // (rows * WAVES)), min(most, segment))


def filling(targets: Int[np.ndarray, " spans"], rows: int, most: int) -> int:
    """A little more targets for each piece, if that spares a last wave which most rows would sit out."""
    waves = int((-(-targets // most)).sum()) // rows
    longer = [int(most * (1 + step / 50)) for step in range(20)]
    return next((each for each in longer if (-(-targets // each)).sum() <= waves * rows), most)


def equal_pieces(spans: Spans, most: int) -> Spans:
    """Every span cut into as few pieces as can be, which are equal but for one target."""
    targets = targets_of(spans)
    counts = -(-targets // most)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a piece in its span
    edges = [spans[owner, 0] + targets[owner] * each // counts[owner] for each in (number, number + 1)]
    return np.stack([edges[0], edges[1] + 1], axis=1)


def pieces_from(spans: Spans, segment: int, random: np.random.Generator) -> Spans:
    """Every longer span cut every `segment` targets, from a random place on; the others as they are."""
    targets = targets_of(spans)
    offset = np.where(targets > segment, random.integers(1, segment + 1, len(spans)), targets)
    counts = 1 + -(-(targets - offset) // segment)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    stops = np.minimum(offset[owner] + number * segment, targets[owner])
    starts = np.where(number == 0, 0, stops[np.maximum(np.arange(len(owner)) - 1, 0)])
    return np.stack([spans[owner, 0] + starts, spans[owner, 0] + stops + 1], axis=1)


def segments_of(pieces: Spans, number: int, size: int) -> Spans:
    """The segment of this number of each piece: `size` targets, fewer at its end, none behind it."""
    last = pieces[:, 1] - 1
    starts = np.minimum(pieces[:, 0] + number * size, last)
    return np.stack([starts, np.minimum(starts + size, last) + 1], axis=1)


def batch_of(file: TokenFile, rows: Spans, fresh: bool) -> TextBatch:
    """Spans side by side as tensors."""
    lengths = targets_of(rows)
    width = int(lengths.max())
    places = rows[:, :1] + np.arange(width + 1)
    found = file.tokens[np.minimum(places, len(file.tokens) - 1)].astype(np.int64)
    inside = np.arange(width) < lengths[:, None]
    inputs, targets = np.where(inside, found[:, :-1], PAD), np.where(inside, found[:, 1:], PAD)
    return TextBatch(torch.from_numpy(inputs), torch.from_numpy(targets), fresh)


@dataclass(frozen=True)
class SegmentBatches:
    """A text to train on, as the loop needs it: see `TrainingPlan`."""

    file: TokenFile
    spans: Spans
    tokenizer: Tokenizer
    tokens: int
    segment: int
    carries: bool
    seed: int

    def plan(self, epoch: int) -> TrainingPlan:
        return TrainingPlan(
            self.spans,
            tokens=self.tokens,
            segment=self.segment,
            carries=self.carries,
            seed=self.seed,
            epoch=epoch,
        )

    def batch(self, places: Cut, epoch: int) -> TextBatch:
        return batch_of(self.file, np.array(places.rows, np.int64), places.fresh)

    def name(self, places: Cut) -> str:
        return batch_name(self._row_name(start, stop) for start, stop in places.rows if stop - start > 1)

    def _row_name(self, start: int, stop: int) -> str:
        document = int(np.searchsorted(self.file.stops, start, side="right"))
        text = self.tokenizer.decode(self.file.tokens[start : min(start + FIRST, stop)].tolist())
        return f"document {document + 1} from token {start - int(self.file.starts[document])} on, {quoted(text)}"


class Window(NamedTuple):
    """A part of a text to score: tokens[score_from:stop], after reading tokens[read_from:stop - 1]."""

    read_from: int
    score_from: int
    stop: int


def evaluation_windows(spans: Spans, *, stride: int, warmup: int) -> Windows:
    """Windows, each a row as in `Window`, in which every target of every span is scored once, `stride` in each.

    A window reads up to `warmup` tokens of its span more than its targets need, so stride + warmup tokens at most.
    """
    if stride < 1 or warmup < 0:
        raise RegardError(f"windows: stride is {stride}, warmup is {warmup}; stride >= 1 and warmup >= 0 are needed")
    counts = -(-targets_of(spans) // stride)
    owner = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a window in its span
    score_from = spans[owner, 0] + 1 + number * stride
    read_from = np.maximum(spans[owner, 0], score_from - 1 - warmup)
    return np.stack([read_from, score_from, np.minimum(score_from + stride, spans[owner, 1])], axis=1)


def window_batches(windows: Windows, file: TokenFile, *, tokens: int, segment: int) -> Iterator[list[TextBatch]]:
    """Windows of like length side by side, the longest first; each group as the segments to read one after the other.

    Targets are PAD where they are not scored. Every row begins afresh where its window does, so nothing depends on
    what else is in its group, nor on the budget of tokens.
    """
    spans = windows[:, [0, 2]]
    lengths = targets_of(spans)
    order = np.argsort(-lengths, kind="stable")
    for group in cut(order, np.minimum(lengths, segment), tokens) if len(order) else []:
        batches = []
        for number in range(-(-int(lengths[group].max()) // segment)):
            rows = segments_of(spans[group], number, segment)
            batch = batch_of(file, rows, fresh=number == 0)
            places = torch.from_numpy(rows[:, :1] + 1 + np.arange(batch.targets.shape[1]))
            scored = places >= torch.from_numpy(windows[group, 1:2])
            batches.append(TextBatch(batch.tokens, batch.targets.where(scored, PAD), batch.fresh))
        yield batches
