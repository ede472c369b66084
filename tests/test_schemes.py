import re
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.schemes import (
    SCHEMES,
    Span,
    allowed_transitions,
    find_scheme,
    odd_tags,
    repair,
    scheme_lines,
    spans_of,
    tags_of,
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
    spans, place = [], 0
    for gap, length, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("XY")), max_size=5)
    ):
        spans.append(Span(kind, place + gap, place + gap + length - 1))
        place += gap + length
    return spans, place + draw(st.integers(0, 2))


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
    assert spans_of(tags.split()) == spans
    assert tags_of(reversed(spans), 8, scheme) == tuple(tags.split())


def test_io_makes_one_of_neighbours():
    assert tags_of([Span("X", 0, 0), Span("X", 1, 1), Span("Y", 2, 2)], 4, "IO") == ("I-X", "I-X", "I-Y", "O")


def test_spans_without_a_type():
    assert spans_of(["B", "I", "O", "B"]) == [Span("_", 0, 1), Span("_", 3, 3)]
    assert tags_of([Span("_", 0, 1)], 3, "BIO") == ("B", "I", "O")


def test_types_may_have_hyphens():
    assert spans_of(["B-a-b", "I-a-b", "I-a-c"]) == [Span("a-b", 0, 1), Span("a-c", 2, 2)]


@given(spans_among_words(), st.sampled_from(["BIO", "IOB1", "BIOES", "BILOU"]))
def test_there_and_back(given_spans, scheme):
    spans, length = given_spans
    tags = tags_of(spans, length, scheme)
    assert len(tags) == length
    assert spans_of(tags) == spans
    assert is_consistent(tags, scheme)
    if scheme != "IOB1":
        assert spans_of(tags, strict=scheme) == spans


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
    assert spans_of(tags.split(), strict=scheme) == [Span(*each) for each in spans]


@pytest.mark.parametrize("scheme", PREFIXES)
def test_allowed_transitions_by_brute_force(scheme):
    tags = tag_list(scheme)
    start, between, end = (each.tolist() for each in allowed_transitions(tags, scheme))
    places = range(len(tags))
    for length in (1, 2, 3):
        for chosen in product(places, repeat=length):
            allowed = (
                start[chosen[0]]
                and end[chosen[-1]]
                and all(between[before][after] for before, after in pairwise(chosen))
            )
            assert allowed == is_consistent([tags[place] for place in chosen], scheme)


def test_plain_tags_may_follow_each_other():
    assert all(each.all() for each in allowed_transitions(["DET", "NOUN"], "plain"))
    assert allowed_transitions(["DET", "NOUN", "VERB"], "plain").between.shape == (3, 3)


@pytest.mark.parametrize("scheme", PREFIXES)
def test_repair_by_brute_force(scheme):
    sentences = list(product(tag_list(scheme), repeat=3))
    mended, changed = repair(sentences, scheme)
    assert all(is_consistent(tags, scheme) for tags in mended)
    assert [spans_of(tags) for tags in mended] == [spans_of(tags) for tags in sentences]
    for old, new in zip(sentences, mended, strict=True):
        assert (old == new) == is_consistent(old, scheme)
    assert (changed == 0) == (scheme == "IO")


def test_repair_by_hand():
    sentences = [["I-X", "I-X", "O", "I-Y"], ["B-X", "I-Y", "O"], ["O"]]
    assert repair(sentences, "BIO") == ([("B-X", "I-X", "O", "B-Y"), ("B-X", "B-Y", "O"), ("O",)], 3)
    assert repair([["DET", "NOUN"]], "plain") == ([("DET", "NOUN")], 0)


def test_the_scheme_is_said():
    assert list(scheme_lines("BIO", 3)) == [
        "tags: BIO (B- begins a span, I- goes on)",
        "note: tags: 3 did not keep to BIO, such as an I- with no span to go on with; "
        "changed so that the same spans are marked",
    ]
    assert [list(scheme_lines(scheme, 0)) for scheme in ("plain", "IO")] == [
        ["tags: plain (each stands for itself, none marks a span)"],
        ["tags: IO (I- is in a span)"],
    ]
    assert set(SCHEMES) == {*PREFIXES, "plain"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: spans_of(["NOUN"]),
            'tags: found "NOUN"; a tag that marks spans is O, or B-, I-, E-, S-, L- or U- and a type',
        ),
        (lambda: spans_of(["O"], strict="IO"), 'strict: there is no "IO"; did you mean "BIO"?'),
        (
            lambda: tags_of([], 1, "plain"),
            "tags_of: the scheme plain marks no spans; BIO, IOB1, BIOES, BILOU and IO do",
        ),
        (
            lambda: tags_of([Span("X", 0, 2), Span("Y", 2, 3)], 5, "BIO"),
            "tags_of: found Y at words 2 to 3; of 5 words those from 3 on are free",
        ),
        (
            lambda: tags_of([Span("X", 4, 5)], 5, "BIO"),
            "tags_of: found X at words 4 to 5; of 5 words those from 0 on are free",
        ),
    ],
)
def test_what_cannot_be(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message


def test_a_tag_of_no_scheme_among_tags_of_one():
    assert odd_tags(["O", "B-PER", "I-PER", "Q-Z"]) == ["Q-Z"]
    assert odd_tags(["O", "B-PER", "I-PER"]) == []
    assert odd_tags(["NOUN", "VERB", "O", "B-X"]) == []  # as many of either kind
    assert odd_tags(["NOUN", "VERB", "DET"]) == []
