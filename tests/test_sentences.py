from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from regard.sentences import SLACK, SPREAD, LabelBatch, TagBatch, Word, in_groups, side_by_side

A, B, C = Word(4, (5, 6, 7)), Word(1, (8,)), Word(6, (5, 6, 7))  # A and C are spelt alike
PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
WORDS = st.builds(Word, st.integers(1, 9), PIECES, st.integers(0, 9))
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=30).map(tuple), min_size=1, max_size=12)


def test_texts_side_by_side_spell_each_word_once():
    found = side_by_side([(A, B), (C, A, B)])
    assert found.words.tolist() == [[4, 1, 0], [6, 4, 1]]
    assert found.spellings.tolist() == [[0, 0, 0], [5, 6, 7], [8, 0, 0]]
    assert found.spelt.tolist() == [[1, 2, 0], [1, 1, 2]]
    assert found.lengths.tolist() == [2, 3]
    assert len(found) == 2


@given(TEXTS)
def test_what_was_put_in_can_be_read_again(texts):
    found = side_by_side(texts)
    for row, text in enumerate(texts):
        assert found.words[row].tolist() == [word.number for word in text] + [0] * (found.words.shape[1] - len(text))
        assert found.vectors[row].tolist()[: len(text)] == [word.vector for word in text]
        assert not found.vectors[row, len(text) :].any()
        for place, word in enumerate(text):
            letters = found.spellings[found.spelt[row, place]].tolist()
            assert [letter for letter in letters if letter] == list(word.pieces)
    assert len(found.spellings) == 1 + len({word.pieces for text in texts for word in text})


@given(TEXTS)
def test_groups_have_texts_of_like_length_each_of_which_is_found_again(texts):
    groups, where = in_groups(texts)
    assert sorted(where) == list(range(len(texts)))
    first = [0, *accumulate(len(group) for group in groups)]
    for text, place in zip(texts, where, strict=True):
        group, row = next((g, place - a) for g, (a, b) in zip(groups, pairwise(first), strict=True) if a <= place < b)
        assert group.words[row].tolist()[: len(text)] == [word.number for word in text]
        assert group.lengths.tolist()[row] == len(text)
    for group in groups:
        assert max(group.lengths.tolist()) <= SPREAD * min(group.lengths.tolist()) + SLACK
    longest = [max(group.lengths.tolist()) for group in groups]
    assert longest == sorted(longest)


def test_no_texts_are_no_groups():
    assert in_groups([]) == ((), [])


def test_batches_go_to_a_device_whole():
    sentences = side_by_side([(A, B)])
    tags = TagBatch(sentences)
    assert len(tags) == 1
    moved = tags.to("cpu")
    assert moved.tags is None
    assert moved.sentences.words.tolist() == [[4, 1]]
    assert moved.sentences.vectors.tolist() == [[0, 0]]
    labels = LabelBatch((sentences,), sentences.spelt[:, 0], None, None, sentences.words)
    again = labels.to("cpu")
    assert (len(labels), len(again)) == (1, 1)
    assert (again.seconds, again.context) == (None, None)
    assert again.targets is not None
    assert again.targets.tolist() == [[4, 1]]
