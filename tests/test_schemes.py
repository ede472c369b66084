import re
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.schemes import (
    SCHEMES,
    Span,
    build_transitions,
    find_odd_tags,
    find_scheme,
    format_scheme,
    repair_tags,
    spans_to_tags,
    tags_to_spans,
)

PREFIXES = {"BIO": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU", "IO": "I"}

# what a consistent sentence is, for the types X and Y, with a space after each tag
CONSISTENT = {
    "BIO": "(O |B-X (I-X )*|B-Y (I-Y )*)*",
    "IOB1": "(O |(I-X )+(B-X (I-X )*)*|(I-Y )+(B-Y (I-Y )*)*)*",
    "BIOES": "(O |S-X |S-Y |B-X (I-X )*E-X |B-Y (I-Y )*E-Y )*",
    "BILOU": "(O |U-X |U-Y |B-X (I-X )*L-X |B-Y (I-Y )*L-Y )*",
    "IO": "(O |I-X |I-Y )*",
}


def tag_list(scheme: str) -> list[str]:
    return ["O", *(f"{prefix}-{kind}" for prefix in PREFIXES[scheme] for kind in "XY")]


def is_consistent(tags, scheme: str) -> bool:
    return re.fullmatch(CONSISTENT[scheme], "".join(f"{tag} " for tag in tags)) is not None


@st.composite
def spans_among_words(draw):
    """Spans that do not overlap, in order, and the number of words."""
    spans, index = [], 0
    for gap, length, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("XY")), max_size=5)
    ):
        spans.append(Span(kind, index + gap, index + gap + length - 1))
        index += gap + length
    return spans, index + draw(st.integers(0, 2))


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["O B-X I-X O", "B-Y B-Y"], "BIO"),
        (["O I-X B-X I-X", "I-Y"], "IOB1"),
        (["I-X", "B-X O"], "BIO"),  # a mistake in the first
        (["O I-X I-X", "I-Y"], "IO"),
        (["B-X E-X O"], "BIOES"),
        (["S-X O"], "BIOES"),
        (["B-X L-X", "U-X"], "BILOU"),
        (["U-X"], "BILOU"),
        (["B I O"], "BIO"),
        (["DET NOUN"], "plain"),
        (["B-X I-Y NOUN"], "plain"),
        (["S-X U-X"], "plain"),
        (["I-X E-X"], "plain"),
        (["O O"], "plain"),
        ([], "plain"),
    ],
)
def test_the_scheme_is_found_out(sentences, scheme):
    assert find_scheme([sentence.split() for sentence in sentences]) == scheme


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("BIO", "B-X I-X B-X O B-Y I-Y I-Y B-X"),
        ("IOB1", "I-X I-X B-X O I-Y I-Y I-Y I-X"),
        ("BIOES", "B-X E-X S-X O B-Y I-Y E-Y S-X"),
        ("BILOU", "B-X L-X U-X O B-Y I-Y L-Y U-X"),
    ],
)
def test_the_same_spans_in_each_scheme(scheme, tags):
    spans = [Span("X", 0, 1), Span("X", 2, 2), Span("Y", 4, 6), Span("X", 7, 7)]
    assert tags_to_spans(tags.split()) == spans
    assert spans_to_tags(reversed(spans), 8, scheme) == tuple(tags.split())


def test_io_makes_one_of_neighbors():
    assert spans_to_tags([Span("X", 0, 0), Span("X", 1, 1), Span("Y", 2, 2)], 4, "IO") == ("I-X", "I-X", "I-Y", "O")


def test_spans_without_a_type():
    assert tags_to_spans(["B", "I", "O", "B"]) == [Span("_", 0, 1), Span("_", 3, 3)]
    assert spans_to_tags([Span("_", 0, 1)], 3, "BIO") == ("B", "I", "O")


def test_types_may_have_hyphens():
    assert tags_to_spans(["B-a-b", "I-a-b", "I-a-c"]) == [Span("a-b", 0, 1), Span("a-c", 2, 2)]


@given(spans_among_words(), st.sampled_from(["BIO", "IOB1", "BIOES", "BILOU"]))
def test_there_and_back(given_spans, scheme):
    spans, length = given_spans
    tags = spans_to_tags(spans, length, scheme)
    assert len(tags) == length
    assert tags_to_spans(tags) == spans
    assert is_consistent(tags, scheme)
    if scheme != "IOB1":
        assert tags_to_spans(tags, strict=scheme) == spans


