"""Named entities: tags, and the words that decide them."""

import pytest

from regard.data.corpora import generate_examples
from regard.data.corpora.entities import AMBIGUOUS, NAMES, Entities
from regard.errors import RegardError
from regard.schemes import find_scheme, tags_to_spans

CUES = {
    "PER": {"said", "married", "her", "brother", "named", "smiled", "sold"},
    "LOC": {"in", "to", "streets", "lies"},
    "ORG": {"hired", "shares", "works", "for", "announced", "opened", "sued"},
    "PROD": {"bought", "new", "my", "old", "repaired", "owners"},
}


@pytest.fixture(scope="module")
def sample():
    return generate_examples("entities", 2000, seed=1)


def test_tags_follow_bio_and_all_types_occur(sample):
    assert find_scheme(sentence.tags for sentence in sample) == "BIO"
    spans = [span for sentence in sample for span in tags_to_spans(sentence.tags)]
    assert {span.type for span in spans} == set(NAMES)
    assert {span.last - span.first for span in spans} == {0, 1}


def test_an_ambiguous_name_has_every_type(sample):
    types = {name: set() for name in AMBIGUOUS}
    for sentence in sample:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if word in types and tag.startswith("B-"):
                types[word].add(tag[2:])
    assert all(kinds == set(NAMES) for kinds in types.values())


def test_links_lead_from_cues_to_ambiguous_names(sample):
    linked = 0
    for sentence in sample:
        for cue, name in sentence.links:
            assert sentence.words[name] in AMBIGUOUS
            assert sentence.words[cue] in CUES[sentence.tags[name][2:]]
            assert sentence.tags[cue] == "O"
            linked += 1
    assert linked > len(sample)


def test_names_of_one_type_have_no_links():
    sentences = generate_examples("entities", 200, ambiguous=0.0)
    assert all(sentence.links == frozenset() for sentence in sentences)
    assert not {word for sentence in sentences for word, tag in zip(sentence.words, sentence.tags, strict=True)
                if tag.startswith("B-")} & set(AMBIGUOUS)  # fmt: skip


def test_one_clause_has_no_conjunction():
    assert all(not {"while", "but"} & set(s.words) for s in generate_examples("entities", 200, clauses=1))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ambiguous": 1.5}, "ambiguous must be from 0 to 1, got 1.5"),
        ({"clauses": 0}, "clauses must be at least 1, got 0"),
    ],
)
def test_settings_out_of_bounds(settings, text):
    with pytest.raises(RegardError) as caught:
        Entities(**settings)
    assert str(caught.value) == text
