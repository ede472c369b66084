"""Lengths, compared with lists written by hand."""

import torch

from regard.layers.lengths import SequenceLengths

LENGTHS = SequenceLengths.of(torch.tensor([3, 1]))


def test_what_is_real_and_where():
    assert LENGTHS.real(4)[..., 0].tolist() == [[True, True, True, False], [True, False, False, False]]
    assert LENGTHS.real_indices(4).tolist() == [0, 1, 2, 4]
    assert torch.equal(LENGTHS.real(4).flatten().nonzero()[:, 0], LENGTHS.real_indices(4))


def test_they_fill_a_size_only_if_none_is_shorter():
    assert (len(LENGTHS), LENGTHS.tolist(), LENGTHS.has_no_padding(3)) == (2, [3, 1], False)
    assert SequenceLengths.of(torch.tensor([3, 3])).has_no_padding(3)
    assert SequenceLengths.of(torch.tensor([], dtype=torch.long)).has_no_padding(3)


def test_they_are_known_on_the_host_wherever_the_sequences_are():
    moved = LENGTHS.to("meta").map(lambda lengths: lengths + 1)
    assert (moved.tolist(), moved.on_device.device.type) == ([4, 2], "meta")
    assert SequenceLengths.of(moved, "cpu") is moved
