"""The words of the toy language: how they are written in English and German, and what goes with what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f", "n"]
Kind = Literal["person", "animal", "thing", "text", "opening", "food", "drink"]


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; one without a plural is a mass: milk, no milks."""

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

    A separable one keeps its prefix apart: er ruft an. `general` verbs speak of a kind
    as a whole, so that "they do not like dogs" denies the liking ("mögen hunde nicht")
    where "they do not see dogs" denies the dogs ("sehen keine hunde").
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
    """A verb that goes before another: can see, kann sehen. Its negative may be another word in German."""

    english: str
    third: str
    singular: str
    plural: str
    denied: tuple[str, str]


@dataclass(frozen=True)
class Adjective:
    """An adjective, its German stem, and what it can be said of."""

    english: str
    german: str
    kinds: frozenset[Kind]

    @property
    def stem(self) -> str:
        """What endings are put to: ein müder hund."""
        return self.german.removesuffix("e")


Phrase = tuple[tuple[str, str], ...]
"""A fixed phrase as pieces that answer each other, in the order both languages have."""


def kinds(names: str) -> frozenset[Kind]:
    """Kinds from their initials: p person, a animal, t thing, x text, o opening, f food, d drink."""
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
    Verb("like", "likes", "mag", "mag", "mögen", kinds("pa"), kinds("patxfd"), general=True),
    Verb("love", "loves", "liebe", "liebt", "lieben", kinds("pa"), kinds("pa"), general=True),
    Verb("fear", "fears", "fürchte", "fürchtet", "fürchten", kinds("pa"), kinds("pa"), general=True),
    Verb("see", "sees", "sehe", "sieht", "sehen", kinds("pa"), kinds("patxof")),
    Verb("hear", "hears", "höre", "hört", "hören", kinds("pa"), kinds("pa")),
    Verb("find", "finds", "finde", "findet", "finden", kinds("pa"), kinds("patxf")),
    Verb("carry", "carries", "trage", "trägt", "tragen", kinds("p"), kinds("atxf")),
    Verb("buy", "buys", "kaufe", "kauft", "kaufen", kinds("p"), kinds("atxfd")),
    Verb("draw", "draws", "zeichne", "zeichnet", "zeichnen", kinds("p"), kinds("pato")),
    Verb("read", "reads", "lese", "liest", "lesen", kinds("p"), kinds("x")),
    Verb("forget", "forgets", "vergesse", "vergisst", "vergessen", kinds("p"), kinds("ptxf")),
    Verb("visit", "visits", "besuche", "besucht", "besuchen", kinds("p"), kinds("p")),
    Verb("chase", "chases", "jage", "jagt", "jagen", kinds("pa"), kinds("a")),
    Verb("eat", "eats", "esse", "isst", "essen", kinds("p"), kinds("f")),
    Verb("eat", "eats", "fresse", "frisst", "fressen", kinds("a"), kinds("f")),
    Verb("drink", "drinks", "trinke", "trinkt", "trinken", kinds("pa"), kinds("d")),
    Verb("call", "calls", "rufe", "ruft", "rufen", kinds("p"), kinds("p"), prefix="an"),
    Verb("invite", "invites", "lade", "lädt", "laden", kinds("p"), kinds("p"), prefix="ein"),
    Verb("open", "opens", "mache", "macht", "machen", kinds("p"), kinds("o"), prefix="auf"),
    Verb("close", "closes", "mache", "macht", "machen", kinds("p"), kinds("o"), prefix="zu"),
    Verb("sleep", "sleeps", "schlafe", "schläft", "schlafen", kinds("pa")),
    Verb("run", "runs", "laufe", "läuft", "laufen", kinds("pa")),
    Verb("play", "plays", "spiele", "spielt", "spielen", kinds("pa")),
    Verb("wait", "waits", "warte", "wartet", "warten", kinds("pa")),
    Verb("sing", "sings", "singe", "singt", "singen", kinds("p")),
    Verb("work", "works", "arbeite", "arbeitet", "arbeiten", kinds("p")),
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
    Adjective("small", "klein", kinds("patxof")),
    Adjective("big", "groß", kinds("patxof")),
    Adjective("old", "alt", kinds("patxo")),
    Adjective("young", "jung", kinds("pa")),
    Adjective("new", "neu", kinds("txo")),
    Adjective("black", "schwarz", kinds("ato")),
    Adjective("red", "rot", kinds("tof")),
    Adjective("good", "gut", kinds("patxfd")),
    Adjective("tired", "müde", kinds("pa")),
    Adjective("hungry", "hungrig", kinds("pa")),
    Adjective("cold", "kalt", kinds("d")),
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
