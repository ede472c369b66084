"""The vocabulary of toy-en-de in English and German, and which words go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f", "n"]
Kind = Literal["person", "animal", "thing", "text", "opening", "food", "drink"]


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; a mass noun such as milk has no plural."""

    english: str
    plural: str
    german: str
    gender: Gender
    german_plural: str
    kind: Kind


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun: i and me, ich and mich."""

    subject: str
    object: str
    german_subject: str
    german_object: str
    first: bool  # person, else the third
    plural: bool


@dataclass(frozen=True)
class Verb:
    """A verb: see, sees; ich sehe, er sieht, sehen.

    The prefix of a separable verb is kept separately: er ruft an. `general` verbs refer to a
    kind as a whole, so "they do not like dogs" negates the verb ("mögen hunde nicht"), while
    "they do not see dogs" negates the object ("sehen keine hunde").
    """

    english: str
    third: str
    german_first: str
    german_third: str
    infinitive: str
    subjects: frozenset[Kind]
    objects: frozenset[Kind] = frozenset()
    prefix: str = ""
    general: bool = False


@dataclass(frozen=True)
class Modal:
    """A modal verb: can see, kann sehen. Its German negation may use another word."""

    english: str
    third: str
    singular: str
    plural: str
    denied: tuple[str, str]


@dataclass(frozen=True)
class Adjective:
    """An adjective and the kinds of nouns it can describe."""

    english: str
    german: str
    kinds: frozenset[Kind]

    @property
    def stem(self) -> str:
        """German stem, to which endings are added: ein müder hund."""
        return self.german.removesuffix("e")


Phrase = tuple[tuple[str, str], ...]
"""A fixed phrase as aligned pieces (English, German), in the same order in both languages."""


def parse_kinds(names: str) -> frozenset[Kind]:
    """Parse kinds from their initials: p person, a animal, t thing, x text, o opening, f food, d drink."""
    initials: dict[str, Kind] = {
        "p": "person", "a": "animal", "t": "thing", "x": "text", "o": "opening", "f": "food", "d": "drink",
    }  # fmt: skip
    return frozenset(initials[name] for name in names)


NOUNS = (
    Noun("cat", "cats", "katze", "f", "katzen", "animal"),
    Noun("dog", "dogs", "hund", "m", "hunde", "animal"),
    Noun("bird", "birds", "vogel", "m", "vögel", "animal"),
    Noun("horse", "horses", "pferd", "n", "pferde", "animal"),
    Noun("cow", "cows", "kuh", "f", "kühe", "animal"),
    Noun("mouse", "mice", "maus", "f", "mäuse", "animal"),
    Noun("fox", "foxes", "fuchs", "m", "füchse", "animal"),
    Noun("pig", "pigs", "schwein", "n", "schweine", "animal"),
    Noun("man", "men", "mann", "m", "männer", "person"),
    Noun("woman", "women", "frau", "f", "frauen", "person"),
    Noun("child", "children", "kind", "n", "kinder", "person"),
    Noun("girl", "girls", "mädchen", "n", "mädchen", "person"),
    Noun("teacher", "teachers", "lehrer", "m", "lehrer", "person"),
    Noun("brother", "brothers", "bruder", "m", "brüder", "person"),
    Noun("sister", "sisters", "schwester", "f", "schwestern", "person"),
    Noun("aunt", "aunts", "tante", "f", "tanten", "person"),
    Noun("ball", "balls", "ball", "m", "bälle", "thing"),
    Noun("house", "houses", "haus", "n", "häuser", "thing"),
    Noun("flower", "flowers", "blume", "f", "blumen", "thing"),
    Noun("chair", "chairs", "stuhl", "m", "stühle", "thing"),
    Noun("book", "books", "buch", "n", "bücher", "text"),
    Noun("letter", "letters", "brief", "m", "briefe", "text"),
    Noun("door", "doors", "tür", "f", "türen", "opening"),
    Noun("window", "windows", "fenster", "n", "fenster", "opening"),
    Noun("apple", "apples", "apfel", "m", "äpfel", "food"),
    Noun("egg", "eggs", "ei", "n", "eier", "food"),
    Noun("pear", "pears", "birne", "f", "birnen", "food"),
    Noun("milk", "", "milch", "f", "", "drink"),
    Noun("water", "", "wasser", "n", "", "drink"),
    Noun("tea", "", "tee", "m", "", "drink"),
)

PRONOUNS = (
    Pronoun("i", "me", "ich", "mich", first=True, plural=False),
    Pronoun("he", "him", "er", "ihn", first=False, plural=False),
    Pronoun("she", "her", "sie", "sie", first=False, plural=False),
    Pronoun("we", "us", "wir", "uns", first=True, plural=True),
    Pronoun("they", "them", "sie", "sie", first=False, plural=True),
)

VERBS = (
    Verb("like", "likes", "mag", "mag", "mögen", parse_kinds("pa"), parse_kinds("patxfd"), general=True),
    Verb("love", "loves", "liebe", "liebt", "lieben", parse_kinds("pa"), parse_kinds("pa"), general=True),
    Verb("fear", "fears", "fürchte", "fürchtet", "fürchten", parse_kinds("pa"), parse_kinds("pa"), general=True),
    Verb("see", "sees", "sehe", "sieht", "sehen", parse_kinds("pa"), parse_kinds("patxof")),
    Verb("hear", "hears", "höre", "hört", "hören", parse_kinds("pa"), parse_kinds("pa")),
    Verb("find", "finds", "finde", "findet", "finden", parse_kinds("pa"), parse_kinds("patxf")),
    Verb("carry", "carries", "trage", "trägt", "tragen", parse_kinds("p"), parse_kinds("atxf")),
    Verb("buy", "buys", "kaufe", "kauft", "kaufen", parse_kinds("p"), parse_kinds("atxfd")),
    Verb("draw", "draws", "zeichne", "zeichnet", "zeichnen", parse_kinds("p"), parse_kinds("pato")),
    Verb("read", "reads", "lese", "liest", "lesen", parse_kinds("p"), parse_kinds("x")),
    Verb("forget", "forgets", "vergesse", "vergisst", "vergessen", parse_kinds("p"), parse_kinds("ptxf")),
    Verb("visit", "visits", "besuche", "besucht", "besuchen", parse_kinds("p"), parse_kinds("p")),
    Verb("chase", "chases", "jage", "jagt", "jagen", parse_kinds("pa"), parse_kinds("a")),
    Verb("eat", "eats", "esse", "isst", "essen", parse_kinds("p"), parse_kinds("f")),
    Verb("eat", "eats", "fresse", "frisst", "fressen", parse_kinds("a"), parse_kinds("f")),
    Verb("drink", "drinks", "trinke", "trinkt", "trinken", parse_kinds("pa"), parse_kinds("d")),
    Verb("call", "calls", "rufe", "ruft", "rufen", parse_kinds("p"), parse_kinds("p"), prefix="an"),
    Verb("invite", "invites", "lade", "lädt", "laden", parse_kinds("p"), parse_kinds("p"), prefix="ein"),
    Verb("open", "opens", "mache", "macht", "machen", parse_kinds("p"), parse_kinds("o"), prefix="auf"),
    Verb("close", "closes", "mache", "macht", "machen", parse_kinds("p"), parse_kinds("o"), prefix="zu"),
    Verb("sleep", "sleeps", "schlafe", "schläft", "schlafen", parse_kinds("pa")),
    Verb("run", "runs", "laufe", "läuft", "laufen", parse_kinds("pa")),
    Verb("play", "plays", "spiele", "spielt", "spielen", parse_kinds("pa")),
    Verb("wait", "waits", "warte", "wartet", "warten", parse_kinds("pa")),
    Verb("sing", "sings", "singe", "singt", "singen", parse_kinds("p")),
    Verb("work", "works", "arbeite", "arbeitet", "arbeiten", parse_kinds("p")),
)

WANT = Modal("want", "wants", "will", "wollen", denied=("will", "wollen"))
MUST = Modal("must", "must", "muss", "müssen", denied=("darf", "dürfen"))
MODALS = (
    Modal("can", "can", "kann", "können", denied=("kann", "können")),
    Modal("should", "should", "sollte", "sollten", denied=("sollte", "sollten")),
    MUST,
    WANT,
)

ADJECTIVES = (
    Adjective("small", "klein", parse_kinds("patxof")),
    Adjective("big", "groß", parse_kinds("patxof")),
    Adjective("old", "alt", parse_kinds("patxo")),
    Adjective("young", "jung", parse_kinds("pa")),
    Adjective("new", "neu", parse_kinds("txo")),
    Adjective("black", "schwarz", parse_kinds("ato")),
    Adjective("red", "rot", parse_kinds("tof")),
    Adjective("good", "gut", parse_kinds("patxfd")),
    Adjective("tired", "müde", parse_kinds("pa")),
    Adjective("hungry", "hungrig", parse_kinds("pa")),
    Adjective("cold", "kalt", parse_kinds("d")),
)

TIMES: tuple[Phrase, ...] = (
    (("today", "heute"),),
    (("now", "jetzt"),),
    (("at night", "nachts"),),
    (("this", "diese"), ("week", "woche")),
    (("in", "im"), ("winter", "winter")),
    (("on", "am"), ("monday", "montag")),
    (("in the", "am"), ("evening", "abend")),
)

PLACES: tuple[Phrase, ...] = (
    (("at", "zu"), ("home", "hause")),
    (("in the", "im"), ("garden", "garten")),
    (("in the", "im"), ("forest", "wald")),
    (("in", "in"), ("the", "der"), ("city", "stadt")),
)

NEVER = ("never", "nie")
FREQUENCIES = (("often", "oft"), ("always", "immer"), ("sometimes", "manchmal"), NEVER)

SUBORDINATORS = (("because", "weil"), ("although", "obwohl"), ("if", "wenn"))
COORDINATORS = (("and", "und"), ("but", "aber"))
