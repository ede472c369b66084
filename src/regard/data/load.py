"""Examples from wherever the settings say: files, stdin, or a built-in corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.check import hold_out
from regard.data.corpora import CORPORA, built_in
from regard.data.example import Example
from regard.data.formats import read_pairs, read_parallel
from regard.data.settings import DataSettings
from regard.errors import RegardError


@dataclass(frozen=True)
class Corpus:
    """What is trained on, what is validated with, and a sentence about where they come from."""

    train: Sequence[Example]
    valid: Sequence[Example]
    origin: str


def load_corpus(settings: DataSettings, seed: int) -> Corpus:
    """Read or make all examples."""
    check_whole(settings)
    if settings.train in CORPORA:
        return load_built_in(settings, seed)
    train = read(settings, settings.train, settings.source, settings.target)
    origin = settings.train or f"{settings.source} and {settings.target}"
    if settings.valid or settings.valid_source:
        valid = read(settings, settings.valid, settings.valid_source, settings.valid_target)
        return Corpus(train, valid, origin)
    kept, held = hold_out(train, share=settings.held_out, seed=seed)
    return Corpus(kept, held, f"{origin}, of which {len(held)} pairs are held out to validate with")


def load_built_in(settings: DataSettings, seed: int) -> Corpus:
    """Make a built-in corpus."""
    assert settings.train is not None
    held = max(1, min(1000, round(settings.count * settings.held_out)))
    train, valid = built_in(settings.train, train=settings.count, valid=held, seed=seed, **settings.corpus)
    if settings.valid or settings.valid_source:
        valid = read(settings, settings.valid, settings.valid_source, settings.valid_target)
    return Corpus(train, valid, f"the built-in corpus {settings.train}, seed {seed}")


def read(settings: DataSettings, both: str | None, source: str | None, target: str | None) -> list[Example]:
    """All pairs of one file, or of two."""
    if both is not None:
        found = read_pairs(both, format=settings.format, columns=settings.columns or None, empty=settings.empty)
    else:
        assert source is not None and target is not None
        found = read_parallel(source, target, empty=settings.empty)
    return list(found)


def check_whole(settings: DataSettings) -> None:
    """Raise a `RegardError` unless it is said where examples come from, in one way."""
    for both, source, target, word in (
        (settings.train, settings.source, settings.target, ""),
        (settings.valid, settings.valid_source, settings.valid_target, "valid-"),
    ):
        if (source is None) != (target is None):
            missing = f"--{word}target" if target is None else f"--{word}source"
            raise RegardError(f"data: {missing} is missing; two files, line by line, are needed")
        if both is not None and source is not None:
            raise RegardError(f"data: found {both} and --{word}source {source}; give one file of pairs, or two files")
    if settings.train is None and settings.source is None:
        raise RegardError(
            "data: nothing to train on; give a file of pairs, --source and --target, or a built-in corpus "
            f"({', '.join(CORPORA)})"
        )
