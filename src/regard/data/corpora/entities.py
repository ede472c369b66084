"""entities: sentences with names of persons, places, organizations and products, tagged as BIO.

Most names can be of any type (*Paris said*, *in Paris*, *bought a new Paris*), so only the context decides; the
links say which of its words do.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from regard.bounds import Bounds, ClosedShare, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_bool, sample_item
from regard.data.corpora.templates import fill_template
from regard.data.tagged import TaggedSentence

AMBIGUOUS = (
    "Paris", "Jordan", "Chelsea", "Florence", "Austin", "Sydney", "Lincoln", "Victoria", "Madison", "Phoenix",
    "Mercedes", "Orion", "Aurora", "Sierra", "Bristol", "Dakota", "Savannah", "Morgan", "Cleveland", "Kent",
)  # fmt: skip

NAMES = {
    "PER": ("Anna", "Thomas", "Maria", "Yusuf", "Ingrid", "Pavel"),
    "LOC": ("Norway", "Lisbon", "Peru", "Ghent", "Kyoto", "Malta"),
    "ORG": ("Brightwell", "Novacorp", "Unitrust", "Fairbank", "Medisys", "Agrilink"),
    "PROD": ("Turbofix", "Aquapen", "Solarix", "Quickmop", "Ultralite", "Snapcam"),
}

SECOND = {
    "PER": ("Miller", "Novak", "Lincoln", "Kent", "Morgan", "Jordan"),
    "LOC": ("Bay", "Valley", "Heights", "Falls"),
    "ORG": ("Group", "Bank", "Holding", "Press"),
    "PROD": ("Mini", "Deluxe", "Two", "Max"),
}

TEMPLATES = (
    "@PER said*1 that the rain would stop",
    "yesterday @PER married*1 a teacher",
    "her*1 brother*1 @PER stayed at home",
    "a doctor named*1 @PER came later",
    "we spent a week in*1 @LOC",
    "the train to*1 @LOC was late",
    "the streets*1 of @LOC were empty",
    "@LOC lies*1 by the sea",
    "@ORG hired*1 forty engineers",
    "the shares*1 of @ORG fell",
    "she works*1 for*1 @ORG now",
    "@ORG announced*1 a loss",
    "he bought*1 a new*1 @PROD",
    "my*1 old*1 @PROD broke",
    "they repaired*1 the @PROD again",
    "@PROD owners*1 want a better battery",
    "@PER smiled*1 and flew to*2 @LOC",
    "@ORG opened*1 an office in*2 @LOC",
    "@PER sold*1 an old*2 @PROD",
    "@ORG sued*1 a man named*2 @PER",
)
"""Sentences with names; a word marked with n decides the type of the n-th name."""


@dataclass(frozen=True, kw_only=True)
class Entities(SyntheticCorpus):
    """Sentences with tagged names: `we met in Paris .` -> `O O O B-LOC O`."""

    task: ClassVar[str] = "tag"

    ambiguous: ClosedShare = 0.8  # share of names whose type only the context tells
    clauses: Annotated[int, Bounds(1, 100)] = 2  # maximum number of clauses per sentence

    def __post_init__(self) -> None:
        check_bounds(self)

    def sample(self, random: Random) -> SampledExample:
        words: list[str] = []
        tags: list[str] = []
        links: set[tuple[int, int]] = set()
        for clause in range(1 + int(random.random() * self.clauses)):
            if clause:
                words.append(sample_item(random, ("and", "while", "but")))
                tags.append("O")
            self.add_clause(random, words, tags, links)
        key = " ".join(words)
        sentence = TaggedSentence((*words, "."), (*tags, "O"), frozenset(links))
        return SampledExample(key, sentence)

    def add_clause(self, random: Random, words: list[str], tags: list[str], links: set[tuple[int, int]]) -> None:
        """Append the words of a clause, their tags and the links of its names."""
        names: list[list[int]] = []  # the words of each name to link
        cues: list[tuple[int, str]] = []
        for text, marks in fill_template(random, sample_item(random, TEMPLATES), {}):
            if text.startswith("@"):
                ambiguous, name = self.sample_name(random, text[1:])
                names.append([len(words) + index for index in range(len(name))] if ambiguous else [])
                tags += [f"{'I' if index else 'B'}-{text[1:]}" for index in range(len(name))]
                words += name
                continue
            if marks is not None:
                cues.append((len(words), marks))
            words.append(text)
            tags.append("O")
        links |= {(cue, word) for cue, marks in cues for mark in marks for word in names[int(mark) - 1]}

    def sample_name(self, random: Random, kind: str) -> tuple[bool, list[str]]:
        """Return whether only the context tells the type of a name, and its one or two words."""
        ambiguous = sample_bool(random, self.ambiguous)
        name = [sample_item(random, AMBIGUOUS if ambiguous else NAMES[kind])]
        if sample_bool(random, 0.2):
            return False, [*name, sample_item(random, SECOND[kind])]
        return ambiguous, name
