"""The grammar of toy-en-de: an abstract clause, and its English and German sentences.

A word has roles (`verb`, `not`, `object.noun`), and words of the two languages that share a
role are aligned. "do", "does" and the "to" of "wants to" have no German counterpart, so they
have no role and no link. The comma before "weil" belongs to it, so both are aligned with
"because". "keinen" has two roles: "not" and "a".
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

Inflection = Gender | Literal["plural"]
THE: dict[Inflection, tuple[str, str]] = {
    "m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das"), "plural": ("die", "die"),
}  # fmt: skip
THIS: dict[Inflection, tuple[str, str]] = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "plural": ("e", "e")}
A: dict[Inflection, tuple[str, str]] = {"m": ("", "en"), "f": ("e", "e"), "n": ("", ""), "plural": ("e", "e")}
AFTER_THE: dict[Inflection, tuple[str, str]] = {
    "m": ("e", "en"),
    "f": ("e", "e"),
    "n": ("e", "e"),
    "plural": ("en", "en"),
}
AFTER_A: dict[Inflection, tuple[str, str]] = {
    "m": ("er", "en"),
    "f": ("e", "e"),
    "n": ("es", "es"),
    "plural": ("en", "en"),
}
ALONE: dict[Inflection, tuple[str, str]] = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "plural": ("e", "e")}


class GrammarWord(NamedTuple):
    """A word and its roles."""

    text: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NounPhrase:
    """A noun with its determiner and adjective: the small cats."""

    noun: Noun
    determiner: Determiner = "the"
    adjective: Adjective | None = None
    plural: bool = False
    first: ClassVar[bool] = False  # person

    @property
    def definite(self) -> bool:
        """Whether the determiner is definite."""
        return self.determiner in DEFINITE


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A clause: subject, verb, object, time and place; without a verb, subject and adjective."""

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
        phrase = self.object
        if not self.negated or not isinstance(phrase, NounPhrase) or phrase.definite:
            return False
        as_a_kind = self.verb is not None and self.verb.general and phrase.plural
        return not as_a_kind


def to_english(clause: Clause, question: bool = False) -> list[GrammarWord]:
    """Return the clause in English; a question starts with its auxiliary."""
    auxiliary, rest = build_english_verbs(clause, question)
    negation = [GrammarWord("not", ("not",))] if clause.negated else []
    subject = build_english_noun_phrase(clause.subject, "subject")
    first = [*auxiliary, *subject] if question else [*subject, *auxiliary]
    object_words = [] if clause.object is None else build_english_noun_phrase(clause.object, "object")
    time = build_phrase(clause.time, "time", 0)
    before, after = (time, []) if clause.time_first else ([], time)
    return [*before, *first, *negation, *rest, *object_words, *build_phrase(clause.place, "place", 0), *after]


def build_english_verbs(clause: Clause, question: bool) -> tuple[list[GrammarWord], list[GrammarWord]]:
    """Return the words before and after "not": (does, see), (can, often see), (is, small)."""
    frequency = [] if clause.frequency is None else [GrammarWord(clause.frequency[0], ("frequency",))]
    third = not clause.subject.plural and not clause.subject.first
    if clause.verb is None:
        assert clause.predicate is not None
        be = "are" if clause.subject.plural else "is" if third else "am"
        return [GrammarWord(be, ("verb",))], [*frequency, GrammarWord(clause.predicate.english, ("predicate",))]
    if clause.modal not in (None, WANT):
        modal = GrammarWord(clause.modal.english, ("modal",))
        return [modal], [*frequency, GrammarWord(clause.verb.english, ("verb",))]
    helped = question or clause.negated
    auxiliary = [GrammarWord("does" if third else "do")] if helped else []
    inflected = third and not helped
    if clause.modal is None:
        return auxiliary, [*frequency, GrammarWord(clause.verb.third if inflected else clause.verb.english, ("verb",))]
    want = GrammarWord(WANT.third if inflected else WANT.english, ("modal",))
    return auxiliary, [*frequency, want, GrammarWord("to"), GrammarWord(clause.verb.english, ("verb",))]


def build_english_noun_phrase(phrase: NounPhrase | Pronoun, case: Case) -> list[GrammarWord]:
    """Return a noun phrase or pronoun in English."""
    if isinstance(phrase, Pronoun):
        return [GrammarWord(phrase.subject if case == "subject" else phrase.object, (f"{case}.noun",))]
    noun = GrammarWord(phrase.noun.plural if phrase.plural else phrase.noun.english, (f"{case}.noun",))
    rest = [noun] if phrase.adjective is None else [GrammarWord(phrase.adjective.english, (f"{case}.adjective",)), noun]
    text: str = phrase.determiner
    if text == "a" and rest[0].text[0] in "aeiou":
        text = "an"
    elif text == "this" and phrase.plural:
        text = "these"
    return [GrammarWord(text, (f"{case}.determiner",)), *rest] if text else rest


