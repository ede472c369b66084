import random
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.batch import UNKNOWN
from regard.data.example import Example
from regard.data.pair_check import compute_unknown_share, split_validation_pairs, summarize_pair_data


def examples(*pairs: tuple[str, str]) -> list[Example]:
    return [Example(source, target) for source, target in pairs]


def numbered(count: int, start: int = 0) -> list[Example]:
    return [Example(f"source {n}", f"target {n}") for n in range(start, start + count)]


def test_the_report_in_words():
    train = examples(("ein Hund", "a dog"), ("zwei", "two"), ("ein Hund", "a dog"), ("ja", "yes"))
    valid = examples(("ein Hund", "a dog"), ("zwei", "a pair"), ("nein", "no"), ("nie", "never"))
    assert summarize_pair_data(train, valid).lines() == [
        "training: 4 pairs, 1 duplicate",
        "training, source: words: median 1.5, longest 2; characters: median 6, longest 8",
        "training, target: words: median 1.5, longest 2; characters: median 4, longest 5",
        "validation: 4 pairs, no duplicates",
        "validation, source: words: median 1, longest 2; characters: median 4, longest 8",
        "validation, target: words: median 1.5, longest 2; characters: median 5, longest 6",
        "note: validation: 1 pair (25.0%) and 2 sources (50.0%) are also in the training data",
    ]


def test_the_report_in_numbers():
    train = examples(("a b", "x"), ("a b", "x"), ("c", "yy"))
    report = summarize_pair_data(train, examples(("c", "z")))
    assert (report.train.pairs, report.train.duplicates) == (3, 1)
    assert (report.overlapping_pairs, report.overlapping_sources, report.swapped) == (0, 1, False)
    assert report.valid is not None
    assert report.valid.pairs == 1
    with pytest.raises(FrozenInstanceError):
        report.overlapping_pairs = 1


def test_without_validation_data():
    report = summarize_pair_data(numbered(2))
    assert report.valid is None
    assert [line.split(":")[0] for line in report.lines()] == ["training", "training, source", "training, target"]


def test_strangers_and_old_friends():
    assert (
        summarize_pair_data(numbered(5), numbered(2, start=9)).lines()[-1]
        == "validation: no source is in the training data"
    )
    assert summarize_pair_data(numbered(5), numbered(2)).lines()[-1] == (
        "note: validation: every pair is also in the training data, so the scores do not measure generalization"
    )


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ([], "is empty: expected at least one pair"),
        ([("a", "x"), ("b", "x")], 'every target is "x" (2 pairs); are these the right columns?'),
        ([("a", "x"), ("a", "y")], 'every source is "a" (2 pairs); are these the right columns?'),
        ([("", "x"), ("", "y")], "every source is empty (2 pairs); are these the right columns?"),
        ([("a", " ")], "every target is empty (1 pair); are these the right columns?"),
    ],
)
def test_what_cannot_be_right(train, said):
    with pytest.raises(RegardError) as caught:
        summarize_pair_data(examples(*train), numbered(1))
    assert str(caught.value) == f"training data{' ' if said.startswith('is ') else ': '}{said}"


def test_training_data_inside_the_validation_data():
    with pytest.raises(RegardError) as caught:
        summarize_pair_data(numbered(3), numbered(5))
    assert str(caught.value) == ("training data: all 3 pairs are also in the validation data; use different files")


def test_one_pair_may_be_learned_by_heart():
    assert summarize_pair_data(numbered(1)).train.pairs == 1


def test_lengths_that_do_not_fit():
    usual = [Example("ab " * n, "xyz " * n) for n in range(1, 30)]
    odd = Example("ab", "xyz " * 20)  # two characters where sixty would fit
    suspicions = summarize_pair_data(
        [*usual, odd, Example("abc", "x")]
    ).train.suspicions  # the last is too short to tell
    assert [(s.description, s.pairs, s.examples) for s in suspicions] == [
        ("where one side is unusually long for the other", 1, ((30, odd),))
    ]


def test_copies_with_three_examples():
    copies = examples(*[(f"word {n}; line", f"word {n}; line") for n in range(5)])
    (suspicion,) = summarize_pair_data([*numbered(3), *copies]).train.suspicions
    assert (suspicion.pairs, [index for index, _ in suspicion.examples]) == (5, [4, 5, 6])
    assert summarize_pair_data([*numbered(3), copies[0], Example("x" * 80, "x" * 80)]).lines()[-1] == (
        'note: training: 2 pairs where the target is a copy of the source: pair 4, "word 0; line" -> "word 0; line"; '
        f'pair 5, "{"x" * 59}…" -> "{"x" * 59}…"'
    )


