import re

import pytest

from regard.data.corpora import generate_built_in, generate_examples
from regard.data.corpora.toy_en_de import build_coordinated, build_question, build_subordinated
from regard.data.corpora.toy_grammar import Clause, NounPhrase, link_shared_roles, to_english, to_german
from regard.data.corpora.toy_words import (
    ADJECTIVES,
    COORDINATORS,
    FREQUENCIES,
    MODALS,
    NOUNS,
    PLACES,
    PRONOUNS,
    SUBORDINATORS,
    TIMES,
    VERBS,
)

NOUN = {noun.english: noun for noun in NOUNS}
VERB = {verb.english: verb for verb in reversed(VERBS)}  # of the two "eat" the first: that of people
FRESSEN = next(verb for verb in VERBS if verb.infinitive == "fressen")
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
PRONOUN = {pronoun.subject: pronoun for pronoun in PRONOUNS}
MODAL = {modal.english: modal for modal in MODALS}
OFTEN = dict(FREQUENCIES)
TODAY, EVENING = TIMES[0], TIMES[-1]
GARDEN = next(place for place in PLACES if place[-1][0] == "garden")


def a(noun, adjective=None, determiner="a"):
    return NounPhrase(noun=NOUN[noun], determiner=determiner, adjective=ADJECTIVE.get(adjective))


def the(noun, adjective=None):
    return a(noun, adjective, "the")


def some(noun, adjective=None, determiner=""):
    return NounPhrase(noun=NOUN[noun], determiner=determiner, adjective=ADJECTIVE.get(adjective), plural=True)


def clause(subject, verb=None, object_phrase=None, **rest):
    if isinstance(subject, str):
        subject = PRONOUN[subject]
    return Clause(subject=subject, verb=VERB.get(verb), object=object_phrase, **rest)


def written(words):
    source, target = words
    links = " ".join(f"{here}-{there}" for here, there in sorted(link_shared_roles(source, target)))
    return " ".join(word.text for word in source), " ".join(word.text for word in target), links


STATEMENTS = [
    (
        clause(some("cat"), "like", some("dog"), negated=True),
        "cats do not like dogs", "katzen mögen hunde nicht", "0-0 2-3 3-1 4-2",
    ),
    (
        clause(the("cat"), "see", a("dog"), time=TODAY, time_first=True),
        "today the cat sees a dog", "heute sieht die katze einen hund", "0-0 1-2 2-3 3-1 4-4 5-5",
    ),
    (
        clause(the("cat"), "see", the("dog"), modal=MODAL["can"]),
        "the cat can see the dog", "die katze kann den hund sehen", "0-0 1-1 2-2 3-5 4-3 5-4",
    ),
    (
        clause(the("cat"), "see", a("dog"), negated=True),
        "the cat does not see a dog", "die katze sieht keinen hund", "0-0 1-1 3-3 4-2 5-3 6-4",
    ),
    (
        clause("she", "see", some("dog", "small"), negated=True),
        "she does not see small dogs", "sie sieht keine kleinen hunde", "0-0 2-2 3-1 4-3 5-4",
    ),
    (
        clause("they", "like", some("dog", "small"), negated=True, time=TODAY),
        "they do not like small dogs today", "sie mögen kleine hunde heute nicht", "0-0 2-5 3-1 4-2 5-3 6-4",
    ),
    (
        clause(a("horse", "old"), "drink", a("tea", "cold", ""), negated=True),
        "an old horse does not drink cold tea", "ein altes pferd trinkt keinen kalten tee",
        "0-0 1-1 2-2 4-4 5-3 6-5 7-6",
    ),
    (
        clause("i", "call", the("woman"), negated=True, time=TODAY),
        "i do not call the woman today", "ich rufe die frau heute nicht an", "0-0 2-5 3-1 3-6 4-2 5-3 6-4",
    ),
    (
        clause("he", "invite", PRONOUN["we"], modal=MODAL["want"], frequency=("often", OFTEN["often"])),
        "he often wants to invite us", "er will uns oft einladen", "0-0 1-3 2-1 4-4 5-2",
    ),
    (
        clause(a("man", None, "my"), "eat", a("egg", None, "this"), modal=MODAL["must"], negated=True),
        "my man must not eat this egg", "mein mann darf dieses ei nicht essen", "0-0 1-1 2-2 3-5 4-6 5-3 6-4",
    ),
    (
        clause(some("pig", None, "our"), "open", the("door"), frequency=("never", OFTEN["never"])),
        "our pigs never open the door", "unsere schweine machen die tür nie auf", "0-0 1-1 2-5 3-2 3-6 4-3 5-4",
    ),
    (
        clause("we", "hear", some("bird", None, "two"), place=GARDEN, time=EVENING),
        "we hear two birds in the garden in the evening", "wir hören am abend zwei vögel im garten",
        "0-0 1-1 2-4 3-5 4-6 5-6 6-7 7-2 8-2 9-3",
    ),
    (
        clause(the("girl", "young"), "sleep", place=GARDEN, negated=True),
        "the young girl does not sleep in the garden", "das junge mädchen schläft nicht im garten",
        "0-0 1-1 2-2 4-4 5-3 6-5 7-5 8-6",
    ),
    (
        clause("i", predicate=ADJECTIVE["tired"], negated=True, time=TODAY),
        "i am not tired today", "ich bin heute nicht müde", "0-0 1-1 2-3 3-4 4-2",
    ),
    (
        clause(a("dog", "tired"), "find", the("ball", "red")),
        "a tired dog finds the red ball", "ein müder hund findet den roten ball", "0-0 1-1 2-2 3-3 4-4 5-5 6-6",
    ),
    (
        clause(some("fox", "old", "this"), "chase", some("mouse", "small", "many")),
        "these old foxes chase many small mice", "diese alten füchse jagen viele kleine mäuse",
        "0-0 1-1 2-2 3-3 4-4 5-5 6-6",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "source", "target", "links"), STATEMENTS)
