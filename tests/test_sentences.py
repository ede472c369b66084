from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from regard.sentences import (
    MAX_LENGTH_RATIO,
    MAX_LENGTH_SLACK,
    EncodedWord,
    LabelBatch,
    TagBatch,
    group_by_length,
    stack_texts,
)

A, B, C = EncodedWord(4, (5, 6, 7)), EncodedWord(1, (8,)), EncodedWord(6, (5, 6, 7))  # A and C have the same spelling
PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
WORDS = st.builds(EncodedWord, st.integers(1, 9), PIECES, st.integers(0, 9))
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=30).map(tuple), min_size=1, max_size=12)


def test_texts_side_by_side_spell_each_word_once():
    sentences = stack_texts([(A, B), (C, A, B)])
    assert sentences.word_ids.tolist() == [[4, 1, 0], [6, 4, 1]]
    assert sentences.spellings.tolist() == [[0, 0, 0], [5, 6, 7], [8, 0, 0]]
    assert sentences.spelling_rows.tolist() == [[1, 2, 0], [1, 1, 2]]
    assert sentences.lengths.tolist() == [2, 3]
    assert len(sentences) == 2


@given(TEXTS)
def test_what_was_put_in_can_be_read_again(texts):
    sentences = stack_texts(texts)
    for row, text in enumerate(texts):
        assert sentences.word_ids[row].tolist() == [word.word_id for word in text] + [0] * (
            sentences.word_ids.shape[1] - len(text)
        )
        assert sentences.vector_ids[row].tolist()[: len(text)] == [word.vector_id for word in text]
        assert not sentences.vector_ids[row, len(text) :].any()
        for index, word in enumerate(text):
            letters = sentences.spellings[sentences.spelling_rows[row, index]].tolist()
            assert [letter for letter in letters if letter] == list(word.pieces)
    assert len(sentences.spellings) == 1 + len({word.pieces for text in texts for word in text})


@given(TEXTS)
def test_groups_have_texts_of_like_length_each_of_which_is_found_again(texts):
    groups, where = group_by_length(texts)
    assert sorted(where) == list(range(len(texts)))
    first = [0, *accumulate(len(group) for group in groups)]
    for text, index in zip(texts, where, strict=True):
        group, row = next((g, index - a) for g, (a, b) in zip(groups, pairwise(first), strict=True) if a <= index < b)
        assert group.word_ids[row].tolist()[: len(text)] == [word.word_id for word in text]
        assert group.lengths.tolist()[row] == len(text)
    for group in groups:
        assert max(group.lengths.tolist()) <= MAX_LENGTH_RATIO * min(group.lengths.tolist()) + MAX_LENGTH_SLACK
    longest = [max(group.lengths.tolist()) for group in groups]
    assert longest == sorted(longest)


def test_no_texts_are_no_groups():
    assert group_by_length([]) == ((), [])


def test_batches_go_to_a_device_whole():
    sentences = stack_texts([(A, B)])
    tags = TagBatch(sentences)
    assert len(tags) == 1
    moved = tags.to("cpu")
    assert moved.tags is None
    assert moved.sentences.word_ids.tolist() == [[4, 1]]
    assert moved.sentences.vector_ids.tolist() == [[0, 0]]
    labels = LabelBatch((sentences,), sentences.spelling_rows[:, 0], None, None, sentences.word_ids)
    again = labels.to("cpu")
    assert (len(labels), len(again)) == (1, 1)
    assert (again.second_texts, again.context) == (None, None)
    assert again.targets is not None
    assert again.targets.tolist() == [[4, 1]]
