from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.data.label_check import check, hold_out, label_counts
from regard.data.labelled import Labelled


def examples(*pairs: tuple[str, str]) -> list[Labelled]:
    return [Labelled(text, tuple(labels.split("|"))) for text, labels in pairs]


def numbered(**counts: int) -> list[Labelled]:
    """So many examples of each label, whose texts all differ."""
    return [Labelled(f"text {n} of {label}", (label,)) for label, count in counts.items() for n in range(count)]


def test_labels_are_counted():
    assert list(label_counts(examples(("x", "b|a"), ("y", "c"), ("z", "c|b"))).items()) == [
        ("b", 2), ("c", 2), ("a", 1)
    ]  # fmt: skip


def test_the_report_in_words():
    train = examples(("who ?", "HUM"), ("where ?", "LOC"), ("who ?", "HUM"), ("what ?", "HUM"), ("what ?", "DEF"))
    valid = examples(("who ?", "HUM"), ("when ?", "NUM"))
    assert list(check(train, valid).lines()) == [
        "training: 5 examples, 1 of them repeat an earlier one",
        "training: 3 labels: HUM 3 (60.0%), DEF 1 (20.0%), LOC 1 (20.0%)",
        'note: training: 1 text with different labels at times: "what ?" -> HUM, DEF',
        "validation: 2 examples, no two alike",
        "validation: 2 labels: HUM 1 (50.0%), NUM 1 (50.0%)",
        "note: validation: the text of 1 example (50.0%) is also in training",
        "note: validation: 1 label never seen in training, so never predicted: NUM 1",
    ]


def test_several_labels_in_words():
    train = examples(("x", "a|b"), ("y", "b|a"), ("x", "b|a"), ("z", "a"))
    assert list(check(train).lines()) == [
        "training: 4 examples, 1 of them repeat an earlier one",
        "training: 2 labels, 1.8 an example: a 4 (100.0%), b 3 (75.0%)",
    ]


def test_imbalance_and_many_labels():
    train = numbered(common=86, **{f"l{n:02}": 1 for n in range(14)})
    found = list(check(train).lines())
    assert found[1].startswith("training: 15 labels: common 86 (86.0%), l00 1 (1.0%), ")
    assert found[1].endswith(", l10 1 (1.0%), and 3 more")
    assert found[2:] == [
        "note: training: common is 86 times as common as l13; common for every text would be right for 86.0%"
    ]


def test_only_training_data_is_called_uneven():
    valid = numbered(a=30, b=2)
    assert not any("times as common" in line for line in check(numbered(a=3, b=3), valid).lines())


def test_a_label_is_shown_short_and_without_what_a_terminal_obeys():
    train = examples(("x", "a\x1b[2J"), ("y", "b" * 99))
    assert list(check(train).lines())[1] == f"training: 2 labels: a [2J 1 (50.0%), {'b' * 39}… 1 (50.0%)"


def test_what_is_read_in_different_contexts_may_differ():
    train = [Labelled("okay", ("A",), context=("so ?",)), Labelled("okay", ("B",), context=("well",))]
    assert check(train).train.torn == ()
    torn = [Labelled("okay", ("A",), "one"), Labelled("okay", ("B",), "one"), Labelled("okay", ("B",), "two")]
    assert check(torn).train.torn == (("okay", ("A", "B")),)


def test_swapped_columns_and_headers():
    train = examples(("label", "text"), ("A", "one"), ("B", "two"), ("A", "three"))
    assert list(check(train).lines())[2:] == [
        'note: training: example 1, "label" -> "text", looks like a header; name the columns to skip it',
        "note: training: 4 different labels for 3 different texts; are the columns swapped?",
        'note: training: 1 text with different labels at times: "A" -> one, three',
    ]


def test_strangers_and_old_friends():
    train = numbered(a=3, b=3)
    assert list(check(train, [Labelled("new", ("a",))]).lines())[-1] == "validation: no text is in training"
    assert list(check(train, train[:2]).lines())[-1] == (
        "note: validation: every text is also in training, so its scores will say nothing about new text"
    )
    assert check(train).valid is None


