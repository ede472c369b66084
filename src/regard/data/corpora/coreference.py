"""coreference: sentences in which *it* is one noun or the other, which only the adjective after it tells.

    the animal did not cross the street because it was a tired animal .
    the animal did not cross the street because it was a wide street .

The sentence ends with the noun that *it* stands for. A language model that has read the adjective must find
this noun among those before to predict it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from regard.data.corpora.base import SampledExample, SyntheticCorpus, check_names, sample_bool, sample_item
from regard.data.example import Contrast, LinkedText

ANIMALS = (
    "animal", "dog", "cat", "horse", "cow", "fox", "goat", "sheep", "bear", "mouse", "duck", "turtle", "donkey",
    "rabbit", "camel", "pig",
)  # fmt: skip
PLACES = (
    "street", "river", "road", "bridge", "field", "path", "valley", "hill", "track", "canal", "ford", "park",
    "square", "swamp", "tunnel", "yard",
)  # fmt: skip
STATES = ("tired", "hungry", "scared", "lazy", "sleepy", "weak", "sick", "nervous", "shy", "slow", "young", "thirsty")
SHAPES = ("wide", "frozen", "busy", "muddy", "deep", "long", "steep", "narrow", "dark", "wet", "crowded", "rough")
VERBS = (("cross", "crossed"), ("enter", "entered"), ("pass", "passed"), ("leave", "left"), ("visit", "visited"))

ORDERS = ("active", "passive")


@dataclass(frozen=True, kw_only=True)
class Coreference(SyntheticCorpus):
    """Sentences with a pronoun, which end with the noun that it refers to."""

    task: ClassVar[str] = "text"
    model: ClassVar[dict[str, Any]] = {"name": "gpt", "layers": 2, "width": 64, "dropout": 0.0}
    training: ClassVar[dict[str, Any]] = {"learning_rate": 3e-3}

    orders: tuple[str, ...] = ORDERS  # order of the nouns: active (the animal first) or passive (the place first)

    def __post_init__(self) -> None:
        check_names("orders", self.orders, ORDERS)

    def sample(self, random: Random) -> SampledExample:
        animal, place = sample_item(random, ANIMALS), sample_item(random, PLACES)
        is_animal = sample_bool(random, 0.5)
        adjective = sample_item(random, STATES if is_animal else SHAPES)
        present, participle = sample_item(random, VERBS)
        if sample_item(random, self.orders) == "active":
            words = ["the", animal, "did", "not", present, "the", place]
        else:
            words = ["the", place, "was", "not", participle, "by", "the", animal]
        right, wrong = (animal, place) if is_animal else (place, animal)
        antecedent = words.index(right)
        words += ["because", "it", "was", "a", adjective, right, "."]
        answer = len(words) - 2
        others = [noun for noun in (ANIMALS if is_animal else PLACES) if noun != right]
        contrasts = (Contrast(answer, wrong), Contrast(answer, sample_item(random, others)))
        text = LinkedText(" ".join(words), frozenset({(antecedent, answer - 1)}), contrasts)
        return SampledExample(f"{animal} {place} {adjective}", text)
