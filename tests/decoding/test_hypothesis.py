import dataclasses

import pytest

from regard.batch import EOS, PAD
from regard.decoding import Hypothesis
from regard.decoding.hypothesis import from_padded


def test_the_target_has_no_end():
    assert Hypothesis((5, 6, EOS), -1.0, ended=True).target == (5, 6)
    assert Hypothesis((5, 6), -1.0, ended=False).target == (5, 6)
    assert Hypothesis((EOS,), -1.0, ended=True).target == ()


def test_padding_is_cut_off():
    assert from_padded([5, EOS, PAD, PAD], -2.0) == Hypothesis((5, EOS), -2.0, ended=True)
    assert from_padded([5, 6], -2.0) == Hypothesis((5, 6), -2.0, ended=False)
    assert from_padded([EOS], -2.0) == Hypothesis((EOS,), -2.0, ended=True)


def test_a_hypothesis_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Hypothesis((EOS,), 0.0, ended=True).ended = False
