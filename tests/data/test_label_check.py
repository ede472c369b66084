from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.data.label_check import count_labels, split_validation_labeled, summarize_label_data
from regard.data.labeled import LabeledText


def examples(*pairs: tuple[str, str]) -> list[LabeledText]:
    return [LabeledText(text, tuple(labels.split("|"))) for text, labels in pairs]


def numbered(**counts: int) -> list[LabeledText]:
    """So many examples of each label, whose texts all differ."""
    return [LabeledText(f"text {n} of {label}", (label,)) for label, count in counts.items() for n in range(count)]


def test_labels_are_counted():
    assert list(count_labels(examples(("x", "b|a"), ("y", "c"), ("z", "c|b"))).items()) == [
        ("b", 2), ("c", 2), ("a", 1)
    ]  # fmt: skip


def test_the_report_in_words():
    train = examples(("who ?", "HUM"), ("where ?", "LOC"), ("who ?", "HUM"), ("what ?", "HUM"), ("what ?", "DEF"))
    valid = examples(("who ?", "HUM"), ("when ?", "NUM"))
    assert list(summarize_label_data(train, valid).lines()) == [
        "training: 5 examples, 1 duplicate",
        "training: 3 labels: HUM 3 (60.0%), DEF 1 (20.0%), LOC 1 (20.0%)",
        'note: training: 1 text with conflicting labels: "what ?" -> HUM, DEF',
        "validation: 2 examples, no duplicates",
        "validation: 2 labels: HUM 1 (50.0%), NUM 1 (50.0%)",
        "note: validation: the text of 1 example (50.0%) is also in the training data",
        "note: validation: 1 label missing from the training data, so never predicted: NUM 1",
    ]


def test_several_labels_in_words():
    train = examples(("x", "a|b"), ("y", "b|a"), ("x", "b|a"), ("z", "a"))
    assert list(summarize_label_data(train).lines()) == [
        "training: 4 examples, 1 duplicate",
        "training: 2 labels, 1.8 per example: a 4 (100.0%), b 3 (75.0%)",
    ]


def test_imbalance_and_many_labels():
    train = numbered(common=86, **{f"l{n:02}": 1 for n in range(14)})
    lines = list(summarize_label_data(train).lines())
    assert lines[1].startswith("training: 15 labels: common 86 (86.0%), l00 1 (1.0%), ")
    assert lines[1].endswith(", l10 1 (1.0%), and 3 more")
    assert lines[2:] == [
        "note: training: common is 86 times as common as l13; "
        "always predicting common would be right for 86.0% of examples"
    ]


def test_only_training_data_is_called_uneven():
    valid = numbered(a=30, b=2)
    assert not any("times as common" in line for line in summarize_label_data(numbered(a=3, b=3), valid).lines())


def test_a_label_is_shown_short_and_without_what_a_terminal_obeys():
    train = examples(("x", "a\x1b[2J"), ("y", "b" * 99))
    assert list(summarize_label_data(train).lines())[1] == f"training: 2 labels: a [2J 1 (50.0%), {'b' * 39}… 1 (50.0%)"


def test_what_is_read_in_different_contexts_may_differ():
    train = [LabeledText("okay", ("A",), context=("so ?",)), LabeledText("okay", ("B",), context=("well",))]
    assert summarize_label_data(train).train.inconsistent == ()
    torn = [LabeledText("okay", ("A",), "one"), LabeledText("okay", ("B",), "one"), LabeledText("okay", ("B",), "two")]
    assert summarize_label_data(torn).train.inconsistent == (("okay", ("A", "B")),)


def test_swapped_columns_and_headers():
    train = examples(("label", "text"), ("A", "one"), ("B", "two"), ("A", "three"))
    assert list(summarize_label_data(train).lines())[2:] == [
        'note: training: example 1, "label" -> "text", looks like a header; '
        "to skip it, name the columns with --columns",
        "note: training: 4 distinct labels but only 3 distinct texts; are the columns swapped?",
        'note: training: 1 text with conflicting labels: "A" -> one, three',
    ]


def test_strangers_and_old_friends():
    train = numbered(a=3, b=3)
    assert (
        list(summarize_label_data(train, [LabeledText("new", ("a",))]).lines())[-1]
        == "validation: no text is in the training data"
    )
    assert list(summarize_label_data(train, train[:2]).lines())[-1] == (
        "note: validation: every text is also in the training data, so the scores do not measure generalization"
    )
    assert summarize_label_data(train).valid is None