@pytest.mark.parametrize(
    ("tags", "scheme", "spans"),
    [
        ("I-X B-X I-X I-Y", "BIO", [("X", 1, 2)]),
        ("B-X I-Y I-X", "BIO", [("X", 0, 0)]),
        ("B-X I-X O B-X E-X", "BIOES", [("X", 3, 4)]),
        ("E-X I-X S-X B-X B-X E-Y", "BIOES", [("X", 2, 2)]),
        ("B-X I-X L-X L-X U-X", "BILOU", [("X", 0, 2), ("X", 4, 4)]),
    ],
)
def test_strictly_only_whole_spans_count(tags, scheme, spans):
    assert tags_to_spans(tags.split(), strict=scheme) == [Span(*each) for each in spans]


@pytest.mark.parametrize("scheme", PREFIXES)
def test_allowed_transitions_by_brute_force(scheme):
    tags = tag_list(scheme)
    start, between, end = (each.tolist() for each in build_transitions(tags, scheme))
    indices = range(len(tags))
    for length in (1, 2, 3):
        for chosen in product(indices, repeat=length):
            allowed = (
                start[chosen[0]]
                and end[chosen[-1]]
                and all(between[before][after] for before, after in pairwise(chosen))
            )
            assert allowed == is_consistent([tags[index] for index in chosen], scheme)


def test_plain_tags_may_follow_each_other():
    assert all(each.all() for each in build_transitions(["DET", "NOUN"], "plain"))
    assert build_transitions(["DET", "NOUN", "VERB"], "plain").between.shape == (3, 3)


@pytest.mark.parametrize("scheme", PREFIXES)
def test_repair_by_brute_force(scheme):
    sentences = list(product(tag_list(scheme), repeat=3))
    mended, changed = repair_tags(sentences, scheme)
    assert all(is_consistent(tags, scheme) for tags in mended)
    assert [tags_to_spans(tags) for tags in mended] == [tags_to_spans(tags) for tags in sentences]
    for old, new in zip(sentences, mended, strict=True):
        assert (old == new) == is_consistent(old, scheme)
    assert (changed == 0) == (scheme == "IO")


def test_repair_by_hand():
    sentences = [["I-X", "I-X", "O", "I-Y"], ["B-X", "I-Y", "O"], ["O"]]
    assert repair_tags(sentences, "BIO") == ([("B-X", "I-X", "O", "B-Y"), ("B-X", "B-Y", "O"), ("O",)], 3)
    assert repair_tags([["DET", "NOUN"]], "plain") == ([("DET", "NOUN")], 0)


def test_the_scheme_is_said():
    assert list(format_scheme("BIO", 3)) == [
        "tags: BIO (B- begins a span, I- continues it)",
        "note: tags: corrected 3 that did not match BIO, such as I- without a span to continue; "
        "the spans are unchanged",
    ]
    assert [list(format_scheme(scheme, 0)) for scheme in ("plain", "IO")] == [
        ["tags: plain (tags of single words, no spans)"],
        ["tags: IO (I- is inside a span)"],
    ]
    assert set(SCHEMES) == {*PREFIXES, "plain"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tags_to_spans(["NOUN"]),
            'tags: expected O, or B-, I-, E-, S-, L- or U- with a type, got "NOUN"',
        ),
        (lambda: tags_to_spans(["O"], strict="IO"), 'unknown strict "IO"; did you mean "BIO"?'),
        (
            lambda: spans_to_tags([], 1, "plain"),
            "spans_to_tags: scheme must be BIO, IOB1, BIOES, BILOU or IO, got plain",
        ),
        (
            lambda: spans_to_tags([Span("X", 0, 2), Span("Y", 2, 3)], 5, "BIO"),
            "spans_to_tags: expected a span within words 3 to 4, got Y at 2 to 3",
        ),
        (
            lambda: spans_to_tags([Span("X", 4, 5)], 5, "BIO"),
            "spans_to_tags: expected a span within words 0 to 4, got X at 4 to 5",
        ),
    ],
)
def test_what_cannot_be(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message


def test_a_tag_of_no_scheme_among_tags_of_one():
    assert find_odd_tags(["O", "B-PER", "I-PER", "Q-Z"]) == ["Q-Z"]
    assert find_odd_tags(["O", "B-PER", "I-PER"]) == []
    assert find_odd_tags(["NOUN", "VERB", "O", "B-X"]) == []  # as many of either kind
    assert find_odd_tags(["NOUN", "VERB", "DET"]) == []