def test_many_unseen_labels():
    unseen = [Labelled(f"text {n}", (f"new{n:02}",)) for n in range(14)]
    assert list(check(numbered(a=1, b=1), unseen).lines())[-1].endswith("new10 1, new11 1, and 2 more")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], "there are no examples; at least one is needed"),
        (
            [("x", "A"), ("y", "A")],
            'every label is "A" (2 examples); two that differ are the least to learn from',
        ),
        (
            [("x", "A"), ("x", "B")],
            'every text is "x" (2 examples); two that differ are the least to learn from',
        ),
    ],
)
def test_what_cannot_be_right(train, message):
    with pytest.raises(RegardError) as caught:
        check(examples(*train))
    assert str(caught.value) == f"training data: {message}"


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1).filter(lambda d: max(d.values()) > 1),
    st.floats(0.02, 0.98),
    st.integers(0, 5),
)
def test_every_label_gives_its_share(counts, share, seed):
    data = numbered(**counts)
    train, valid = hold_out(data, share, seed)
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    held, left = label_counts(valid), label_counts(train)
    assert set(left) == set(counts)
    for label, count in counts.items():
        assert held.get(label, 0) <= share * count + 1
        assert held.get(label, 0) >= min(share * count, count) - 1


@given(
    st.lists(
        st.tuples(st.sampled_from("uvwxyz"), st.frozensets(st.sampled_from("abcd"), min_size=1)),
        min_size=2,
        max_size=40,
    ),
    st.floats(0.02, 0.98),
)
def test_texts_and_labels_of_validation_data(pairs, share):
    data = [Labelled(text, tuple(sorted(labels))) for text, labels in pairs]
    try:
        train, valid = hold_out(data, share)
    except RegardError:  # then no text can go without taking the last of a label with it
        for text in {example.text for example in data}:
            others = {label for example in data if example.text != text for label in example.labels}
            assert not {label for example in data if example.text == text for label in example.labels} <= others
        return
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    assert not {example.text for example in train} & {example.text for example in valid}
    assert set(label_counts(valid)) <= set(label_counts(train))


def test_held_out_in_order_and_by_seed():
    data = numbered(a=100, b=40, c=10)
    train, valid = hold_out(data, share=0.1, seed=1)
    assert label_counts(valid) == {"a": 10, "b": 4, "c": 1}
    assert [example for example in data if example in valid] == valid
    assert hold_out(data, share=0.1, seed=1) == (train, valid)
    assert hold_out(data, share=0.1, seed=2) != (train, valid)


def dialogues(*labels: str) -> list[Labelled]:
    """A dialogue for each of these, an utterance for each letter."""
    return [
        Labelled(f"{letter} {place}", (letter,), context=("before",) * min(1, place), dialogue=number)
        for number, letters in enumerate(labels)
        for place, letter in enumerate(letters)
    ]


@given(
    st.lists(st.text("abc", min_size=1, max_size=6).map(lambda letters: f"abc{letters}"), min_size=2, max_size=12),
    st.floats(0.02, 0.9),
)
def test_whole_dialogues_are_held_out(labels, share):
    data = dialogues(*labels)
    train, valid = hold_out(data, share)
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    assert not {example.dialogue for example in train} & {example.dialogue for example in valid}
    longest = max(map(len, labels))
    assert len(valid) <= max(share * len(data) + 1, longest)


def test_of_one_dialogue_utterances_are_held_out():
    train, valid = hold_out(dialogues("aabbaabb"), share=0.25)
    assert len(valid) == 2
    assert label_counts(train) == {"a": 3, "b": 3}


def test_where_no_dialogue_can_be_spared_utterances_are_held_out():
    train, valid = hold_out(dialogues("aaab", "ccccd"), share=0.3)
    assert valid
    assert set(label_counts(train)) == set("abcd")


def test_common_labels_that_validation_lacks_are_told():
    lines = list(check(numbered(a=60, b=30, c=10), numbered(a=20)).lines())
    assert lines[-1] == (
        "note: validation: has none of b, 30.0% of the labels in training; its scores say nothing about them"
    )
    assert not any("has none of" in line for line in check(numbered(a=60, b=30), numbered(a=12, b=1)).lines())


def test_the_last_resort_is_one_example_of_the_commonest():
    _, valid = hold_out(numbered(a=2, b=3, c=1), share=0.01)
    assert label_counts(valid) == {"b": 1}


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (1.5, "hold_out: share is 1.5; one above 0 and below 1 is needed"),
        (
            0.5,
            "hold_out: 2 examples, no label with two different texts; "
            "one must stay in training and one is needed for validation",
        ),
    ],
)
def test_what_cannot_be_held_out(share, message):
    with pytest.raises(RegardError) as caught:
        hold_out(numbered(a=1, b=1), share)
    assert str(caught.value) == message