def test_targets_with_space_that_words_do_not_keep():
    train = [*numbered(3), Example("a", "x  y"), Example("b", "x\ny"), Example("c  d", "x y")]
    assert summarize_pair_data(train).lines()[-1] == (
        "note: training: 2 pairs where the target has line breaks, tabs or repeated spaces, which the words tokenizer "
        'does not preserve: pair 4, "a" -> "x  y"; pair 5, "b" -> "x y"'
    )


def test_a_header_among_the_pairs_wherever_it_went():
    header, romans = Example("roman", "arabic"), examples(*[("X" * n, f"{n}0") for n in range(1, 9)])
    line = 'pair 1, "roman" -> "arabic", looks like a header; to skip it, pass --columns roman,arabic'
    assert summarize_pair_data([header, *romans[2:]], romans[:2]).lines()[3] == f"note: training: {line}"
    assert summarize_pair_data(romans[2:], [header, *romans[:2]]).lines()[6] == f"note: validation: {line}"
    assert summarize_pair_data(romans[2:], romans[:2]).train.header is None


def in_two_languages(count: int, seed: int) -> list[Example]:
    """Sentences of two made-up languages, the same letters in other words."""
    draw = random.Random(seed)
    predicted, reference = ["tamo", "relu", "sina", "dobe", "kiru"], ["atom", "uler", "anis", "ebod", "urik"]
    indices = [draw.choices(range(5), k=8) for _ in range(count)]
    return [Example(" ".join(predicted[n] for n in p), " ".join(reference[n] for n in p)) for p in indices]


def exchanged(example: Example) -> Example:
    return Example(example.target, example.source)


def test_swapped_validation_data():
    train, valid = in_two_languages(80, 1), in_two_languages(20, 2)
    assert not summarize_pair_data(train, valid).swapped
    report = summarize_pair_data(train, [exchanged(example) for example in valid])
    assert report.swapped
    assert report.lines()[-1] == ("note: validation: source and target look swapped, compared with the training data")


def test_a_few_swapped_pairs():
    train, valid = in_two_languages(80, 1), in_two_languages(20, 2)
    train[17], valid[3] = exchanged(train[17]), exchanged(valid[3])
    report = summarize_pair_data(train, valid)
    assert not report.swapped
    assert report.valid is not None
    for part, index, example in ((report.train, 18, train[17]), (report.valid, 4, valid[3])):
        (suspicion,) = part.suspicions
        assert (suspicion.description, suspicion.examples) == (
            "where source and target look swapped",
            ((index, example),),
        )


def test_unknown_share():
    assert compute_unknown_share([[4, 5], [4, UNKNOWN]]) == 1 / 4
    assert compute_unknown_share(iter([[], ()])) == 0.0


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz")), min_size=2, max_size=60).filter(
        lambda pairs: len({source for source, _ in pairs}) > 1
    ),
    st.floats(0.01, 0.99),
    st.integers(1, 20),
    st.integers(0, 5),
)
def test_what_is_held_out(pairs, share, most, seed):
    data = examples(*pairs)
    train, valid = split_validation_pairs(data, share, most, seed)
    assert Counter(train) + Counter(valid) == Counter(data)
    assert train
    assert valid
    assert not {example.source for example in train} & {example.source for example in valid}
    rarest = min(Counter(example.source for example in data).values())
    assert len(valid) <= max(1, min(round(len(data) * share), most), rarest)


def test_held_out_in_order_and_by_seed():
    data = numbered(200)
    train, valid = split_validation_pairs(data, share=0.1, seed=1)
    assert (len(train), len(valid)) == (180, 20)
    assert [e for e in data if e in valid] == valid
    assert split_validation_pairs(data, share=0.1, seed=1) == (train, valid)
    assert split_validation_pairs(data, share=0.1, seed=2) != (train, valid)
    assert len(split_validation_pairs(data, share=0.5, max_count=7)[1]) == 7


def test_what_cannot_be_held_out():
    with pytest.raises(RegardError) as caught:
        split_validation_pairs(examples(("a", "x"), ("a", "y")))
    assert str(caught.value) == ("validation split: expected at least 2 distinct sources, got 1 in 2 pairs")
    with pytest.raises(RegardError) as caught:
        split_validation_pairs(numbered(9), share=1.5)
    assert str(caught.value) == "validation_share must be above 0 and below 1, got 1.5"


def test_targets_that_look_like_labels():
    train = [Example(f"text {number}", ("good", "bad")[number % 2]) for number in range(40)]
    assert "note: training: 2 distinct targets in 40 pairs; if they are labels, pass --task label" in (
        summarize_pair_data(train).lines()
    )
    assert not any("--task label" in line for line in summarize_pair_data(train[:39]).lines())
