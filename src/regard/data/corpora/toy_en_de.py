"""English to German sentences from a small grammar, with word alignments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import ClassVar, Literal

from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_bool, sample_item
from regard.data.corpora.toy_grammar import (
    Clause,
    Determiner,
    GrammarWord,
    NounPhrase,
    link_shared_roles,
    prefix_roles,
    to_english,
    to_german,
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
COUNT_DETERMINERS: tuple[Determiner, ...] = ("two", "three", "many", "some")


@dataclass(frozen=True, kw_only=True)
class ToyEnDe(SyntheticCorpus):
    """Lower-case sentences: `today the cat does not see a dog` -> `heute sieht die katze keinen hund`.

    Billions of sentences with about 180 English and 270 German words, with articles, endings,
    plurals, negation, adverbs, modal and separable verbs, questions and subordinate clauses. The
    word order differs: the German verb is second in a statement and last after "weil", and
    "nicht" follows a definite object. An English sentence has exactly one translation. "cats do
    not like dogs", alone or in a longer sentence, is never in the training split.
    """

    held_out: ClassVar[frozenset[str]] = frozenset({"cats do not like dogs"})

    clauses: Literal[1, 2] = 2  # maximum number of clauses per sentence
    questions: bool = True  # include questions

    def sample(self, random: Random) -> SampledExample:
        source, target = self._sample_sentence(random)
        text = " ".join(word.text for word in source)
        translation = " ".join(word.text for word in target)
        return SampledExample(text, Example(text, translation, link_shared_roles(source, target)))

    def _sample_sentence(self, random: Random) -> tuple[list[GrammarWord], list[GrammarWord]]:
        """Draw a sentence in both languages."""
        if self.questions and sample_bool(random, 0.1):
            return build_question(sample_clause(random, question=True))
        main = sample_clause(random)
        if self.clauses == 1 or sample_bool(random, 0.75):
            return to_english(main), to_german(main)
        other = sample_clause(random)
        if sample_bool(random, 0.3):
            return build_coordinated(main, sample_item(random, COORDINATORS), other)
        return build_subordinated(main, sample_item(random, SUBORDINATORS), other, first=sample_bool(random, 0.3))


def build_question(clause: Clause) -> tuple[list[GrammarWord], list[GrammarWord]]:
    """Build a question: do cats like dogs? mögen katzen hunde?"""
    mark = GrammarWord("?", ("mark",))
    return [*to_english(clause, question=True), mark], [*to_german(clause, "first"), mark]


def build_coordinated(
    main: Clause, conjunction: tuple[str, str], other: Clause
) -> tuple[list[GrammarWord], list[GrammarWord]]:
    """Build two main clauses: cats sleep and dogs run, katzen schlafen und hunde laufen."""
    and_, und = (GrammarWord(text, ("conjunction",)) for text in conjunction)
    comma = [GrammarWord(",", ("conjunction",))] if und.text == "aber" else []
    return (
        [*prefix_roles("main", to_english(main)), and_, *prefix_roles("other", to_english(other))],
        [*prefix_roles("main", to_german(main)), *comma, und, *prefix_roles("other", to_german(other))],
    )


def build_subordinated(
    main: Clause, conjunction: tuple[str, str], other: Clause, first: bool
) -> tuple[list[GrammarWord], list[GrammarWord]]:
    """Build a main and a subordinate clause, in either order: cats sleep because dogs run."""
    because, weil = (GrammarWord(text, ("conjunction",)) for text in conjunction)
    reason = [because, *prefix_roles("other", to_english(remove_front(other)))]
    grund = [weil, *prefix_roles("other", to_german(remove_front(other), "last"))]
    if first:
        comma, main = GrammarWord(",", ("comma",)), remove_front(main)
        return (
            [*reason, comma, *prefix_roles("main", to_english(main))],
            [*grund, comma, *prefix_roles("main", to_german(main, "first"))],
        )
    return (
        [*prefix_roles("main", to_english(main)), *reason],
        [*prefix_roles("main", to_german(main)), GrammarWord(",", ("conjunction",)), *grund],
    )


def remove_front(clause: Clause) -> Clause:
    """Return the clause with nothing before its subject."""
    return replace(clause, time_first=False)


def sample_clause(random: Random, question: bool = False) -> Clause:
    """Draw a clause that is grammatical and mostly makes sense."""
    negated = sample_bool(random, 0.3)
    frequency = sample_item(random, FREQUENCIES) if not negated and sample_bool(random, 0.15) else None
    time = sample_item(random, TIMES) if frequency is None and sample_bool(random, 0.25) else None
    time_first = time is not None and not question and sample_bool(random, 0.6)
    if sample_bool(random, 0.12):
        subject, predicate = sample_being(random)
        return Clause(
            subject=subject, predicate=predicate, frequency=frequency, time=time, time_first=time_first, negated=negated
        )
    verb = sample_item(random, VERBS)
    modal = sample_item(random, MODALS) if not verb.general and sample_bool(random, 0.2) else None
    subject = sample_noun_phrase(random, verb.subjects, allow_counts=True)
    denied = negated or frequency == NEVER  # "not two dogs" may mean one dog, or none
    return Clause(
        subject=subject,
        verb=verb,
        object=sample_object(random, verb.objects, subject, allow_counts=not denied),
        modal=None if question and modal == MUST else modal,
        frequency=frequency,
        time=time,
        time_first=time_first,
        place=sample_item(random, PLACES) if not verb.general and sample_bool(random, 0.2) else None,
        negated=negated,
    )


def sample_being(random: Random) -> tuple[NounPhrase | Pronoun, Adjective]:
    """Draw a subject and an adjective that describes it."""
    predicate = sample_item(random, ADJECTIVES)
    subject = sample_noun_phrase(random, predicate.kinds, allow_counts=True)
    return (subject if isinstance(subject, Pronoun) else replace(subject, adjective=None)), predicate


def sample_object(
    random: Random, kinds: frozenset[Kind], subject: NounPhrase | Pronoun, allow_counts: bool
) -> NounPhrase | Pronoun | None:
    """Draw an object other than the subject, or None if the verb takes none."""
    if not kinds:
        return None
    while True:
        phrase = sample_noun_phrase(random, kinds, allow_counts)
        if isinstance(phrase, Pronoun):
            if not (phrase.first and subject.first):  # "i see me" is not English
                return phrase
        elif isinstance(subject, Pronoun) or phrase.noun != subject.noun:
            return phrase


def sample_noun_phrase(random: Random, kinds: frozenset[Kind], allow_counts: bool) -> NounPhrase | Pronoun:
    """Draw a noun phrase of one of these kinds, or a pronoun."""
    if "person" in kinds and sample_bool(random, 0.2):
        return sample_item(random, PRONOUNS)
    noun = sample_item(random, get_nouns(kinds))
    plural = bool(noun.plural) and sample_bool(random, 0.45)
    choice = PLURAL if plural else SINGULAR if noun.plural else MASS
    determiner = sample_item(
        random, COUNT_DETERMINERS if plural and allow_counts and sample_bool(random, 0.2) else choice
    )
    adjective = sample_item(random, get_adjectives(noun.kind)) if sample_bool(random, 0.3) else None
    return NounPhrase(noun=noun, determiner=determiner, adjective=adjective, plural=plural)


@cache
def get_nouns(kinds: frozenset[Kind]) -> list[Noun]:
    """Return the nouns of some kinds."""
    return [noun for noun in NOUNS if noun.kind in kinds]


@cache
def get_adjectives(kind: Kind) -> list[Adjective]:
    """Return the adjectives that can describe a kind."""
    return [adjective for adjective in ADJECTIVES if kind in adjective.kinds]
