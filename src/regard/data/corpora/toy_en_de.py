"""English to German in a small grammar of our own, with its word alignment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import ClassVar, Literal

from regard.data.corpora.drawing import Corpus, Drawn, perhaps, pick
from regard.data.corpora.toy_grammar import (
    Clause,
    Determiner,
    NounPhrase,
    Word,
    english,
    german,
    in_clause,
    shared_roles,
)
from regard.data.corpora.toy_words import (
    ADJECTIVES,
    COORDINATORS,
    FREQUENCIES,
    MODALS,
    MUST,
    NEVER,
    NOUNS,
    PLACES,
    PRONOUNS,
    SUBORDINATORS,
    TIMES,
    VERBS,
    Adjective,
    Kind,
    Noun,
    Pronoun,
)
from regard.data.example import Example

SINGULAR: tuple[Determiner, ...] = ("the", "the", "the", "a", "a", "this", "my", "his", "our")
PLURAL: tuple[Determiner, ...] = ("the", "the", "", "", "", "this", "my", "his", "our")
MASS: tuple[Determiner, ...] = ("the", "", "", "this", "my", "his", "our")
OF_SEVERAL: tuple[Determiner, ...] = ("two", "three", "many", "some")


@dataclass(frozen=True, kw_only=True)
class ToyEnDe(Corpus):
    """Lower-case sentences: `today the cat does not see a dog` -> `heute sieht die katze keinen hund`.

    Billions of sentences of some 180 English and 270 German words, with articles, endings,
    plurals, negation, adverbs, modal and separable verbs, questions and subordinate clauses. What
    differs in order: the verb is second in a German statement, last after "weil", and
    "nicht" goes behind a known object. An English sentence has one translation. "cats do
    not like dogs", alone or in a longer sentence, is never in train.
    """

    held_out: ClassVar[frozenset[str]] = frozenset({"cats do not like dogs"})

    clauses: Literal[1, 2] = 2  # at most, in a sentence
    questions: bool = True

    def draw(self, random: Random) -> Drawn:
        source, target = self._sentence(random)
        text = " ".join(word.text for word in source)
        translation = " ".join(word.text for word in target)
        return Drawn(text, Example(text, translation, shared_roles(source, target)))

    def _sentence(self, random: Random) -> tuple[list[Word], list[Word]]:
        """The words of both languages."""
        if self.questions and perhaps(random, 0.1):
            return question(draw_clause(random, question=True))
        main = draw_clause(random)
        if self.clauses == 1 or perhaps(random, 0.75):
            return english(main), german(main)
        other = draw_clause(random)
        if perhaps(random, 0.3):
            return coordinated(main, pick(random, COORDINATORS), other)
        return subordinated(main, pick(random, SUBORDINATORS), other, first=perhaps(random, 0.3))


def question(clause: Clause) -> tuple[list[Word], list[Word]]:
    """Do cats like dogs? Mögen katzen hunde?"""
    mark = Word("?", ("mark",))
    return [*english(clause, question=True), mark], [*german(clause, "first"), mark]


def coordinated(main: Clause, conjunction: tuple[str, str], other: Clause) -> tuple[list[Word], list[Word]]:
    """Cats sleep and dogs run: katzen schlafen und hunde laufen."""
    and_, und = (Word(text, ("conjunction",)) for text in conjunction)
    comma = [Word(",", ("conjunction",))] if und.text == "aber" else []
    return (
        [*in_clause("main", english(main)), and_, *in_clause("other", english(other))],
        [*in_clause("main", german(main)), *comma, und, *in_clause("other", german(other))],
    )


def subordinated(
    main: Clause, conjunction: tuple[str, str], other: Clause, first: bool
) -> tuple[list[Word], list[Word]]:
    """Cats sleep because dogs run: katzen schlafen, weil hunde laufen. Or with the reason first."""
    because, weil = (Word(text, ("conjunction",)) for text in conjunction)
    reason = [because, *in_clause("other", english(without_front(other)))]
    grund = [weil, *in_clause("other", german(without_front(other), "last"))]
    if first:
        comma, main = Word(",", ("comma",)), without_front(main)
        return (
            [*reason, comma, *in_clause("main", english(main))],
            [*grund, comma, *in_clause("main", german(main, "first"))],
        )
    return (
        [*in_clause("main", english(main)), *reason],
        [*in_clause("main", german(main)), Word(",", ("conjunction",)), *grund],
    )


def without_front(clause: Clause) -> Clause:
    """The same clause with nothing before its subject."""
    return replace(clause, time_first=False)


def draw_clause(random: Random, question: bool = False) -> Clause:
    """A clause that is grammatical and, by and large, makes sense."""
    negated = perhaps(random, 0.3)
    frequency = pick(random, FREQUENCIES) if not negated and perhaps(random, 0.15) else None
    time = pick(random, TIMES) if frequency is None and perhaps(random, 0.25) else None
    time_first = time is not None and not question and perhaps(random, 0.6)
    if perhaps(random, 0.12):
        subject, predicate = draw_being(random)
        return Clause(
            subject=subject, predicate=predicate, frequency=frequency, time=time, time_first=time_first, negated=negated
        )
    verb = pick(random, VERBS)
    modal = pick(random, MODALS) if not verb.general and perhaps(random, 0.2) else None
    subject = draw_noun_phrase(random, verb.subjects, several=True)
    denied = negated or frequency == NEVER  # "not two dogs" may mean one dog, or none
    return Clause(
        subject=subject,
        verb=verb,
        object=draw_object(random, verb.objects, subject, several=not denied),
        modal=None if question and modal == MUST else modal,
        frequency=frequency,
        time=time,
        time_first=time_first,
        place=pick(random, PLACES) if not verb.general and perhaps(random, 0.2) else None,
        negated=negated,
    )


def draw_being(random: Random) -> tuple[NounPhrase | Pronoun, Adjective]:
    """Somebody or something, and what can be said of it."""
    predicate = pick(random, ADJECTIVES)
    subject = draw_noun_phrase(random, predicate.kinds, several=True)
    return (subject if isinstance(subject, Pronoun) else replace(subject, adjective=None)), predicate


def draw_object(
    random: Random, kinds: frozenset[Kind], subject: NounPhrase | Pronoun, several: bool
) -> NounPhrase | Pronoun | None:
    """Somebody or something else than the subject, where the verb takes an object."""
    if not kinds:
        return None
    while True:
        found = draw_noun_phrase(random, kinds, several)
        if isinstance(found, Pronoun):
            if not (found.first and subject.first):  # "i see me" is no English
                return found
        elif isinstance(subject, Pronoun) or found.noun != subject.noun:
            return found


def draw_noun_phrase(random: Random, kinds: frozenset[Kind], several: bool) -> NounPhrase | Pronoun:
    """A noun of one of these kinds with what stands before it, or a pronoun."""
    if "person" in kinds and perhaps(random, 0.2):
        return pick(random, PRONOUNS)
    noun = pick(random, nouns_of(kinds))
    plural = bool(noun.plural) and perhaps(random, 0.45)
    choice = PLURAL if plural else SINGULAR if noun.plural else MASS
    determiner = pick(random, OF_SEVERAL if plural and several and perhaps(random, 0.2) else choice)
    adjective = pick(random, adjectives_of(noun.kind)) if perhaps(random, 0.3) else None
    return NounPhrase(noun=noun, determiner=determiner, adjective=adjective, plural=plural)


@cache
def nouns_of(kinds: frozenset[Kind]) -> list[Noun]:
    """The nouns of some kinds."""
    return [noun for noun in NOUNS if noun.kind in kinds]


@cache
def adjectives_of(kind: Kind) -> list[Adjective]:
    """The adjectives that can be said of a kind."""
    return [adjective for adjective in ADJECTIVES if kind in adjective.kinds]
