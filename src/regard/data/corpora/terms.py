"""terms: short technical posts to label with their key terms, with the words that give each term.

Some terms are named (*numpy*), some follow from another (numpy is for python), and some are only implied by two
words together (*rows* and *columns* for matrix), each of which also occurs without the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, ClassVar

from regard.bounds import Bounds, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_int, sample_item
from regard.data.corpora.templates import MarkedWord, fill_template, join_words
from regard.data.labeled import LabeledText

SLOTS = {
    "opening": (
        "how do i", "what is the best way to", "i am trying to", "i can not", "is there a fast way to",
        "please help me to", "i have to", "why is it so slow to",
    ),
    "action": (
        "read a file", "send a message", "sort a list of names", "show a picture", "save my data", "count the users",
        "print the date", "find a number", "load one value", "test my code", "draw a line", "store the answers",
    ),
}  # fmt: skip

PHRASES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("python",), "in a python* script"),
    (("python",), "after pip* failed"),
    (("python", "numpy"), "with numpy*"),
    (("python", "numpy"), "with loadtxt*"),
    (("matrix",), "in a huge matrix*"),
    (("matrix",), "with rows* and columns*"),
    (("ios",), "on my iphone*"),
    (("ios",), "in a swift* app"),
    (("android",), "in a kotlin* app"),
    (("android",), "on an android* phone"),
    (("facebook",), "through facebook*"),
    (("facebook",), "below a like* button*"),
    (("sql",), "with sql*"),
    (("sql",), "with a join* of two tables*"),
    (("regex",), "with a regex*"),
    (("regex",), "with a pattern* that must match*"),
    (("git",), "in git*"),
    (("git",), "after the merge* of a branch*"),
    (("css",), "with css*"),
    (("css",), "in a box* with a border*"),
    (("javascript",), "in javascript*"),
    (("javascript",), "in the console* of a browser*"),
)
"""The terms of each phrase, and the phrase with its deciding words marked."""

DISTRACTORS = (
    "with many rows", "in three columns", "on an old phone", "in my app", "below a button", "with a join of two lists",
    "from two tables", "with a nice pattern", "that must match", "after the merge of two files", "on a branch",
    "in a box", "with a border", "in the console", "of a browser", "i like it", "in one line", "at work",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Terms(SyntheticCorpus):
    """Posts with one or more key terms: `i can not read a file with numpy` -> `python`, `numpy`."""

    task: ClassVar[str] = "label"
    model: ClassVar[dict[str, Any]] = {"encoder": "embedding"}  # so that a weight belongs to one word

    max_phrases: Annotated[int, Bounds(1, 100)] = 3  # maximum number of phrases that give terms
    distractors: Annotated[int, Bounds(0, 100)] = 2  # maximum number of phrases that give none

    def __post_init__(self) -> None:
        check_bounds(self)

    def sample(self, random: Random) -> SampledExample:
        words = fill_template(random, "{opening} {action}", SLOTS)
        chosen = [sample_item(random, PHRASES) for _ in range(sample_int(random, 1, self.max_phrases))]
        chosen += [((), sample_item(random, DISTRACTORS)) for _ in range(sample_int(random, 0, self.distractors))]
        sources: dict[str, list[int]] = {}  # term -> the words that give it
        for terms, phrase in shuffle(random, chosen):
            for word in fill_template(random, phrase, {}):
                for term in terms if word.marks is not None else ():
                    sources.setdefault(term, []).append(len(words))
                words.append(MarkedWord(word.text))
        labels = tuple(sources)
        links = frozenset((word, labels.index(term)) for term, indices in sources.items() for word in indices)
        text = join_words(words)
        return SampledExample(text, LabeledText(text, labels, links=links))


def shuffle(random: Random, items: list[tuple[tuple[str, ...], str]]) -> list[tuple[tuple[str, ...], str]]:
    """Return the items in random order."""
    return [item for _, _, item in sorted((random.random(), index, item) for index, item in enumerate(items))]
