"""agreement: sentences whose verb agrees with a subject some words before, past nouns of either number.

    the chef near the old cooks who saw the maid was tired .

A language model predicts *was* rather than *were* only if it finds *chef*.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, ClassVar

from regard.bounds import Bounds, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_bool, sample_int, sample_item
from regard.data.example import Contrast, LinkedText
from regard.errors import RegardError

NOUNS = (
    ("chef", "chefs"), ("cook", "cooks"), ("maid", "maids"), ("child", "children"), ("woman", "women"),
    ("guard", "guards"), ("painter", "painters"), ("nurse", "nurses"), ("farmer", "farmers"), ("pilot", "pilots"),
    ("dancer", "dancers"), ("mouse", "mice"), ("judge", "judges"), ("wolf", "wolves"), ("sailor", "sailors"),
    ("king", "kings"),
)  # fmt: skip

VERBS = (
    ("was", "were", "tired"), ("is", "are", "hungry"), ("has", "have", "a plan"), ("sings", "sing", "at night"),
    ("waits", "wait", "outside"), ("laughs", "laugh", "again"), ("was", "were", "late"), ("is", "are", "ready"),
)  # fmt: skip
"""Singular and plural of a verb, and the words after it."""

OPENINGS = ("", "today", "as usual", "at the end")
PREPOSITIONS = ("near", "behind", "beside", "with", "without", "above")
PAST_VERBS = ("saw", "knew", "met", "heard", "found", "called")
ADJECTIVES = ("old", "young", "tall", "quiet", "famous", "rich")
ADVERBS = {1: ("here", "there", "downstairs"), 2: ("over there", "in front", "at home")}
"""What fills a distance of one or two words."""


@dataclass(frozen=True, kw_only=True)
class Agreement(SyntheticCorpus):
    """Sentences with a verb that agrees with a distant subject."""

    task: ClassVar[str] = "text"
    model: ClassVar[dict[str, Any]] = {"name": "gpt", "layers": 2, "width": 64, "dropout": 0.0}
    training: ClassVar[dict[str, Any]] = {"learning_rate": 3e-3}

    min_distance: Annotated[int, Bounds(0, 1000)] = 0  # minimum number of words between the subject and its verb
    max_distance: Annotated[int, Bounds(0, 1000)] = 8  # maximum number of words between the subject and its verb

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.max_distance < self.min_distance:
            raise RegardError(
                f"max_distance must be at least min_distance ({self.min_distance}), got {self.max_distance}"
            )

    def sample(self, random: Random) -> SampledExample:
        plural = sample_bool(random, 0.5)
        distance = sample_int(random, self.min_distance, self.max_distance)
        opening = sample_item(random, OPENINGS).split()
        subject = len(opening) + 1
        before = [*opening, "the", sample_item(random, NOUNS)[plural], *sample_between(random, distance)]
        singular_form, plural_form, after = sample_item(random, VERBS)
        right, wrong = (plural_form, singular_form) if plural else (singular_form, plural_form)
        verb = len(before)
        links = frozenset({(subject, verb - 1)} if distance else ())  # the word before the verb predicts it
        text = " ".join([*before, right, after, "."])
        return SampledExample(" ".join(before), LinkedText(text, links, (Contrast(verb, wrong),)))


def sample_between(random: Random, distance: int) -> list[str]:
    """Return that many words after a subject, none of which tells its number."""
    words: list[str] = []
    while remaining := distance - len(words):
        if remaining < 3:
            words += sample_item(random, ADVERBS[remaining]).split()
            break
        size = sample_item(random, [size for size in (3, 4, 5) if size == remaining or size + 3 <= remaining])
        words += sample_modifier(random, size)
    return words


def sample_modifier(random: Random, size: int) -> list[str]:
    """Return a modifier of three to five words: `near the cooks`, `who saw the old cooks`."""
    noun = sample_item(random, NOUNS)[sample_bool(random, 0.5)]
    relative = size == 5 or (size == 4 and sample_bool(random, 0.5))
    start = ["who", sample_item(random, PAST_VERBS)] if relative else [sample_item(random, PREPOSITIONS)]
    adjective = [sample_item(random, ADJECTIVES)] if size - len(start) == 3 else []
    return [*start, "the", *adjective, noun]
