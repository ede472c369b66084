"""Examples from wherever the settings say: files, stdin, or a built-in corpus."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.check import counted, hold_out
from regard.data.corpora import CORPORA, built_in
from regard.data.example import Example
from regard.data.formats import read_pairs, read_parallel
from regard.data.formats.lines import shown
from regard.errors import RegardError, unknown_name
from regard.tasks.pairs.settings import PairData


@dataclass(frozen=True)
class Corpus:
    """What is trained on, what is validated with, and a sentence about where they come from."""

    train: Sequence[Example]
    valid: Sequence[Example]
    origin: str


def load_corpus(settings: PairData, seed: int) -> Corpus:
    """Read or make all examples."""
    check_whole(settings)
    given = None
    if settings.valid or settings.valid_source:
        given = read(settings, settings.valid, settings.valid_source, settings.valid_target)
    if settings.train in CORPORA:
        return load_built_in(settings, settings.train, given, seed)
    train = read(settings, settings.train, settings.source, settings.target)
    origin = settings.train or f"{settings.source} and {settings.target}"
    if given is not None:
        return Corpus(train, given, origin)
    kept, held = hold_out(train, share=settings.held_out, seed=seed)
    said = f"{counted(len(held), 'pair')} {'is' if len(held) == 1 else 'are'} held out to validate with"
    return Corpus(kept, held, f"{origin}, of which {said}")


def load_built_in(settings: PairData, name: str, valid: Sequence[Example] | None, seed: int) -> Corpus:
    """Make a built-in corpus; what to validate with, too, unless it is given."""
    held = 0 if valid is not None else max(1, min(1000, round(settings.count * settings.held_out)))
    train, made = built_in(name, train=settings.count, valid=held, seed=seed, **settings.corpus)
    return Corpus(train, made if valid is None else valid, f"the built-in corpus {name}, seed {seed}")


def read(settings: PairData, both: str | None, source: str | None, target: str | None) -> list[Example]:
    """All pairs of one file, or of two; one at least."""
    if both is not None:
        check_file(both)
        name = shown(both)
        found = list(read_pairs(both, format=settings.format, columns=settings.columns or None, empty=settings.empty))
    else:
        assert source is not None and target is not None
        name = f"{shown(source)} and {shown(target)}"
        found = list(read_parallel(source, target, empty=settings.empty))
    if not found:
        raise RegardError(f"{name}: no pairs are there; at least one is needed")
    return found


def check_file(name: str) -> None:
    """Raise a `RegardError` for a folder, and for a plain word that is neither a file nor a built-in corpus."""
    if os.path.isdir(name):
        raise RegardError(f"{name}: is a folder; a file of pairs or a built-in corpus is needed")
    if re.fullmatch(r"[\w-]+", name) and not os.path.exists(name) and name != "-":
        raise unknown_name("file or built-in corpus", name, CORPORA)


def check_whole(settings: PairData) -> None:
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
    if settings.valid in CORPORA:
        raise RegardError(f"data: --valid is {settings.valid}, a built-in corpus; a file of pairs is needed")
    if settings.corpus and settings.train not in CORPORA:
        raise RegardError(f"data: [corpus] is for a built-in corpus; found {settings.train or settings.source}")
    settings.check_share()
    files = (getattr(settings, name) for name in ("train", "source", "target", "valid", "valid_source", "valid_target"))
    if list(files).count("-") > 1:
        raise RegardError("standard input: was given more than once; it can be read once")