def to_german(clause: Clause, order: Literal["second", "first", "last"] = "second") -> list[GrammarWord]:
    """Return the clause in German, with the finite verb second (statement), first (question) or last (after weil).

    The order between finite verb and clause end is: definite object, time, frequency,
    indefinite object, "nicht", place, predicate.
    """
    finite, end = build_german_verbs(clause)
    subject = build_german_noun_phrase(clause.subject, "subject", False)
    front = build_phrase(clause.time, "time", 1) if clause.time_first and order == "second" else []
    middle = build_german_middle(clause, with_time=not front)
    if order == "last":
        prefix = "" if clause.modal or not end else end.pop().text
        return [*subject, *middle, *end, GrammarWord(prefix + finite.text, finite.roles)]
    if order == "first" or front:
        return [*front, finite, *subject, *middle, *end]
    return [*subject, finite, *middle, *end]


def build_german_middle(clause: Clause, with_time: bool) -> list[GrammarWord]:
    """Return the words between the finite verb and the end of the clause."""
    phrase = clause.object
    object_words = [] if phrase is None else build_german_noun_phrase(phrase, "object", clause.denies_object)
    nicht = clause.negated and not clause.denies_object
    object_first = isinstance(phrase, Pronoun) or (phrase is not None and (phrase.definite or nicht))
    return [
        *(object_words if object_first else []),
        *(build_phrase(clause.time, "time", 1) if with_time else []),
        *([] if clause.frequency is None else [GrammarWord(clause.frequency[1], ("frequency",))]),
        *([] if object_first else object_words),
        *([GrammarWord("nicht", ("not",))] if nicht else []),
        *build_phrase(clause.place, "place", 1),
        *([] if clause.predicate is None else [GrammarWord(clause.predicate.german, ("predicate",))]),
    ]


def build_german_verbs(clause: Clause) -> tuple[GrammarWord, list[GrammarWord]]:
    """Return the finite verb and the words that end the clause: (sieht), (ruft, an), (kann, sehen)."""
    plural, first = clause.subject.plural, clause.subject.first
    verb = clause.verb
    if verb is None:
        return GrammarWord("sind" if plural else "bin" if first else "ist", ("verb",)), []
    if clause.modal is not None:
        denied = clause.negated or clause.frequency == NEVER
        forms = clause.modal.denied if denied else (clause.modal.singular, clause.modal.plural)
        return GrammarWord(forms[plural], ("modal",)), [GrammarWord(verb.prefix + verb.infinitive, ("verb",))]
    form = verb.infinitive if plural else verb.german_first if first else verb.german_third
    return GrammarWord(form, ("verb",)), [GrammarWord(verb.prefix, ("verb",))] if verb.prefix else []


def build_german_noun_phrase(phrase: NounPhrase | Pronoun, case: Case, denied: bool) -> list[GrammarWord]:
    """Return a noun phrase or pronoun in German; negated, "ein hund" becomes "kein hund"."""
    if isinstance(phrase, Pronoun):
        return [GrammarWord(phrase.german_subject if case == "subject" else phrase.german_object, (f"{case}.noun",))]
    row: Inflection = "plural" if phrase.plural else phrase.noun.gender
    column = 0 if case == "subject" else 1
    words = []
    text, endings = build_german_determiner(phrase.determiner, row, column, denied)
    if text:
        words.append(GrammarWord(text, (*(("not",) if denied else ()), f"{case}.determiner")))
    if phrase.adjective is not None:
        words.append(GrammarWord(phrase.adjective.stem + endings[row][column], (f"{case}.adjective",)))
    return [*words, GrammarWord(phrase.noun.german_plural if phrase.plural else phrase.noun.german, (f"{case}.noun",))]


def build_german_determiner(
    determiner: Determiner, row: Inflection, column: int, denied: bool
) -> tuple[str, dict[Inflection, tuple[str, str]]]:
    """Return a German determiner and the adjective endings after it."""
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


def build_phrase(phrase: Phrase | None, name: str, language: int) -> list[GrammarWord]:
    """Return the words of a fixed phrase in English (0) or German (1); their role is the piece of the phrase."""
    pieces = phrase or ()
    return [
        GrammarWord(text, (f"{name}.{index}",))
        for index, piece in enumerate(pieces)
        for text in piece[language].split()
    ]


def prefix_roles(name: str, words: Sequence[GrammarWord]) -> Iterator[GrammarWord]:
    """Yield the words with prefixed roles, distinct from those of another clause."""
    return (GrammarWord(word.text, tuple(f"{name}.{role}" for role in word.roles)) for word in words)


def link_shared_roles(source: Sequence[GrammarWord], target: Sequence[GrammarWord]) -> Links:
    """Return links between words that share a role."""
    role_indices: dict[str, list[int]] = {}
    for source_index, word in enumerate(source):
        for role in word.roles:
            role_indices.setdefault(role, []).append(source_index)
    return frozenset(
        (source_index, target_index)
        for target_index, word in enumerate(target)
        for role in word.roles
        for source_index in role_indices.get(role, ())
    )
