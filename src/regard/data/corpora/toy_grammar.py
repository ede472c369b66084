"""The grammar of the toy language: a clause as a plan, and the plan in English and in German.

A word carries the roles it plays (`verb`, `not`, `object.noun`), and words of the two
languages that share a role are linked. "do", "does" and the "to" of "wants to", which
German has not, play none: they are linked to nothing. The comma that German puts before
"weil" is there because of it, so both are linked to "because". "keinen" plays two roles:
"not" and "a".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from regard.data.corpora.toy_words import NEVER, WANT, Adjective, Gender, Modal, Noun, Phrase, Pronoun, Verb
from regard.data.example import Links

Determiner = Literal["the", "this", "a", "", "my", "his", "our", "two", "three", "many", "some"]
Case = Literal["subject", "object"]  # nominative and accusative

OWNERS = {"my": "mein", "his": "sein", "our": "unser"}
COUNTS = {"two": "zwei", "three": "drei", "many": "viele", "some": "einige"}
DEFINITE = ("the", "this", *OWNERS)

Row = Gender | Literal["plural"]
THE: dict[Row, tuple[str, str]] = {
    "m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das"), "plural": ("die", "die"),
}  # fmt: skip
THIS: dict[Row, tuple[str, str]] = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "plural": ("e", "e")}
A: dict[Row, tuple[str, str]] = {"m": ("", "en"), "f": ("e", "e"), "n": ("", ""), "plural": ("e", "e")}
AFTER_THE: dict[Row, tuple[str, str]] = {"m": ("e", "en"), "f": ("e", "e"), "n": ("e", "e"), "plural": ("en", "en")}
AFTER_A: dict[Row, tuple[str, str]] = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "plural": ("en", "en")}
ALONE: dict[Row, tuple[str, str]] = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "plural": ("e", "e")}


class Word(NamedTuple):
    """A word and the roles it plays."""

    text: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NounPhrase:
    """A noun with what stands before it: the small cats."""

    noun: Noun
    determiner: Determiner = "the"
    adjective: Adjective | None = None
    plural: bool = False
    first: ClassVar[bool] = False  # person

    @property
    def definite(self) -> bool:
        """Whether it is said which one."""
        return self.determiner in DEFINITE


@dataclass(frozen=True, kw_only=True)
class Clause:
    """Who does what to whom, when and where; without a verb, what somebody is."""

    subject: NounPhrase | Pronoun
    verb: Verb | None = None
    object: NounPhrase | Pronoun | None = None
    predicate: Adjective | None = None
    modal: Modal | None = None
    frequency: tuple[str, str] | None = None
    time: Phrase | None = None
    time_first: bool = False
    place: Phrase | None = None
    negated: bool = False

    @property
    def denies_object(self) -> bool:
        """Whether German says "keine hunde" rather than "hunde nicht"."""
        found = self.object
        if not self.negated or not isinstance(found, NounPhrase) or found.definite:
            return False
        as_a_kind = self.verb is not None and self.verb.general and found.plural
        return not as_a_kind


def english(clause: Clause, question: bool = False) -> list[Word]:
    """The clause in English; a question begins with its auxiliary."""
    auxiliary, rest = english_verbs(clause, question)
    negation = [Word("not", ("not",))] if clause.negated else []
    subject = english_noun_phrase(clause.subject, "subject")
    first = [*auxiliary, *subject] if question else [*subject, *auxiliary]
    found = [] if clause.object is None else english_noun_phrase(clause.object, "object")
    time = phrase_words(clause.time, "time", 0)
    before, after = (time, []) if clause.time_first else ([], time)
    return [*before, *first, *negation, *rest, *found, *phrase_words(clause.place, "place", 0), *after]


def english_verbs(clause: Clause, question: bool) -> tuple[list[Word], list[Word]]:
    """What stands before "not", and what after it: (does, see), (can, often see), (is, small)."""
    frequency = [] if clause.frequency is None else [Word(clause.frequency[0], ("frequency",))]
    third = not clause.subject.plural and not clause.subject.first
    if clause.verb is None:
        assert clause.predicate is not None
        be = "are" if clause.subject.plural else "is" if third else "am"
        return [Word(be, ("verb",))], [*frequency, Word(clause.predicate.english, ("predicate",))]
    if clause.modal not in (None, WANT):
        modal = Word(clause.modal.english, ("modal",))
        return [modal], [*frequency, Word(clause.verb.english, ("verb",))]
    helped = question or clause.negated
    auxiliary = [Word("does" if third else "do")] if helped else []
    inflected = third and not helped
    if clause.modal is None:
        return auxiliary, [*frequency, Word(clause.verb.third if inflected else clause.verb.english, ("verb",))]
    want = Word(WANT.third if inflected else WANT.english, ("modal",))
    return auxiliary, [*frequency, want, Word("to"), Word(clause.verb.english, ("verb",))]


def english_noun_phrase(found: NounPhrase | Pronoun, case: Case) -> list[Word]:
    """A noun or pronoun in English."""
    if isinstance(found, Pronoun):
        return [Word(found.subject if case == "subject" else found.object, (f"{case}.noun",))]
    noun = Word(found.noun.plural if found.plural else found.noun.english, (f"{case}.noun",))
    rest = [noun] if found.adjective is None else [Word(found.adjective.english, (f"{case}.adjective",)), noun]
    text: str = found.determiner
    if text == "a" and rest[0].text[0] in "aeiou":
        text = "an"
    elif text == "this" and found.plural:
        text = "these"
    return [Word(text, (f"{case}.determiner",)), *rest] if text else rest


def german(clause: Clause, order: Literal["second", "first", "last"] = "second") -> list[Word]:
    """The clause in German, with its finite verb second (a statement), first (a question) or last (after weil).

    Between the brackets of the verb stand: an object that is known, time, frequency, an
    object that is new, "nicht", place, what somebody is.
    """
    finite, end = german_verbs(clause)
    subject = german_noun_phrase(clause.subject, "subject", False)
    front = phrase_words(clause.time, "time", 1) if clause.time_first and order == "second" else []
    middle = german_middle(clause, with_time=not front)
    if order == "last":
        prefix = "" if clause.modal or not end else end.pop().text
        return [*subject, *middle, *end, Word(prefix + finite.text, finite.roles)]
    if order == "first" or front:
        return [*front, finite, *subject, *middle, *end]
    return [*subject, finite, *middle, *end]


def german_middle(clause: Clause, with_time: bool) -> list[Word]:
    """What stands between the finite verb and the end of the clause."""
    found = clause.object
    target = [] if found is None else german_noun_phrase(found, "object", clause.denies_object)
    nicht = clause.negated and not clause.denies_object
    known = isinstance(found, Pronoun) or (found is not None and (found.definite or nicht))
    return [
        *(target if known else []),
        *(phrase_words(clause.time, "time", 1) if with_time else []),
        *([] if clause.frequency is None else [Word(clause.frequency[1], ("frequency",))]),
        *([] if known else target),
        *([Word("nicht", ("not",))] if nicht else []),
        *phrase_words(clause.place, "place", 1),
        *([] if clause.predicate is None else [Word(clause.predicate.german, ("predicate",))]),
    ]


def german_verbs(clause: Clause) -> tuple[Word, list[Word]]:
    """The finite verb, and what ends a clause: (sieht), (ruft, an), (kann, sehen)."""
    plural, first = clause.subject.plural, clause.subject.first
    verb = clause.verb
    if verb is None:
        return Word("sind" if plural else "bin" if first else "ist", ("verb",)), []
    if clause.modal is not None:
        denied = clause.negated or clause.frequency == NEVER
        forms = clause.modal.denied if denied else (clause.modal.singular, clause.modal.plural)
        return Word(forms[plural], ("modal",)), [Word(verb.prefix + verb.infinitive, ("verb",))]
    form = verb.infinitive if plural else verb.german_first if first else verb.german_third
    return Word(form, ("verb",)), [Word(verb.prefix, ("verb",))] if verb.prefix else []


def german_noun_phrase(found: NounPhrase | Pronoun, case: Case, denied: bool) -> list[Word]:
    """A noun or pronoun in German; denied, "ein hund" is "kein hund" and "hunde" are "keine hunde"."""
    if isinstance(found, Pronoun):
        return [Word(found.german_subject if case == "subject" else found.german_object, (f"{case}.noun",))]
    row: Row = "plural" if found.plural else found.noun.gender
    column = 0 if case == "subject" else 1
    words = []
    text, endings = german_determiner(found.determiner, row, column, denied)
    if text:
        words.append(Word(text, (*(("not",) if denied else ()), f"{case}.determiner")))
    if found.adjective is not None:
        words.append(Word(found.adjective.stem + endings[row][column], (f"{case}.adjective",)))
    return [*words, Word(found.noun.german_plural if found.plural else found.noun.german, (f"{case}.noun",))]


def german_determiner(
    determiner: Determiner, row: Row, column: int, denied: bool
) -> tuple[str, dict[Row, tuple[str, str]]]:
    """A determiner, and the endings of an adjective after it."""
    if denied:
        return "kein" + A[row][column], AFTER_A
    if determiner == "the":
        return THE[row][column], AFTER_THE
    if determiner == "this":
        return "dies" + THIS[row][column], AFTER_THE
    if determiner == "a":
        return "ein" + A[row][column], AFTER_A
    if determiner in OWNERS:
        return OWNERS[determiner] + A[row][column], AFTER_A
    return COUNTS.get(determiner, ""), ALONE


def phrase_words(phrase: Phrase | None, name: str, language: int) -> list[Word]:
    """The words of a fixed phrase in English (0) or German (1), each with its piece of the phrase as its role."""
    pieces = phrase or ()
    return [Word(text, (f"{name}.{place}",)) for place, piece in enumerate(pieces) for text in piece[language].split()]


def in_clause(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """The same words with roles of their own, apart from those of another clause."""
    return (Word(word.text, tuple(f"{name}.{role}" for role in word.roles)) for word in words)


def shared_roles(source: Sequence[Word], target: Sequence[Word]) -> Links:
    """Links between the words that share a role."""
    places: dict[str, list[int]] = {}
    for here, word in enumerate(source):
        for role in word.roles:
            places.setdefault(role, []).append(here)
    return frozenset(
        (here, there) for there, word in enumerate(target) for role in word.roles for here in places.get(role, ())
    )
