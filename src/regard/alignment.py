"""Extract word alignments from attention weights, symmetrize them, and read and write Pharaoh format.

Weights have shape (target, source): row t is the step that produced token t, including <eos>.
Links are (source word index, target word index), counted from 0.
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
from regard.errors import RegardError, format_json, unknown_name
from regard.files import wrap_read_errors

METHODS = ("argmax", "threshold")
DEFAULT_THRESHOLD = 0.2  # default of the method "threshold"
SHIFTS = (0, 1)
SYMMETRIZATIONS = ("grow-diag", "grow-diag-final", "grow-diag-final-and", "intersection", "union")
NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

ArrayOrTensor = Float[np.ndarray, "..."] | Float[Tensor, "..."]


class HeadSelection(NamedTuple):
    """The attention to read as an alignment; None is the mean over all layers or heads."""

    layer: int | None = None
    head: int | None = None
    shift: int = 0

    def __str__(self) -> str:
        name = ".".join("mean" if part is None else str(part) for part in self[:2]).removesuffix(".mean")
        return f"{name}, shift {self.shift}" if self.shift else name


MEAN_SELECTION = HeadSelection()


class AttentionExample(NamedTuple):
    """Attention weights of one target, and the word index of each token (None for <eos> and whitespace)."""

    weights: ArrayOrTensor  # (layers, heads, target, source)
    source_words: Sequence[int | None]
    target_words: Sequence[int | None]


def align(
    attended: AttentionExample,
    selection: HeadSelection = MEAN_SELECTION,
    method: str = "argmax",
    threshold: float | None = None,
) -> Links:
    """Return the word alignment given by one attention of a model.

    Args:
        attended: Attention weights and the word of each token.
        selection: Layer, head and shift to read.
        method: As in `extract_links`.
        threshold: As in `extract_links`.
    """
    rows = shift_rows(select_attention(attended.weights, selection.layer, selection.head), selection.shift)
    return extract_links(merge_words(rows, attended.source_words, attended.target_words), method, threshold)


def parse_selection(name: str, shift: int = 0) -> HeadSelection:
    """Parse the name of an attention, counted from 0.

    `2.3` is head 3 of layer 2, `2` the mean over the heads of layer 2, `mean` the mean over all heads.
    """
    match = re.fullmatch(r"mean|([0-9]{1,9})(?:\.([0-9]{1,9}))?", name)
    if not match:
        raise RegardError(
            f'alignment: unknown attention "{name}"; expected layer.head such as 2.3, a layer such as 2, or mean'
        )
    layer, head = (None if part is None else int(part) for part in match.groups())
    return HeadSelection(layer, head, shift)


def select_attention(
    weights: ArrayOrTensor, layer: int | None = None, head: int | None = None
) -> Float[np.ndarray, "target source"]:
    """Select one attention from weights of shape (layers, heads, target, source); None averages over that axis."""
    array = to_numpy(weights)
    if array.ndim != 4:
        raise RegardError(f"alignment: expected weights of shape (layers, heads, target, source), got {array.shape}")
    for axis, index, size in (("layer", layer, array.shape[0]), ("head", head, array.shape[1])):
        if index is not None and not 0 <= index < size:
            raise RegardError(f"alignment: {axis} must be from 0 to {size - 1}, got {index}")
    layers = array.mean(axis=0) if layer is None else array[layer]
    chosen: np.ndarray = layers.mean(axis=0) if head is None else layers[head]
    return chosen


def shift_rows(weights: ArrayOrTensor, shift: int) -> Float[np.ndarray, "*heads target source"]:
    """Shift the rows of weights by 0 or 1 steps.

    With a shift of 1, row t becomes that of the step that reads token t, one step after it was
    produced. In Transformer decoders, that row is often sharper (Chen et al. 2020). No step reads
    the last token, so its row is zero.
    """
    if shift not in SHIFTS:
        raise RegardError(
            f"alignment: shift must be 0 (the step that writes a token) or 1 (the step that reads it), got {shift}"
        )
    array = to_numpy(weights)
    if shift == 0:
        return array
    return np.concatenate([array[..., 1:, :], np.zeros_like(array[..., :1, :])], axis=-2)


def merge_words(
    weights: ArrayOrTensor, source_words: Sequence[int | None], target_words: Sequence[int | None]
) -> Float[np.ndarray, "*heads target_words source_words"]:
    """Convert weights between tokens to weights between words.

    Weights are summed over the tokens of a source word and averaged over the tokens of a target
    word, so rows remain distributions. Tokens that belong to no word are dropped with their
    weight, so a row sums to less than one by the weight of <eos> and whitespace.
    """
    array = to_numpy(weights)
    if array.ndim < 2:
        raise RegardError(f"merge_words: expected weights of shape (target, source), got {array.shape}")
    for side, words, tokens in (
        ("target", target_words, array.shape[-2]),
        ("source", source_words, array.shape[-1]),
    ):
        if len(words) != tokens:
            raise RegardError(
                f"merge_words: expected the words of {tokens} {side} tokens, as in the weights, got {len(words)}"
            )
    source, target = build_membership(source_words), build_membership(target_words)
    mean = target / np.maximum(target.sum(axis=0), 1)
    return (mean.T @ array @ source).astype(array.dtype, copy=False)


def build_membership(words: Sequence[int | None]) -> Float[np.ndarray, "tokens words"]:
    """Return a matrix that is 1 where a token belongs to a word."""
    word_indices = [word for word in words if word is not None]
    if min(word_indices, default=0) < 0:
        raise RegardError(f"merge_words: word indices must be at least 0, got {min(word_indices)}")
    belongs = np.zeros((len(words), max(word_indices, default=-1) + 1))
    for token, word in enumerate(words):
        if word is not None:
            belongs[token, word] = 1
    return belongs


def extract_links(weights: ArrayOrTensor, method: str = "argmax", threshold: float | None = None) -> Links:
    """Extract links from weights between words.

    Args:
        weights: Weights of one attention, of shape (target words, source words). A row of zeros gives no link.
        method: `argmax` links each target word to the source word with the highest weight (the first
            of equals); `threshold` to every source word with enough weight.
        threshold: Minimum weight of a link; 0.2 by default for `threshold`, none for `argmax`.

    Raises:
        RegardError: An argument is invalid.
    """
    if method not in METHODS:
        raise unknown_name("alignment: method", method, METHODS)
    if threshold is not None and not 0 < threshold <= 1:
        raise RegardError(f"alignment: threshold must be above 0 and at most 1, got {threshold}")
    array = to_numpy(weights)
    if array.ndim != 2:
        raise RegardError(f"alignment: expected weights of shape (target words, source words), got {array.shape}")
    if method == "threshold" and threshold is None:
        threshold = DEFAULT_THRESHOLD
    enough = array > 0 if threshold is None else array >= threshold
    if method == "argmax" and array.size:
        enough = enough & (np.arange(array.shape[1]) == array.argmax(axis=1)[:, None])
    return frozenset((int(source), int(target)) for target, source in np.argwhere(enough))


def to_numpy(weights: ArrayOrTensor) -> Float[np.ndarray, "..."]:
    """Convert to numpy; half precision becomes float32, because numpy lacks bfloat16."""
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu()
        return (weights if weights.dtype == torch.float64 else weights.float()).numpy()
    return weights


def symmetrize(forward: Links, backward: Links, method: str = "grow-diag-final-and") -> Links:
    """Combine the alignments of two directions into one.

    `grow-diag` starts with the intersection and repeatedly adds neighbors from the union, in
    target order, then source order, if one of their words has no link. `-final` then adds the
    remaining links of each direction where one word has no link, `-final-and` where neither
    has one: first forward, then backward (Koehn et al. 2005).

    Args:
        forward: Links as (source, target).
        backward: Links of the other direction, also as (source, target).
        method: One of `SYMMETRIZATIONS`.
    """
    if method not in SYMMETRIZATIONS:
        raise unknown_name("symmetrize", method, SYMMETRIZATIONS)
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    growing = GrowingAlignment(set(forward & backward))
    growing.grow_diagonally(sort_by_target(forward | backward))
    if method != "grow-diag":
        for direction in (forward, backward):
            growing.add_final(sort_by_target(direction), both_free=method.endswith("-and"))
    return frozenset(growing.links)


def sort_by_target(links: Links) -> list[tuple[int, int]]:
    """Sort links by target, then by source."""
    return sorted(links, key=lambda link: (link[1], link[0]))


class GrowingAlignment:
    """An alignment under construction, with the sets of linked words."""

    def __init__(self, links: set[tuple[int, int]]) -> None:
        self.links = links
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add(self, link: tuple[int, int]) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def grow_diagonally(self, union: Sequence[tuple[int, int]]) -> None:
        """Add neighbors repeatedly until nothing changes."""
        candidates, before = set(union), -1
        while before < len(self.links):
            before = len(self.links)
            for source, target in union:
                if (source, target) not in self.links:
                    continue
                for down, right in NEIGHBORS:
                    neighbor = (source + right, target + down)
                    if neighbor in candidates and (neighbor[0] not in self.sources or neighbor[1] not in self.targets):
                        self.add(neighbor)

    def add_final(self, direction: Sequence[tuple[int, int]], *, both_free: bool) -> None:
        """Add links where one word has none, or both if `both_free`."""
        for source, target in direction:
            free = (source not in self.sources, target not in self.targets)
            if all(free) if both_free else any(free):
                self.add((source, target))


@dataclass(frozen=True)
class GoldLinks:
    """Links annotated by people: sure links, and possible links, which include the sure ones."""

    sure: Links
    possible: Links = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def to_pharaoh(links: Links, base: int = 0) -> str:
    """Format links as `0-0 1-2` (source-target, sorted), counted from `base`."""
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(links))


def parse_pharaoh(text: str, location: str, base: int = 0) -> GoldLinks:
    """Parse a line of links, counted from `base`: `3-4` is sure, `3p4` and `3?4` are possible."""
    if base not in (0, 1):
        raise RegardError(f"{location}: base must be 0 or 1, got {base}")
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for word in text.split():
        match = re.fullmatch(r"([0-9]{1,9})([-p?])([0-9]{1,9})", word)
        if not match:
            raise RegardError(
                f"{location}: expected a link such as 3-4 (sure) or 3p4 (possible), got {format_json(word)}"
            )
        link = (int(match[1]) - base, int(match[3]) - base)
        if min(link) < 0:
            raise RegardError(f'{location}: words must be counted from {base}, got "{word}"')
        (sure if match[2] == "-" else possible).add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def read_pharaoh(path: str | Path, base: int = 0) -> list[GoldLinks]:
    """Read the links of each line of a file."""
    try:
        with wrap_read_errors(Path(path)), open(path, encoding="utf-8-sig") as file:
            lines = list(file)
    except UnicodeDecodeError as error:
        raise RegardError(
            f"{path} is not valid UTF-8: byte {error.start + 1}; expected links such as 0-0 1-2"
        ) from error
    return [parse_pharaoh(line, f"{path}, line {number}", base) for number, line in enumerate(lines, start=1)]
