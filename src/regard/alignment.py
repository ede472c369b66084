"""Attention weights -> links between words, and links <-> text.

Weights are (target, source): row t is the step that produced token t, <eos> included.
Links are (place in the source, place in the target), counted from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.example import Links
from regard.errors import RegardError, unknown_name
from regard.files import reading

METHODS = ("argmax", "threshold")
THRESHOLD = 0.2  # of the method of this name, unless told otherwise
SHIFTS = (0, 1)
SYMMETRISATIONS = ("grow-diag", "grow-diag-final", "grow-diag-final-and", "intersection", "union")
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Numbers = Float[np.ndarray, "..."] | Float[Tensor, "..."]


class Place(NamedTuple):
    """Which of a model's attentions is read as an alignment; None is the mean over all."""

    layer: int | None = None
    head: int | None = None
    shift: int = 0

    def __str__(self) -> str:
        name = ".".join("mean" if part is None else str(part) for part in self[:2]).removesuffix(".mean")
        return f"{name}, shift {self.shift}" if self.shift else name


MEAN = Place()


class Attended(NamedTuple):
    """What one target looked at, and which word each token belongs to (None: to none, as <eos> and spaces)."""

    weights: Numbers  # (layers, heads, target, source)
    source_words: Sequence[int | None]
    target_words: Sequence[int | None]


def align(
    attended: Attended,
    place: Place = MEAN,
    method: str = "argmax",
    threshold: float | None = None,
) -> Links:
    """The links that one attention of a model draws between the words of a source and a target."""
    rows = shift_rows(select(attended.weights, place.layer, place.head), place.shift)
    return links_from(merge_words(rows, attended.source_words, attended.target_words), method, threshold)


def parse_place(name: str, shift: int = 0) -> Place:
    """`2.3` is head 3 of layer 2, `2` the mean over the heads of layer 2, `mean` that over all; counted from 0."""
    found = re.fullmatch(r"mean|([0-9]{1,9})(?:\.([0-9]{1,9}))?", name)
    if not found:
        raise RegardError(f'alignment: "{name}" is no attention; write 2.3 for head 3 of layer 2, 2, or mean')
    layer, head = (None if part is None else int(part) for part in found.groups())
    return Place(layer, head, shift)


def select(weights: Numbers, layer: int | None = None, head: int | None = None) -> Float[np.ndarray, "target source"]:
    """One attention of (layers, heads, target, source); None takes the mean over that axis."""
    numbers = as_array(weights)
    if numbers.ndim != 4:
        raise RegardError(f"select: weights are {numbers.shape}; (layers, heads, target, source) is needed")
    for what, index, size in (("layer", layer, numbers.shape[0]), ("head", head, numbers.shape[1])):
        if index is not None and not 0 <= index < size:
            raise RegardError(f"select: there is no {what} {index}; there are {size}, counted from 0")
    layers = numbers.mean(axis=0) if layer is None else numbers[layer]
    chosen: np.ndarray = layers.mean(axis=0) if head is None else layers[head]
    return chosen


def shift_rows(weights: Numbers, shift: int) -> Float[np.ndarray, "*heads target source"]:
    """With a shift of 1, row t becomes that of the step which reads token t: the one after it was produced.

    A Transformer's decoder is often sharper there (Chen et al. 2020). No step reads the
    last token, so that its row is zero.
    """
    if shift not in SHIFTS:
        raise RegardError(f"alignment: a shift of {shift}; 0 is the step that writes a token, 1 the one that reads it")
    numbers = as_array(weights)
    if shift == 0:
        return numbers
    return np.concatenate([numbers[..., 1:, :], np.zeros_like(numbers[..., :1, :])], axis=-2)


def merge_words(
    weights: Numbers, source_words: Sequence[int | None], target_words: Sequence[int | None]
) -> Float[np.ndarray, "*heads target_words source_words"]:
    """Weights between tokens -> weights between words.

    The tokens of a source word are summed, those of a target word averaged, so that a row
    stays what the model gave. Tokens of no word are left out and their weight with them:
    a row sums to less than one by what went to <eos> and to spaces.
    """
    numbers = as_array(weights)
    if numbers.ndim < 2:
        raise RegardError(f"merge_words: weights are {numbers.shape}; (target, source) is needed")
    for side, words, tokens in (
        ("target", target_words, numbers.shape[-2]),
        ("source", source_words, numbers.shape[-1]),
    ):
        if len(words) != tokens:
            raise RegardError(f"merge_words: words of {len(words)} {side} tokens; the weights have {tokens}")
    source, target = membership(source_words), membership(target_words)
    mean = target / np.maximum(target.sum(axis=0), 1)
    return (mean.T @ numbers @ source).astype(numbers.dtype, copy=False)


def membership(words: Sequence[int | None]) -> Float[np.ndarray, "tokens words"]:
    """1 where a token belongs to a word."""
    numbers = [word for word in words if word is not None]
    if min(numbers, default=0) < 0:
        raise RegardError(f"merge_words: there is a word {min(numbers)}; words are counted from 0")
    belongs = np.zeros((len(words), max(numbers, default=-1) + 1))
    for token, word in enumerate(words):
        if word is not None:
            belongs[token, word] = 1
    return belongs


