"""Texts to read before labels are learnt, as batches."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.batch import PAD
from regard.data.reading_batches import ReadingTexts, classes_of, unknown_shares
from regard.data.unlabelled import read_unlabelled
from regard.sentences import side_by_side
from regard.text.lexicon import Lexicon, learn_lexicon

LABELLED = [("The", "cat", "ran"), ("a", "dog")]
TEXT = "the cat saw a cow .\na cow saw cows !\ncows a cow\nthe <unk> dog\n"


def texts(folder: Path, text: str = TEXT, **settings: int) -> tuple[ReadingTexts, Lexicon]:
    (folder / "t.txt").write_text(text)
    found = read_unlabelled(folder / "t.txt", str.split)
    lexicon = learn_lexicon(LABELLED, ["x", "y"], unlabelled=found.counts(), more=100)
    lexicon = replace(lexicon, vectors=("cow", "the"), vectors_width=2)
    return ReadingTexts.of(found, LABELLED, lexicon, **{"repeats": 3, "tokens": 12, "seed": 0, **settings}), lexicon


def test_a_batch_has_the_words_as_the_lexicon_has_them(tmp_path):
    ready, lexicon = texts(tmp_path)
    every = [*map(str.split, TEXT.splitlines()), *LABELLED]
    chosen = (1, 4, 3)
    found, wanted = ready.batch(chosen), side_by_side([lexicon.encode(every[place]) for place in chosen])
    for name in ("words", "vectors"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert found.lengths.tolist() == wanted.lengths.tolist()
    assert found.pieces.tolist() == (found.spellings != PAD).sum(-1).tolist()
    ours, theirs = (each.spellings[each.spelt] for each in (found, wanted))
    assert torch.equal(ours, theirs)
    assert not found.spellings[0].any()  # padding
    assert len(found.spellings) == len(wanted.spellings)


def test_an_epoch_has_every_unlabelled_sentence_once_and_the_labelled_texts_several_times(tmp_path):
    lines = "".join(f"a{n} b c d e\n" for n in range(300))
    ready, _ = texts(tmp_path, lines)
    assert (len(ready), len(ready.held)) == (302, 3)
    for epoch in (0, 1):
        read = Counter(place for batch in ready.plan(epoch) for place in batch)
        once = set(range(300)) - set(ready.held.tolist())
        assert read == {**dict.fromkeys(once, 1), 300: 3, 301: 3}
    assert ready.plan(0) != ready.plan(1)
    assert ready.plan(0) == texts(tmp_path, lines)[0].plan(0)
    assert all(len(batch) * 5 <= 12 or max(batch) >= 300 for batch in ready.plan(0))
    held = [tuple(row) for batch in ready.held_batches() for row in batch.words.tolist()]
    assert sorted(held) == sorted(tuple(ready.batch((place,)).words[0].tolist()) for place in ready.held.tolist())
    assert not set(texts(tmp_path, lines, repeats=0)[0].read) & {300, 301}


def test_words_are_counted_as_they_are_read(tmp_path):
    ready, lexicon = texts(tmp_path)
    assert lexicon.words == ("a", "cat", "dog", "ran", "the", "cow", "cows", "saw")  # the last three are unlabelled
    counts = ready.counts()
    assert dict(zip(lexicon.words, counts[4:].tolist(), strict=True)) == {
        "a": 3 + 3 * 1,
        "cat": 1 + 3 * 1,
        "dog": 1 + 3 * 1,
        "ran": 0 + 3 * 1,
        "the": 2 + 3 * 1,
        "cow": 3,
        "cows": 2,
        "saw": 2,
    }
    assert counts[1] == 3  # <unk> itself, and two signs that are seen once


def test_the_commonest_words_are_told_and_the_others_as_one():
    counts = np.array([0, 90, 0, 0, 5, 7, 0, 5, 1])  # the first four are no words
    assert classes_of(counts, 10, 3).tolist() == [0, 0, 0, 0, 3, 2, 0, 4, 0, 0]
    assert classes_of(counts, 10, 99).tolist() == [0, 0, 0, 0, 3, 2, 0, 4, 5, 0]


def test_rare_words_are_made_unknown_more_often():
    assert unknown_shares(np.array([0, 90, 0, 0, 12, 11]), 7).tolist() == pytest.approx(
        [0.4, 0.08, 0.4, 0.4, 0.08, 0.4, 0.4]
    )


def test_a_batch_has_a_name(tmp_path):
    ready, _ = texts(tmp_path)
    assert ready.name((0, 4)) == 'of "the cat saw a cow .", "The cat ran"'
    assert ready.name((0, 1, 2, 3, 4)).endswith('"cows a cow" and 2 more')