def test_statements(plan, source, target, links):
    assert written((to_english(plan), to_german(plan))) == (source, target, links)


def test_animals_eat_with_another_word():
    plan = Clause(subject=the("cow"), verb=FRESSEN, object=the("pear"))
    assert written((to_english(plan), to_german(plan)))[:2] == ("the cow eats the pear", "die kuh frisst die birne")


def test_questions():
    plan = clause(the("dog"), "see", PRONOUN["she"], negated=True)
    assert written(build_question(plan)) == (
        "does the dog not see her ?", "sieht der hund sie nicht ?", "1-1 2-2 3-4 4-0 5-3 6-5",
    )  # fmt: skip
    plan = clause("he", "close", a("window"), modal=MODAL["should"])
    assert written(build_question(plan))[:2] == ("should he close a window ?", "sollte er ein fenster zumachen ?")


def test_clauses_after_weil_end_in_their_verb():
    main, other = clause("she", "sleep"), clause(the("man"), "call", the("child"), time=TODAY, time_first=True)
    assert written(build_subordinated(main, SUBORDINATORS[0], other, first=False)) == (
        "she sleeps because the man calls the child today",
        "sie schläft , weil der mann das kind heute anruft",
        "0-0 1-1 2-2 2-3 3-4 4-5 5-9 6-6 7-7 8-8",
    )
    assert written(build_subordinated(main, SUBORDINATORS[0], other, first=True))[:2] == (
        "because the man calls the child today , she sleeps",
        "weil der mann das kind heute anruft , schläft sie",
    )
    other = clause("he", "call", PRONOUN["they"], modal=MODAL["can"], negated=True)
    assert written(build_subordinated(main, SUBORDINATORS[2], other, first=False))[1] == (
        "sie schläft , wenn er sie nicht anrufen kann"
    )


def test_clauses_after_and_keep_their_order():
    main, other = clause("i", "run"), clause("they", "work", time=TODAY, time_first=True)
    assert written(build_coordinated(main, COORDINATORS[0], other)) == (
        "i run and today they work", "ich laufe und heute arbeiten sie", "0-0 1-1 2-2 3-3 4-5 5-4",
    )  # fmt: skip
    assert written(build_coordinated(main, COORDINATORS[1], other))[1] == "ich laufe , aber heute arbeiten sie"


@pytest.fixture(scope="module")
def sample():
    return generate_examples("toy-en-de", 3000, seed=1)


def test_a_sentence_has_one_translation(sample):
    translations = {}
    for example in sample + generate_examples("toy-en-de", 1000, seed=2, clauses=1, questions=False):
        assert translations.setdefault(example.source, example.target) == example.target


def test_every_word_is_linked_but_those_without_an_answer(sample):
    for example in sample:
        source, target = example.source.split(" "), example.target.split(" ")
        here, there = ({pair[side] for pair in example.links} for side in (0, 1))
        assert {word for index, word in enumerate(source) if index not in here} <= {"do", "does", "to"}
        assert {word for index, word in enumerate(target) if index not in there} <= {","}
        assert max(here) < len(source)
        assert max(there) < len(target)


def test_articles_agree_with_their_nouns(sample):
    genders = {"m": "mann hund vogel fuchs lehrer bruder ball stuhl brief apfel tee",
               "f": "frau katze kuh maus schwester tante blume tür birne milch",
               "n": "kind pferd schwein mädchen haus buch fenster ei wasser"}  # fmt: skip
    gender = {word: name for name, words in genders.items() for word in words.split()}
    fitting = {"den": "m", "einen": "m", "keinen": "m", "diesen": "m", "dieser": "m", "meinen": "m", "der": "m",
               "das": "n", "dieses": "n", "eine": "f"}  # fmt: skip
    met = 0
    for example in sample:
        phrase = re.sub(r"\bin der stadt\b", "", example.target)
        for article, noun in re.findall(rf"\b({'|'.join(fitting)}) (?:\w+(?:er|en|es|e) )?(\w+)", phrase):
            if noun in gender:
                met += 1
                assert gender[noun] == fitting[article], example
    assert met > 800


def test_the_vocabulary_is_small(sample):
    assert 150 < len({word for example in sample for word in example.source.split()}) < 200
    assert 200 < len({word for example in sample for word in example.target.split()}) < 300


def test_one_clause_without_questions():
    for example in generate_examples("toy-en-de", 500, clauses=1, questions=False):
        assert not {"?", ",", "because", "and", "although", "if", "but"} & set(example.source.split())


def test_the_sentence_to_show_is_never_trained_on(monkeypatch):
    shown = clause(some("cat"), "like", some("dog"), negated=True)
    rare = clause("she", "sleep")
    plans = iter([shown, rare] * 50_000)
    monkeypatch.setattr("regard.data.corpora.toy_en_de.sample_clause", lambda random, question=False: next(plans))
    train, valid = generate_built_in("toy-en-de", train=1, valid=1, clauses=1, questions=False)
    assert [example.source for example in train] == ["she sleeps"]
    assert [example.source for example in valid] == ["cats do not like dogs"]
