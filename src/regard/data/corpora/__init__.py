"""Built-in corpora: generated data, unlimited, and reproducible by seed on every machine.

    train, valid = generate_built_in("toy-en-de", train=20_000, valid=1_000)

Every example belongs to one split, train or valid, regardless of the seed: one key in ten
(a day, a number, a sentence) is assigned to valid by its checksum. A model trained on any
examples of train has therefore seen none of valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import repeat
from random import Random
from typing import Any, Literal

from regard.data.corpora.acts import Acts
from regard.data.corpora.agreement import Agreement
from regard.data.corpora.base import SampledExample, SyntheticCorpus, get_input, get_output
from regard.data.corpora.coreference import Coreference
from regard.data.corpora.dates import Dates
from regard.data.corpora.entities import Entities
from regard.data.corpora.numbers import Numbers
from regard.data.corpora.strings import Copy, Reverse, Sort
from regard.data.corpora.terms import Terms
from regard.data.corpora.toy_en_de import ToyEnDe
from regard.errors import RegardError, unknown_name
from regard.settings import parse_settings

__all__ = ["CORPORA", "Split", "SyntheticCorpus", "generate_built_in", "generate_examples", "stream_examples"]

CORPORA: dict[str, type[SyntheticCorpus]] = {
    "acts": Acts,
    "agreement": Agreement,
    "copy": Copy,
    "coreference": Coreference,
    "dates": Dates,
    "entities": Entities,
    "numbers": Numbers,
    "reverse": Reverse,
    "sort": Sort,
    "terms": Terms,
    "toy-en-de": ToyEnDe,
}
"""Built-in corpora by name; each is for one task, `SyntheticCorpus.task`."""

Split = Literal["train", "valid"]

VALIDATION_ONE_IN = 10  # one key in this many belongs to the validation split
PATIENCE = 10_000  # draws without a new example before giving up, plus ten per example so far


def generate_built_in(
    name: str, *, train: int, valid: int = 0, seed: int = 0, keep_out: Collection[str] = (), **settings: Any
) -> tuple[list[Any], list[Any]]:
    """Generate distinct training and validation examples of a built-in corpus.

    A larger count gives the same examples first.

    Args:
        name: A key of `CORPORA`.
        train: Number of training examples.
        valid: Number of validation examples.
        seed: Seed of the random choice. It never moves an example from one split to the other.
        keep_out: Texts that must not occur, as whole words, in a training source or target.
        settings: Settings of the corpus; see its class.

    Returns:
        Training and validation examples: `Example`, `LabeledText`, `TaggedSentence` or `LinkedText`, by the task
        of the corpus.

    Raises:
        RegardError: A name or setting is invalid, or the settings do not allow that many examples.

    Example:
        >>> train, valid = generate_built_in("reverse", train=1000, valid=100)
    """
    samples = iter_samples(name, settings, seed, keep_out)
    examples = collect_examples(name, samples, {"train": train, "valid": valid})
    return examples["train"], examples["valid"]


def generate_examples(name: str, count: int, *, seed: int = 0, **settings: Any) -> list[Any]:
    """Generate distinct examples of a corpus, from both splits."""
    samples = (("count", drawn.example) for drawn in iter_draws(name, build_corpus(name, settings), seed))
    return collect_examples(name, samples, {"count": count})["count"]


def stream_examples(
    name: str, *, split: str = "train", seed: int = 0, keep_out: Collection[str] = (), **settings: Any
) -> Iterator[Any]:
    """Yield examples of one split endlessly; a small corpus repeats itself."""
    if split not in ("train", "valid"):
        raise unknown_name(f"{name}: split", split, ("train", "valid"))
    return filter_split(name, iter_samples(name, settings, seed, keep_out), split)


def build_corpus(name: str, settings: dict[str, Any]) -> SyntheticCorpus:
    """Build a corpus of `CORPORA` from its settings."""
    if name not in CORPORA:
        raise unknown_name("corpus", name, CORPORA)
    return parse_settings(CORPORA[name], settings, name)


def iter_draws(name: str, corpus: SyntheticCorpus, seed: int) -> Iterator[SampledExample]:
    """Return an endless iterator of examples."""
    if seed < 0:  # Python seeds -1 like 1
        raise RegardError(f"{name}: seed must be at least 0, got {seed}")
    random = Random(seed)
    return (corpus.sample(random) for _ in repeat(None))


def iter_samples(
    name: str, settings: dict[str, Any], seed: int, keep_out: Collection[str]
) -> Iterator[tuple[Split, Any]]:
    """Return an endless iterator of examples with their split."""
    corpus = build_corpus(name, settings)
    draws = iter_draws(name, corpus, seed)
    if isinstance(keep_out, str):
        raise RegardError(f'{name}: expected a list of strings for keep_out, got "{keep_out}"')
    unseen = [f" {' '.join(text.split())} " for text in (*corpus.held_out, *keep_out)]
    return ((assign_split(sampled, unseen), sampled.example) for sampled in draws)


def assign_split(sampled: SampledExample, unseen: Collection[str]) -> Split:
    """Return the split of an example, by its key or because it contains a text to keep out."""
    checksum = int.from_bytes(blake2b(sampled.key.encode(), digest_size=8).digest(), "big")
    if checksum % VALIDATION_ONE_IN == 0:
        return "valid"
    texts = (sampled.key, get_input(sampled.example), get_output(sampled.example))
    return "valid" if any(phrase in f" {text} " for phrase in unseen for text in texts) else "train"


def filter_split(name: str, samples: Iterator[tuple[Split, Any]], split: str) -> Iterator[Any]:
    """Yield the examples of one split."""
    idle = 0
    for example_split, example in samples:
        idle += 1
        if example_split == split:
            idle = 0
            yield example
        if idle > PATIENCE:
            raise RegardError(f"{name}: these settings give no examples for {split}; relax them")


def collect_examples(name: str, samples: Iterator[tuple[str, Any]], counts: dict[str, int]) -> dict[str, list[Any]]:
    """Collect the given number of distinct examples per split, in the order drawn."""
    for part, count in counts.items():
        if count < 0:
            raise RegardError(f"{name}: {part} must be at least 0, got {count}")
    examples_by_split: dict[str, dict[str, Any]] = {part: {} for part in counts}
    idle = 0
    while missing := [part for part, count in counts.items() if len(examples_by_split[part]) < count]:
        part, example = next(samples)
        idle += 1
        text = get_input(example)
        if part in missing and text not in examples_by_split[part]:
            examples_by_split[part][text] = example
            idle = 0
        if idle > PATIENCE + 10 * sum(map(len, examples_by_split.values())):
            few = missing[0]
            raise RegardError(
                f"{name}: {few} must be at most {len(examples_by_split[few])} with these settings, got {counts[few]}"
            )
    return {part: list(examples.values()) for part, examples in examples_by_split.items()}
