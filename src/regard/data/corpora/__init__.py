"""Built-in corpora: generated, unlimited, the same from the same seed on every machine.

    train, valid = built_in("toy-en-de", train=20_000, valid=1_000)

Every example belongs to one part for good, train or valid, whatever the seed: one key in
ten (a day, a number, a sentence) is held out, chosen by its checksum. So a model trained
on any examples of train has seen none of valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import repeat
from random import Random
from typing import Any, Literal

from regard.data.corpora.dates import Dates
from regard.data.corpora.drawing import Corpus, Drawn
from regard.data.corpora.numbers import Numbers
from regard.data.corpora.strings import Copy, Reverse, Sort
from regard.data.corpora.toy_en_de import ToyEnDe
from regard.data.example import Example
from regard.errors import RegardError, unknown_name
from regard.settings import from_table

__all__ = ["CORPORA", "Corpus", "Part", "built_in", "generate", "stream"]

CORPORA: dict[str, type[Corpus]] = {
    "copy": Copy,
    "dates": Dates,
    "numbers": Numbers,
    "reverse": Reverse,
    "sort": Sort,
    "toy-en-de": ToyEnDe,
}

Part = Literal["train", "valid"]

ONE_IN = 10  # keys are held out
PATIENCE = 10_000  # draws in a row that bring nothing, and ten more for each example found


def built_in(
    name: str, *, train: int, valid: int = 0, seed: int = 0, keep_out: Collection[str] = (), **settings: Any
) -> tuple[list[Example], list[Example]]:
    """Different examples to train on, and different ones of which training has seen nothing.

    With more asked for, the same examples come first. What has a text of `keep_out` in
    its source or target, as whole words, is never in train.

    Args:
        name: Of `CORPORA`.
        train: How many to train on.
        valid: How many to validate with.
        seed: Another seed draws other examples, and moves none from one part to the other.
        keep_out: Texts to keep out of train.
        settings: Of the corpus, as its class lists them.
    """
    draws = sorted_draws(name, settings, seed, keep_out)
    found = filled(name, draws, {"train": train, "valid": valid})
    return found["train"], found["valid"]


def generate(name: str, count: int, *, seed: int = 0, **settings: Any) -> list[Example]:
    """Different examples of a corpus, from both parts."""
    draws = (("count", drawn.example) for drawn in all_draws(name, new_corpus(name, settings), seed))
    return filled(name, draws, {"count": count})["count"]


def stream(
    name: str, *, part: str = "train", seed: int = 0, keep_out: Collection[str] = (), **settings: Any
) -> Iterator[Example]:
    """Examples of one part without end; a small corpus repeats itself."""
    if part not in ("train", "valid"):
        raise unknown_name(f"{name}: part", part, ("train", "valid"))
    return of_part(name, sorted_draws(name, settings, seed, keep_out), part)


def new_corpus(name: str, settings: dict[str, Any]) -> Corpus:
    """A corpus of `CORPORA` with its settings."""
    if name not in CORPORA:
        raise unknown_name("corpora", name, CORPORA)
    return from_table(CORPORA[name], settings, name)


def all_draws(name: str, corpus: Corpus, seed: int) -> Iterator[Drawn]:
    """Examples without end."""
    if seed < 0:  # from -1 Python draws the same as from 1
        raise RegardError(f"{name}: seed is {seed}; 0 is the least")
    random = Random(seed)
    return (corpus.draw(random) for _ in repeat(None))


def sorted_draws(
    name: str, settings: dict[str, Any], seed: int, keep_out: Collection[str]
) -> Iterator[tuple[Part, Example]]:
    """Examples without end, each with the part it belongs to."""
    corpus = new_corpus(name, settings)
    draws = all_draws(name, corpus, seed)
    if isinstance(keep_out, str):
        raise RegardError(f'{name}: keep_out is "{keep_out}"; a list of texts is needed')
    unseen = [f" {' '.join(text.split())} " for text in (*corpus.held_out, *keep_out)]
    return ((part_of(drawn, unseen), drawn.example) for drawn in draws)


def part_of(drawn: Drawn, unseen: Collection[str]) -> Part:
    """Where an example belongs, by its key alone unless it has a text in it that is not to be seen."""
    checksum = int.from_bytes(blake2b(drawn.key.encode(), digest_size=8).digest(), "big")
    if checksum % ONE_IN == 0:
        return "valid"
    texts = (drawn.key, drawn.example.source, drawn.example.target)
    return "valid" if any(each in f" {text} " for each in unseen for text in texts) else "train"


def of_part(name: str, draws: Iterator[tuple[Part, Example]], part: str) -> Iterator[Example]:
    """Those of one part."""
    idle = 0
    for found, example in draws:
        idle += 1
        if found == part:
            idle = 0
            yield example
        if idle > PATIENCE:
            raise RegardError(f"{name}: these settings give no example for {part}; widen them")


def filled(name: str, draws: Iterator[tuple[str, Example]], wanted: dict[str, int]) -> dict[str, list[Example]]:
    """As many different examples of each part as are wanted, in the order in which they are drawn."""
    for part, count in wanted.items():
        if count < 0:
            raise RegardError(f"{name}: {part} is {count}; 0 is the least")
    found: dict[str, dict[str, Example]] = {part: {} for part in wanted}
    idle = 0
    while missing := [part for part, count in wanted.items() if len(found[part]) < count]:
        part, example = next(draws)
        idle += 1
        if part in missing and example.source not in found[part]:
            found[part][example.source] = example
            idle = 0
        if idle > PATIENCE + 10 * sum(map(len, found.values())):
            few = missing[0]
            raise RegardError(
                f"{name}: {few} asks for {wanted[few]} examples, and these settings give {len(found[few])}; "
                "ask for fewer or widen the settings"
            )
    return {part: list(examples.values()) for part, examples in found.items()}
