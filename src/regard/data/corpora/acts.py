"""acts: short utterances to classify by their dialogue act, with the words that decide it.

No word decides alone. Its order does (*you can wait* states, *can you wait* asks for something, *can they
wait* is a question), a negation (*i agree*, *i do not agree*), or what else is said (*right*, *is that right*).
Fillers such as *you know* and *like* look like cues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, ClassVar

from regard.bounds import Bounds, Share, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_bool, sample_int, sample_item
from regard.data.corpora.templates import MarkedWord, fill_template, find_marked, join_words
from regard.data.labeled import LabeledText

FILLERS = ("uh", "um", "well", "like", "you know", "i mean", "so", "yeah")

SIGNALS = ("yeah", "mhm", "right", "okay", "really", "sure", "wow", "i see")

SLOTS: dict[str, Sequence[str]] = {
    "subject": ("i", "we", "they", "she", "he", "my brother", "the neighbours", "our teacher", "you", "a friend"),
    "third": ("she", "he", "it", "my sister", "the train", "the doctor", "that", "your father"),
    "they": ("they", "we", "the children", "the dogs", "his parents"),
    "did": ("painted", "sold", "found", "lost", "fixed", "forgot", "bought", "cleaned", "moved", "saw"),
    "do": ("paint", "sell", "find", "fix", "clean", "move", "bring", "open", "check", "hold"),
    "thing": (
        "the fence", "the car", "a bicycle", "the kitchen", "those boxes", "the piano", "a lamp", "my keys",
        "the garden", "the roof", "that book", "the window",
    ),
    "noun": (
        "the game", "the new road", "this soup", "the weather", "the price", "his plan", "the election", "that film",
        "the noise", "the city", "my garden", "the heating",
    ),
    "place": ("at home", "in the garden", "at work", "on the bus", "in the kitchen", "out of town", "late", "here"),
    "quality": ("good", "cheap", "old", "loud", "boring", "fair", "important", "strange", "true", "right"),
    "time": ("today", "yesterday", "on monday", "last week", "every day", "at night", "three times a week", "again"),
}  # fmt: skip

TEMPLATES: dict[str, tuple[str, ...]] = {
    "statement": (
        "{subject}* {did}* {thing} {time}",
        "{subject}* {did}* {thing}",
        "{third}* is* {place}",
        "{they}* are* {place} {time}",
        "you* can* {do} {thing} {time}",
        "i* can* see {thing} from here",
        "i am not* sorry* about {noun}",
    ),
    "opinion": (
        "i think* {noun} is {quality}",
        "i do not think* {noun} is {quality}",
        "{noun} is too* {quality}",
        "{noun} should* be more {quality}",
        "to me* {noun} is {quality}",
    ),
    "question": (
        "is* {third}* {place}",
        "are* {they}* {place} {time}",
        "do* you* think {noun} is {quality}",
        "did* {they}* {do} {thing} {time}",
        "can* {they}* {do} {thing}",
        "is* that* {quality}",
        "where* is {thing}",
    ),
    "request": (
        "can* you* {do} {thing} {time}",
        "could* you* {do} {thing}",
        "please* {do} {thing} {time}",
        "i need* you* to {do} {thing}",
    ),
    "agreement": (
        "that is* true* about {noun}",
        "you are* right* about {noun}",
        "i agree* {noun} is {quality}",
        "exactly* {noun} is {quality}",
    ),
    "disagreement": (
        "that is not* true* about {noun}",
        "you are not* right* about {noun}",
        "i do not* agree* {noun} is {quality}",
        "no* {noun} is {quality}",
    ),
    "apology": (
        "sorry* about {noun}",
        "i am sorry* about {noun}",
        "i apologize* for {noun}",
        "excuse* me* i {did} {thing}",
        "my mistake* i {did} {thing}",
    ),
}

LABELS = (*TEMPLATES, "backchannel")

ASIDES = (
    "after dinner with my parents", "before the long trip to the lake", "in that old house by the river",
    "with all those people around", "since the end of the summer", "for the first time in years",
    "between the school and the station", "on the way back from the market", "during the storm last winter",
    "without any help from the others", "until late in the evening", "because of the work on the bridge",
)  # fmt: skip
"""What is said besides: it tells nothing about the act."""


@dataclass(frozen=True, kw_only=True)
class Acts(SyntheticCorpus):
    """Utterances with their dialogue act: `uh can you open the window` -> `request`."""

    task: ClassVar[str] = "label"
    model: ClassVar[dict[str, Any]] = {"encoder": "embedding"}  # so that a weight belongs to one word

    fillers: Share = 0.15  # probability of a filler before each word
    asides: Annotated[int, Bounds(0, 100)] = 2  # maximum number of phrases around the utterance that tell nothing

    def __post_init__(self) -> None:
        check_bounds(self)

    def sample(self, random: Random) -> SampledExample:
        label = sample_item(random, LABELS)
        if label == "backchannel":
            words = sample_backchannel(random)
        else:
            words = fill_template(random, sample_item(random, TEMPLATES[label]), SLOTS)
        key = join_words(words)
        words = self.add_fillers(random, self.add_asides(random, words))
        links = frozenset((index, 0) for index in find_marked(words))
        return SampledExample(key, LabeledText(join_words(words), (label,), links=links))

    def add_asides(self, random: Random, words: Sequence[MarkedWord]) -> list[MarkedWord]:
        """Return the words with asides before or after them."""
        spoken = list(words)
        for _ in range(sample_int(random, 0, self.asides)):
            aside = [MarkedWord(word) for word in sample_item(random, ASIDES).split()]
            spoken = aside + spoken if sample_bool(random, 0.5) else spoken + aside
        return spoken

    def add_fillers(self, random: Random, words: Sequence[MarkedWord]) -> list[MarkedWord]:
        """Return the words with fillers between them."""
        spoken: list[MarkedWord] = []
        for word in words:
            if sample_bool(random, self.fillers):
                spoken += [MarkedWord(filler) for filler in sample_item(random, FILLERS).split()]
            spoken.append(word)
        return spoken


def sample_backchannel(random: Random) -> list[MarkedWord]:
    """Return one to three signals of listening, all of them marked."""
    signals = [sample_item(random, SIGNALS) for _ in range(sample_int(random, 1, 3))]
    return [MarkedWord(word, "") for signal in signals for word in signal.split()]
