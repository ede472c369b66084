import pytest

from regard.data.tag_check import summarize_tag_data
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError


def tagged(text: str) -> TaggedSentence:
    words, tags = zip(*(each.split("/") for each in text.split()), strict=True)
    return TaggedSentence(words, tags)


def test_what_is_said_of_both_parts():
    train = [tagged("a/O b/B-X c/I-X d/O"), tagged("a/O b/B-X c/I-X d/O"), tagged("e/O")]
    valid = [tagged("a/O b/O c/O d/O"), tagged("f/B-Y g/I-Y h/O"), tagged("i/B-Y")]
    assert list(summarize_tag_data(train, valid)) == [
        "training: 3 sentences, 1 duplicate, 9 words, 3 tags: O 5 (55.6%), B-X 2 (22.2%), I-X 2 (22.2%)",
        "validation: 3 sentences, 8 words, 3 tags: O 5 (62.5%), B-Y 2 (25.0%), I-Y 1 (12.5%)",
        "note: validation: 1 sentence (33.3%) also in the training data",
        "note: validation: 2 tags missing from the training data, so never predicted: B-Y 2, I-Y 1",
    ]


def test_nothing_is_noted_where_nothing_is_odd():
    assert list(summarize_tag_data([tagged("a/N b/V")], [tagged("b/N c/V")])) == [
        "training: 1 sentence, 2 words, 2 tags: N 1 (50.0%), V 1 (50.0%)",
        "validation: 1 sentence, 2 words, 2 tags: N 1 (50.0%), V 1 (50.0%)",
    ]


def test_validation_data_of_one_tag_say_little():
    *_, last = summarize_tag_data([tagged("a/O b/B-X")], [tagged("b/O c/O")])
    assert (
        last == "note: validation: every tag is O, so the scores mean little; "
        "pass --validation FILE or a larger --validation-share"
    )


def test_of_many_tags_the_commonest_are_counted():
    many = TaggedSentence(tuple("abcdefghijklmnop"), (*"ABCDEFGHIJKLMNO", "A"))
    (first, _) = summarize_tag_data([many], [tagged("z/A y/B")])
    assert "15 tags: A 2 (12.5%), B 1 (6.2%), " in first
    assert first.endswith(" L 1 (6.2%), and 3 more")


def test_one_tag_is_too_few():
    with pytest.raises(RegardError) as caught:
        list(summarize_tag_data([tagged("a/O b/O")], [tagged("c/O")]))
    assert str(caught.value) == 'training data: every tag is "O"; expected at least two different tags'


def test_tags_that_only_the_validation_data_has_are_named():
    with pytest.raises(RegardError) as caught:
        list(summarize_tag_data([tagged("a/B-X")], [tagged("c/O d/B-X e/B-Y")]))
    assert str(caught.value) == (
        'training data without the validation data: every tag is "B-X" '
        '(the validation data, 1 sentence, also has "O", "B-Y"); expected at least two different tags'
    )
