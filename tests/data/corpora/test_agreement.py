"""Agreement: verbs, their subjects and the distance between them."""

import pytest

from regard.data.corpora import generate_examples
from regard.data.corpora.agreement import NOUNS, VERBS, Agreement
from regard.errors import RegardError

SINGULAR, PLURAL = ({pair[number] for pair in NOUNS} for number in (0, 1))
FORMS = [{verb[number] for verb in VERBS} for number in (0, 1)]


@pytest.mark.parametrize("distance", range(11))
def test_the_subject_is_that_far_from_its_verb_and_agrees_with_it(distance):
    for text in generate_examples("agreement", 60, min_distance=distance, max_distance=distance):
        words, (contrast,) = text.text.split(), text.contrasts
        subject = contrast.word - distance - 1
        number = words[subject] in PLURAL
        assert words[subject - 1] == "the"
        assert words[subject] in SINGULAR | PLURAL
        assert words[contrast.word] in FORMS[number]
        assert contrast.wrong in FORMS[not number]
        assert text.links == (frozenset({(subject, contrast.word - 1)}) if distance else frozenset())


def test_right_and_wrong_are_forms_of_one_verb():
    pairs = {frozenset(verb[:2]) for verb in VERBS}
    for text in generate_examples("agreement", 200):
        (contrast,) = text.contrasts
        assert frozenset({text.text.split()[contrast.word], contrast.wrong}) in pairs


def test_the_last_noun_before_the_verb_does_not_tell_the_number():
    texts = generate_examples("agreement", 1000, min_distance=3, max_distance=8)
    agree = 0
    for text in texts:
        words, (contrast,) = text.text.split(), text.contrasts
        last = next(word for word in reversed(words[: contrast.word]) if word in SINGULAR | PLURAL)
        agree += (last in PLURAL) == (words[contrast.word] in FORMS[1])
    assert 420 < agree < 620  # half of them, and some where it is the subject


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"min_distance": -1}, "min_distance must be at least 0, got -1"),
        ({"min_distance": 3, "max_distance": 2}, "max_distance must be at least min_distance (3), got 2"),
    ],
)
def test_settings_out_of_bounds(settings, text):
    with pytest.raises(RegardError) as caught:
        Agreement(**settings)
    assert str(caught.value) == text
