"""Batches against rows written out by hand."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import BOS, EOS, PAD, UNKNOWN, Pair, collate, pad_rows

rows = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5)


def test_the_first_numbers_of_every_vocabulary():
    assert (PAD, UNKNOWN, BOS, EOS) == (0, 1, 2, 3)


def test_collate_by_hand():
    batch = collate([Pair([7, 8], [5]), Pair((9,), (4, 6, 5))])
    assert batch.source.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_in.tolist() == [[BOS, 5, PAD, PAD], [BOS, 4, 6, 5]]
    assert batch.target_out.tolist() == [[5, EOS, PAD, PAD], [4, 6, 5, EOS]]
    assert batch.target_lengths.tolist() == [2, 4]
    tensors = [batch.source, batch.source_lengths.on_host, batch.target_in, batch.target_out, batch.target_lengths]
    assert {tensor.dtype for tensor in tensors} == {torch.long}
    assert len(batch) == 2


def test_targets_only_if_every_pair_has_one():
    batch = collate([Pair([7], [5]), Pair([8])])
    assert batch.source.tolist() == [[7, EOS], [8, EOS]]
    assert (batch.target_in, batch.target_out, batch.target_lengths) == (None, None, None)


def test_empty_sentences_are_their_end_alone():
    batch = collate([Pair([], [])])
    assert batch.source.tolist() == [[EOS]]
    assert (batch.target_in.tolist(), batch.target_out.tolist()) == ([[BOS]], [[EOS]])


def test_no_pairs():
    batch = collate([])
    assert (len(batch), batch.source.shape, batch.target_in.shape) == (0, (0, 0), (0, 0))


@given(rows)
def test_padded_rows_can_be_cut_back(rows):
    tensor, lengths = pad_rows(rows)
    assert tensor.shape == (len(rows), max(map(len, rows), default=0))
    assert [row[:length].tolist() for row, length in zip(tensor, lengths.tolist(), strict=True)] == rows
    assert all((row[length:] == PAD).all() for row, length in zip(tensor, lengths.tolist(), strict=True))


def test_to_moves_all_that_is_there():
    whole = collate([Pair([7], [5])]).to("meta")
    tensors = [whole.source, whole.source_lengths.on_device, whole.target_in, whole.target_out, whole.target_lengths]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert whole.source_lengths.tolist() == [2]
    moved = collate([Pair([7])]).to(torch.device("meta"))
    assert (moved.source.device.type, moved.target_in) == ("meta", None)
