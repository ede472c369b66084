"""Texts to read before labels are learned, as batches."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.batch import PAD
from regard.data.pretraining_batches import PretrainingTexts, assign_classes, compute_unknown_shares
from regard.data.unlabeled import read_unlabeled
from regard.sentences import stack_texts
from regard.text.word_vocabulary import WordVocabulary, learn_word_vocabulary

LABELED = [("The", "cat", "ran"), ("a", "dog")]
TEXT = "the cat saw a cow .\na cow saw cows !\ncows a cow\nthe <unk> dog\n"


def texts(folder: Path, text: str = TEXT, **settings: int) -> tuple[PretrainingTexts, WordVocabulary]:
    (folder / "t.txt").write_text(text)
    unlabeled = read_unlabeled(folder / "t.txt", str.split)
    vocabulary = learn_word_vocabulary(LABELED, ["x", "y"], unlabeled=unlabeled.count_words(), max_unlabeled=100)
    vocabulary = replace(vocabulary, vectors=("cow", "the"), vectors_width=2)
    return PretrainingTexts.of(
        unlabeled, LABELED, vocabulary, **{"labeled_repeats": 3, "batch_tokens": 12, "seed": 0, **settings}
    ), vocabulary


def test_a_batch_has_the_words_as_the_lexicon_has_them(tmp_path):
    ready, vocabulary = texts(tmp_path)
    every = [*map(str.split, TEXT.splitlines()), *LABELED]
    chosen = (1, 4, 3)
    batch, expected = ready.batch(chosen), stack_texts([vocabulary.encode(every[index]) for index in chosen])
    for name in ("word_ids", "vector_ids"):
        assert torch.equal(getattr(batch, name), getattr(expected, name)), name
    assert batch.lengths.tolist() == expected.lengths.tolist()
    assert batch.piece_lengths.tolist() == (batch.spellings != PAD).sum(-1).tolist()
    predicted, reference = (each.spellings[each.spelling_rows] for each in (batch, expected))
    assert torch.equal(predicted, reference)
    assert not batch.spellings[0].any()  # padding
    assert len(batch.spellings) == len(expected.spellings)


def test_an_epoch_has_every_unlabeled_sentence_once_and_the_labeled_texts_several_times(tmp_path):
    lines = "".join(f"a{n} b c d e\n" for n in range(300))
    ready, _ = texts(tmp_path, lines)
    assert (len(ready), len(ready.validation_indices)) == (302, 3)
    for epoch in (0, 1):
        read = Counter(index for batch in ready.plan(epoch) for index in batch)
        once = set(range(300)) - set(ready.validation_indices.tolist())
        assert read == {**dict.fromkeys(once, 1), 300: 3, 301: 3}
    assert ready.plan(0) != ready.plan(1)
    assert ready.plan(0) == texts(tmp_path, lines)[0].plan(0)
    assert all(len(batch) * 5 <= 12 or max(batch) >= 300 for batch in ready.plan(0))
    held = [tuple(row) for batch in ready.iter_validation_batches() for row in batch.word_ids.tolist()]
    assert sorted(held) == sorted(
        tuple(ready.batch((index,)).word_ids[0].tolist()) for index in ready.validation_indices.tolist()
    )
    assert not set(texts(tmp_path, lines, labeled_repeats=0)[0].training_indices) & {300, 301}


def test_words_are_counted_as_they_are_read(tmp_path):
    ready, vocabulary = texts(tmp_path)
    assert vocabulary.words == ("a", "cat", "dog", "ran", "the", "cow", "cows", "saw")  # the last three are unlabeled
    counts = ready.count_words()
    assert dict(zip(vocabulary.words, counts[4:].tolist(), strict=True)) == {
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
    assert assign_classes(counts, 10, 3).tolist() == [0, 0, 0, 0, 3, 2, 0, 4, 0, 0]
    assert assign_classes(counts, 10, 99).tolist() == [0, 0, 0, 0, 3, 2, 0, 4, 5, 0]


def test_rare_words_are_made_unknown_more_often():
    assert compute_unknown_shares(np.array([0, 90, 0, 0, 12, 11]), 7).tolist() == pytest.approx(
        [0.4, 0.08, 0.4, 0.4, 0.08, 0.4, 0.4]
    )


def test_a_batch_has_a_name(tmp_path):
    ready, _ = texts(tmp_path)
    assert ready.name((0, 4)) == 'of "the cat saw a cow .", "The cat ran"'
    assert ready.name((0, 1, 2, 3, 4)).endswith('"cows a cow" and 2 more')
