"""What is read together, against counting every target."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import BOS, EOS, PAD
from regard.data.documents import Chunk
from regard.data.segments import (
    BatchSpans,
    ScoringWindow,
    SegmentBatches,
    TrainingPlan,
    build_evaluation_windows,
    build_text_batch,
    count_targets,
    get_document_spans,
    iter_window_batches,
    split_validation_spans,
)
from regard.data.token_file import TokenFile, Totals, write_tokens
from regard.errors import RegardError
from regard.text.learn import learn_lm_tokenizer

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=30)


def file_of(sizes):
    """Documents of so many tokens, besides <bos> and <eos>; every token says its place."""
    tokens = np.arange(sum(sizes) + 2 * len(sizes), dtype=np.uint32) + 4
    stops = np.cumsum(np.array(sizes, np.int64) + 2)
    tokens[stops - 1] = EOS
    tokens[np.concatenate([[0], stops[:-1]])] = BOS
    return TokenFile(tokens, stops, Totals())


def spans_of(sizes):
    """Spans of so many targets, one behind the other."""
    stops = np.cumsum(np.array(sizes, np.int64) + 1)
    return np.stack([stops - np.array(sizes, np.int64) - 1, stops], axis=1)


def places_of(spans):
    """The index of every target."""
    return [index for start, stop in np.asarray(spans).tolist() for index in range(start + 1, stop)]


@given(lengths, st.integers(1, 12), st.integers(1, 6), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_every_target_is_in_one_batch(sizes, segment, rows, carries, seed, epoch):
    spans, tokens = spans_of(sizes), segment * rows + segment // 2
    plan = TrainingPlan(spans, batch_tokens=tokens, segment_length=segment, carries=carries, seed=seed, epoch=epoch)
    batches = list(plan)
    assert len(batches) == len(plan)
    assert sorted(index for cut in batches for index in places_of(cut.rows)) == sorted(places_of(spans))
    for cut in batches:
        longest = max(stop - start - 1 for start, stop in cut.rows)
        assert 1 <= longest <= segment
        assert longest * len(cut.rows) <= tokens
    if not carries:
        assert all(cut.fresh for cut in batches)


@pytest.mark.parametrize("sizes", [[1_000_000, 10_000], [20_000] * 19, [300_000, 200_000, 50_000]])
def test_few_rows_sit_out_the_last_wave(sizes):
    plan = TrainingPlan(spans_of(sizes), batch_tokens=4096, segment_length=64, carries=True)
    rows = [sum(stop - start > 1 for start, stop in cut.rows) for cut in plan]
    assert sum(count <= 8 for count in rows) < 0.04 * len(rows)  # of 64 rows


@given(lengths, st.integers(1, 12), st.integers(1, 6))
def test_rows_go_on_where_they_ended(sizes, segment, rows):
    spans = spans_of(sizes)
    before = None
    for cut in TrainingPlan(spans, batch_tokens=segment * rows, segment_length=segment, carries=True):
        assert cut.fresh or before is not None
        if not cut.fresh:
            assert len(cut.rows) == len(before)
            for (start, stop), (_, ended) in zip(cut.rows, before, strict=True):
                assert start == ended - 1
                assert stop > start
        before = cut.rows


@given(lengths, st.integers(1, 12), st.booleans(), st.integers(1, 3))
def test_no_row_reaches_over_two_documents(sizes, segment, carries, rows):
    spans = spans_of(sizes)
    for cut in TrainingPlan(spans, batch_tokens=segment * rows, segment_length=segment, carries=carries):
        for start, stop in cut.rows:
            assert any(first <= start and stop <= last for first, last in spans.tolist())


def test_one_book_is_read_by_all_rows_at_once():
    plan = TrainingPlan(spans_of([1000]), batch_tokens=80, segment_length=8, carries=True)  # ten rows of 100 targets
    assert 13 <= len(plan) <= 17  # segments of six to eight
    assert plan[0].fresh
    assert not any(cut.fresh for cut in plan[1:])
    assert sorted(start for start, _ in plan[0].rows) == list(range(0, 1000, 100))
    assert all(len(cut.rows) == 10 for cut in plan)
    assert plan.padding == 0.0


def test_a_book_is_cut_at_other_places_in_each_epoch():
    spans = spans_of([1000])
    plans = [TrainingPlan(spans, batch_tokens=80, segment_length=8, carries=True, epoch=epoch) for epoch in range(9)]
    assert len({plan[0].rows[0][1] - plan[0].rows[0][0] for plan in plans}) > 1


@pytest.mark.parametrize(
    "sizes",
    [[300, 300, 400], [1000] * 11, [5000, *[160] * 9], [3] * 500, [20, *[3] * 500], list(range(1, 200)), [2000, 7]],
)
def test_rows_are_filled(sizes):
    plan = TrainingPlan(spans_of(sizes), batch_tokens=80, segment_length=8, carries=True)
    full = sum(sizes) / 80
    assert full <= len(plan) <= 4 / 3 * 1.5 * full + 2  # segments of six to eight
    assert plan.padding < 0.2


def test_short_documents_stand_side_by_side():
    plan = TrainingPlan(spans_of([2] * 100), batch_tokens=20, segment_length=10, carries=True)
    assert [len(cut.rows) for cut in plan] == [10] * 10
    assert all(cut.fresh for cut in plan)


def test_long_documents_are_cut_elsewhere_in_each_epoch():
    plans = [
        TrainingPlan(spans_of([1000]), batch_tokens=40, segment_length=10, carries=False, epoch=epoch)
        for epoch in range(20)
    ]
    first = {min(stop - 1 for cut in plan for start, stop in cut.rows if start == 0) for plan in plans}
    assert len(first) > 5
    assert first <= set(range(1, 11))
    for plan in plans:
        sizes = Counter(stop - start - 1 for cut in plan for start, stop in cut.rows)
        assert sizes[10] >= 99


def test_a_plan_is_decided_by_its_settings_and_found_by_number():
    sizes = list(range(60))
    plans = [
        list(TrainingPlan(spans_of(sizes), batch_tokens=30, segment_length=6, carries=True, seed=seed, epoch=epoch))
        for seed, epoch in ((1, 2), (1, 2), (2, 1), (1, 3))
    ]
    assert plans[0] == plans[1]
    assert plans[2] != plans[0] != plans[3] != plans[2]
    plan = TrainingPlan(spans_of(sizes), batch_tokens=30, segment_length=6, carries=True, seed=1, epoch=2)
    assert [plan[index] for index in (7, -1, 0)] == [plans[0][index] for index in (7, -1, 0)]
    assert plan[3:9:2] == plans[0][3:9:2]
    for index in (len(plan), -len(plan) - 1):
        with pytest.raises(IndexError):
            plan[index]


def test_nothing_to_read_and_nothing_to_read_with():
    assert len(TrainingPlan(spans_of([0, 0]), batch_tokens=8, segment_length=8, carries=False)) == 0
    assert TrainingPlan(spans_of([]), batch_tokens=8, segment_length=8, carries=True).padding == 0.0
    with pytest.raises(RegardError) as caught:
        TrainingPlan(spans_of([3]), batch_tokens=8, segment_length=9, carries=False)
    assert str(caught.value) == "segment_length must be at least 1 and at most batch_tokens (8), got 9"


@given(lengths)
def test_padding_is_what_counting_finds(sizes):
    plan = TrainingPlan(spans_of(sizes), batch_tokens=24, segment_length=6, carries=True)
    indices = sum(len(cut.rows) * max(stop - start - 1 for start, stop in cut.rows) for cut in plan)
    assert plan.padding == pytest.approx(1 - sum(sizes) / indices if indices else 0.0)


def test_a_batch_by_hand(tmp_path):
    tokenizer = learn_lm_tokenizer("characters", ["abc"])  # a: 4, b: 5, c: 6
    file = write_tokens(tmp_path / "text", [Chunk("abc", True), Chunk("b", True)], tokenizer)
    batches = SegmentBatches(
        file, get_document_spans(file), tokenizer, batch_tokens=8, segment_length=4, carries=False, seed=0
    )
    batch = batches.batch(BatchSpans(((0, 5), (5, 8), (4, 5)), fresh=False), epoch=0)
    assert batch.tokens.tolist() == [[BOS, 4, 5, 6], [BOS, 5, PAD, PAD], [PAD] * 4]
    assert batch.targets.tolist() == [[4, 5, 6, EOS], [5, EOS, PAD, PAD], [PAD] * 4]
    assert batch.fresh is False
    assert batches.name(BatchSpans(((1, 5), (5, 8), (4, 5)), fresh=False)) == (
        'of document 1 from token 1 on, "abc", document 2 from token 0 on, "b"'
    )
    assert batches.name(BatchSpans(((5, 8),) * 5, fresh=True)).endswith(', document 2 from token 0 on, "b" and 2 more')
    assert list(batches.plan(3)) == list(
        TrainingPlan(get_document_spans(file), batch_tokens=8, segment_length=4, carries=False, seed=0, epoch=3)
    )


@given(lengths, st.integers(1, 12), st.booleans())
def test_batches_hold_what_the_plan_says(sizes, segment, carries):
    file = file_of(sizes)
    for cut in TrainingPlan(
        get_document_spans(file), batch_tokens=3 * segment, segment_length=segment, carries=carries
    ):
        batch = build_text_batch(file, np.array(cut.rows), cut.fresh)
        assert batch.fresh == cut.fresh
        for (start, stop), row, targets in zip(cut.rows, batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            filling = [PAD] * (len(row) - (stop - start - 1))
            assert row == file.tokens[start : stop - 1].tolist() + filling
            assert targets == file.tokens[start + 1 : stop].tolist() + filling


@given(st.lists(st.integers(1, 40), min_size=1, max_size=50), st.sampled_from([0.05, 0.2, 0.5]), st.integers(0, 3))
def test_what_is_held_out(sizes, share, seed):
    file = file_of(sizes)
    train, valid = split_validation_spans(file, share, seed)
    assert sorted(places_of(train) + places_of(valid)) == sorted(places_of(get_document_spans(file)))
    assert len(places_of(train)) > 0
    assert len(places_of(valid)) > 0
    whole = {tuple(span) for span in get_document_spans(file).tolist()}
    if len(sizes) >= 20:
        assert {tuple(span) for span in [*train.tolist(), *valid.tolist()]} == whole
        total = sum(sizes) + len(sizes)
        assert count_targets(valid).sum() <= share * total or len(valid) == 1
    else:
        assert valid[:, 1].tolist() == file.stops.tolist()
        for (start, stop), size in zip(valid.tolist(), sizes, strict=True):
            assert stop - start - 1 == min(max(round((size + 1) * share), 1), size)
    assert [part.tolist() for part in split_validation_spans(file, share, seed)] == [train.tolist(), valid.tolist()]


def test_documents_are_held_out_by_the_seed():
    file = file_of([10] * 100)
    held = [split_validation_spans(file, 0.1, seed)[1] for seed in range(3)]
    assert [len(spans) for spans in held] == [10, 10, 10]
    assert held[0].tolist() != held[1].tolist() != held[2].tolist()
    with pytest.raises(RegardError, match=r"^validation_share must be above 0 and below 1, got 1.0$"):
        split_validation_spans(file, 1.0)


def test_windows_by_hand():
    assert build_evaluation_windows(np.array([[0, 8], [8, 10]]), stride=3, warmup=2).tolist() == [
        [0, 1, 4],
        [1, 4, 7],
        [4, 7, 8],
        [8, 9, 10],
    ]
    assert build_evaluation_windows(np.array([[0, 5]]), stride=4, warmup=0).tolist() == [[0, 1, 5]]
    with pytest.raises(RegardError) as caught:
        build_evaluation_windows(np.array([[0, 5]]), stride=0, warmup=0)
    assert str(caught.value) == "stride must be at least 1, got 0"


@given(lengths, st.integers(1, 9), st.integers(0, 9))
def test_windows_score_every_target_once(sizes, stride, warmup):
    spans = spans_of(sizes)
    windows = [ScoringWindow(*row) for row in build_evaluation_windows(spans, stride=stride, warmup=warmup).tolist()]
    assert [index for window in windows for index in range(window.score_from, window.stop)] == places_of(spans)
    for read_from, score_from, stop in windows:
        (start,) = [first for first, last in spans.tolist() if first < score_from < last]
        assert read_from == max(start, score_from - 1 - warmup)
        assert stop - 1 - read_from <= stride + warmup


@given(lengths, st.integers(1, 9), st.integers(0, 9), st.integers(1, 12), st.integers(1, 60))
def test_batches_of_windows_hold_each_window_whole(sizes, stride, warmup, segment, tokens):
    file = file_of(sizes)
    windows = build_evaluation_windows(get_document_spans(file), stride=stride, warmup=warmup)
    batches = []
    for group in iter_window_batches(windows, file, batch_tokens=tokens, segment_length=segment):
        assert [batch.fresh for batch in group] == [True] + [False] * (len(group) - 1)
        assert all(batch.tokens.shape[1] == segment for batch in group[:-1])
        assert max(batch.tokens.numel() for batch in group) <= max(tokens, segment)
        for row in range(len(group[0])):
            inputs = [number for batch in group for number in batch.tokens[row].tolist()]
            targets = [number for batch in group for number in batch.targets[row].tolist()]
            batches.append(([number for number in inputs if number != PAD], targets[: len(inputs) - inputs.count(PAD)]))
            assert not any(targets[len(inputs) - inputs.count(PAD) :])
    numbers = file.tokens.tolist()
    expected = [
        (numbers[w.read_from : w.stop - 1], [PAD] * (w.score_from - w.read_from - 1) + numbers[w.score_from : w.stop])
        for w in [ScoringWindow(*row) for row in windows.tolist()]
    ]
    assert sorted(batches) == sorted(expected)
