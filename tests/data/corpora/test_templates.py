"""Templates: slots and marks."""

from random import Random

from regard.data.corpora.templates import MarkedWord, fill_template, find_marked, join_words


def test_marks_belong_to_the_word_before_them_and_to_the_last_word_of_a_slot():
    words = fill_template(Random(0), "the {noun}* slept*12 well", {"noun": ["old dog"]})
    assert words == [("the", None), ("old", None), ("dog", ""), ("slept", "12"), ("well", None)]
    assert find_marked(words) == [2, 3]
    assert join_words(words) == "the old dog slept well"


def test_every_phrase_of_a_slot_is_drawn():
    random = Random(0)
    drawn = {fill_template(random, "{x}", {"x": ["a", "b", "c"]})[0] for _ in range(60)}
    assert drawn == {MarkedWord("a"), MarkedWord("b"), MarkedWord("c")}