def test_many_unseen_labels():
    unseen = [LabeledText(f"text {n}", (f"new{n:02}",)) for n in range(14)]
    assert list(summarize_label_data(numbered(a=1, b=1), unseen).lines())[-1].endswith("new10 1, new11 1, and 2 more")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], "is empty: expected at least one example"),
        (
            [("x", "A"), ("y", "A")],
            'every label is "A" (2 examples); expected at least two different labels',
        ),
        (
            [("x", "A"), ("x", "B")],
            'every text is "x" (2 examples); expected at least two different texts',
        ),
    ],
)
def test_what_cannot_be_right(train, message):
    with pytest.raises(RegardError) as caught:
        summarize_label_data(examples(*train))
    assert str(caught.value) == f"training data{' ' if message.startswith('is ') else ': '}{message}"


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1).filter(lambda d: max(d.values()) > 1),
    st.floats(0.02, 0.98),
    st.integers(0, 5),
)
def test_every_label_gives_its_share(counts, share, seed):
    data = numbered(**counts)
    train, valid = split_validation_labeled(data, share, seed)
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    held, left = count_labels(valid), count_labels(train)
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
    data = [LabeledText(text, tuple(sorted(labels))) for text, labels in pairs]
    try:
        train, valid = split_validation_labeled(data, share)
    except RegardError:  # then no text can go without taking the last of a label with it
        for text in {example.text for example in data}:
            others = {label for example in data if example.text != text for label in example.labels}
            assert not {label for example in data if example.text == text for label in example.labels} <= others
        return
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    assert not {example.text for example in train} & {example.text for example in valid}
    assert set(count_labels(valid)) <= set(count_labels(train))


def test_held_out_in_order_and_by_seed():
    data = numbered(a=100, b=40, c=10)
    train, valid = split_validation_labeled(data, share=0.1, seed=1)
    assert count_labels(valid) == {"a": 10, "b": 4, "c": 1}
    assert [example for example in data if example in valid] == valid
    assert split_validation_labeled(data, share=0.1, seed=1) == (train, valid)
    assert split_validation_labeled(data, share=0.1, seed=2) != (train, valid)


def dialogues(*labels: str) -> list[LabeledText]:
    """A dialogue for each of these, an utterance for each letter."""
    return [
        LabeledText(f"{letter} {index}", (letter,), context=("before",) * min(1, index), dialogue=number)
        for number, letters in enumerate(labels)
        for index, letter in enumerate(letters)
    ]


@given(
    st.lists(st.text("abc", min_size=1, max_size=6).map(lambda letters: f"abc{letters}"), min_size=2, max_size=12),
    st.floats(0.02, 0.9),
)
def test_whole_dialogues_are_held_out(labels, share):
    data = dialogues(*labels)
    train, valid = split_validation_labeled(data, share)
    assert Counter(train) + Counter(valid) == Counter(data)
    assert valid
    assert not {example.dialogue for example in train} & {example.dialogue for example in valid}
    longest = max(map(len, labels))
    assert len(valid) <= max(share * len(data) + 1, longest)


def test_of_one_dialogue_utterances_are_held_out():
    train, valid = split_validation_labeled(dialogues("aabbaabb"), share=0.25)
    assert len(valid) == 2
    assert count_labels(train) == {"a": 3, "b": 3}


def test_where_no_dialogue_can_be_spared_utterances_are_held_out():
    train, valid = split_validation_labeled(dialogues("aaab", "ccccd"), share=0.3)
    assert valid
    assert set(count_labels(train)) == set("abcd")


def test_common_labels_that_validation_lacks_are_told():
    lines = list(summarize_label_data(numbered(a=60, b=30, c=10), numbered(a=20)).lines())
    assert lines[-1] == (
        "note: validation: no examples of b (30.0% of the training labels), so the scores do not cover them"
    )
    assert not any(
        "has none of" in line for line in summarize_label_data(numbered(a=60, b=30), numbered(a=12, b=1)).lines()
    )


def test_the_last_resort_is_one_example_of_the_commonest():
    _, valid = split_validation_labeled(numbered(a=2, b=3, c=1), share=0.01)
    assert count_labels(valid) == {"b": 1}


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (1.5, "validation_share must be above 0 and below 1, got 1.5"),
        (
            0.5,
            "validation split: no label has two different texts in 2 examples; pass --validation with a separate file",
        ),
    ],
)
def test_what_cannot_be_held_out(share, message):
    with pytest.raises(RegardError) as caught:
        split_validation_labeled(numbered(a=1, b=1), share)
    assert str(caught.value) == message