def links_from(weights: Numbers, method: str = "argmax", threshold: float | None = None) -> Links:
    """Hard links of weights between words, (target, source).

    Args:
        weights: Of one attention; a row without weight gives no link.
        method: `argmax` links each target word to the source word it looks at most, the
            first of equals; `threshold` to all that get enough.
        threshold: The least weight of a link; for `threshold` 0.2 unless told otherwise.
    """
    if method not in METHODS:
        raise unknown_name("links_from: method", method, METHODS)
    if threshold is not None and not 0 < threshold <= 1:
        raise RegardError(f"links_from: a threshold of {threshold}; it must be above 0 and at most 1")
    numbers = as_array(weights)
    if numbers.ndim != 2:
        raise RegardError(f"links_from: weights are {numbers.shape}; (target words, source words) is needed")
    if method == "threshold" and threshold is None:
        threshold = THRESHOLD
    enough = numbers > 0 if threshold is None else numbers >= threshold
    if method == "argmax" and numbers.size:
        enough = enough & (np.arange(numbers.shape[1]) == numbers.argmax(axis=1)[:, None])
    return frozenset((int(source), int(target)) for target, source in np.argwhere(enough))


def as_array(weights: Numbers) -> Float[np.ndarray, "..."]:
    """The same numbers as numpy's; those of half precision, which it may not know, as float32."""
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu()
        return (weights if weights.dtype == torch.float64 else weights.float()).numpy()
    return weights


def symmetrise(forward: Links, backward: Links, method: str = "grow-diag-final-and") -> Links:
    """One alignment of two, made in the two directions; both as (source, target).

    `grow-diag` begins with the intersection and adds neighbours from the union, in the
    order of the target, then of the source, as long as one of their words has no link.
    `-final` then adds what else is in either direction where one word has no link,
    `-final-and` where neither has one: first forward, then backward (Koehn et al. 2005).
    """
    if method not in SYMMETRISATIONS:
        raise unknown_name("symmetrise", method, SYMMETRISATIONS)
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    growing = Growing(set(forward & backward))
    growing.spread(by_target(forward | backward))
    if method != "grow-diag":
        for direction in (forward, backward):
            growing.finish(by_target(direction), both=method.endswith("-and"))
    return frozenset(growing.links)


def by_target(links: Links) -> list[tuple[int, int]]:
    """In the order of the target, then of the source."""
    return sorted(links, key=lambda link: (link[1], link[0]))


class Growing:
    """An alignment to which links are added, and the words that have one."""

    def __init__(self, links: set[tuple[int, int]]) -> None:
        self.links = links
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add(self, link: tuple[int, int]) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def spread(self, union: Sequence[tuple[int, int]]) -> None:
        """Add neighbours, and theirs, until none is left to add."""
        candidates, before = set(union), -1
        while before < len(self.links):
            before = len(self.links)
            for source, target in union:
                if (source, target) not in self.links:
                    continue
                for down, right in NEIGHBOURS:
                    near = (source + right, target + down)
                    if near in candidates and (near[0] not in self.sources or near[1] not in self.targets):
                        self.add(near)

    def finish(self, direction: Sequence[tuple[int, int]], *, both: bool) -> None:
        """Add links where one word, or both, have none."""
        for source, target in direction:
            free = (source not in self.sources, target not in self.targets)
            if all(free) if both else any(free):
                self.add((source, target))


@dataclass(frozen=True)
class Gold:
    """Links drawn by people: sure ones, and possible ones, among which the sure ones always are."""

    sure: Links
    possible: Links = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def to_pharaoh(links: Links, base: int = 0) -> str:
    """`0-0 1-2`: source-target, sorted; counted from `base`."""
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(links))


def parse_pharaoh(text: str, where: str, base: int = 0) -> Gold:
    """A line of links: `3-4` is sure, `3p4` and `3?4` are possible; counted from `base`."""
    if base not in (0, 1):
        raise RegardError(f"{where}: words counted from {base}; 0 or 1 is needed")
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for word in text.split():
        found = re.fullmatch(r"([0-9]{1,9})([-p?])([0-9]{1,9})", word)
        if not found:
            raise RegardError(f'{where}: "{word}" is no link; write 3-4 for a sure one, 3p4 for a possible one')
        link = (int(found[1]) - base, int(found[3]) - base)
        if min(link) < 0:
            raise RegardError(f'{where}: "{word}" counts words from 0; from {base} was asked for')
        (sure if found[2] == "-" else possible).add(link)
    return Gold(frozenset(sure), frozenset(possible))


def read_pharaoh(path: str | Path, base: int = 0) -> list[Gold]:
    """The links of each line of a file."""
    try:
        with reading(Path(path)), open(path, encoding="utf-8-sig") as file:
            lines = list(file)
    except UnicodeDecodeError as error:
        raise RegardError(f"{path}: byte {error.start + 1} is not UTF-8; links are written as 0-0 1-2") from error
    return [parse_pharaoh(line, f"{path}, line {number}", base) for number, line in enumerate(lines, start=1)]
