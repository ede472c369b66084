import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.metrics import (
    character_error_rate,
    edit_distance,
    exact_match,
    token_error_rate,
    whole_word_error_rate,
    word_error_rate,
)

words = st.text("abc", max_size=9)


def by_table(left, right):
    """The distance by its definition, cell by cell."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        above, row = row, [i]
        for j, b in enumerate(right, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def test_textbook_distances():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("intention", "execution") == 5
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_distance("", "") == 0
    assert edit_distance(["the", "cat", "sat"], ["a", "cat", "sat", "down"]) == 2


@given(words, words)
def test_distance_by_its_definition(left, right):
    assert edit_distance(left, right) == by_table(left, right)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), min_size=60, max_size=150), st.lists(st.integers(0, 5), min_size=60, max_size=150))
def test_long_sequences_of_anything(left, right):
    assert edit_distance(left, right) == by_table(left, right)


def test_exact_match_counts_any_right_answer():
    score = exact_match(["a", "b", "C", "de"], ["a", ["x", "b"], "c", "d"])
    assert (score.value, score.signature) == (2 / 4, "nrefs:var|case:mixed|sentences:4")
    score = exact_match(["a", "b", "C", "de"], ["a", "b", "c", "d"], lowercase=True)
    assert (score.value, score.signature) == (3 / 4, "nrefs:1|case:lc|sentences:4")


def test_word_error_rate_is_of_the_whole_corpus():
    score = word_error_rate(["the cat sat", "yes"], ["a cat sat down", "no"])  # 2 and 1 edits of 4 and 1 words
    assert score.value == 3 / 5
    assert str(score) == "word error rate (edits per word) 0.6000 (nrefs:1|case:mixed|sentences:2)"


def test_error_rates_of_letters_to_phones():
    predictions, references = ["a b i", "a b s", "s ɛ t"], ["a b i", "a b ɛ", "s ɛ t"]
    phones, words = token_error_rate(predictions, references), whole_word_error_rate(predictions, references)
    assert str(phones) == (
        "token error rate (edits per token, such as a phone) 0.1111 (nrefs:1|case:mixed|sentences:3)"  # 1 of 9 phones
    )
    assert str(words) == "word error rate (1 - exact match) 0.3333 (nrefs:1|case:mixed|sentences:3)"  # 1 of 3 words
    assert whole_word_error_rate(["A b"], ["a b"], lowercase=True).value == 0


def test_character_error_rate_counts_spaces():
    assert character_error_rate(["a b", "KITTEN"], ["ab", "sitting"], lowercase=True).value == (1 + 3) / (2 + 7)


def test_of_several_the_nearest_and_then_the_longest():
    assert character_error_rate(["abcd"], [["xyz", "abc", "abcde"]]).value == 1 / 5
    assert word_error_rate(["a b"], [["c d e f", "a"]]).value == 1 / 1


def test_empty_texts():
    assert word_error_rate([""], ["a b"]).value == 1
    assert word_error_rate([""], [""]).value == 0
    assert word_error_rate(["a b"], [""]).value == 2


@pytest.mark.parametrize("metric", [word_error_rate, token_error_rate, whole_word_error_rate, character_error_rate])
@given(texts=st.lists(words, min_size=1))
def test_what_is_right_has_no_errors(metric, texts):
    assert metric(texts, texts).value == 0
    assert exact_match(texts, texts).value == 1


def test_one_space_is_as_good_as_another():
    assert exact_match(["a b"], ["a  b "]).value == 1.0
    assert exact_match(["ab"], ["a b"]).value == 0.0
