"""A text whose words are shaded by their weights, in the terminal and as a page.

    print(shade_words(("a", "dull", "film"), (0.1, 0.7, 0.2), title="negative"))
    words_page([(words, weights, title), ...])

This is the view of attention that has no rows: what a classifier looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32

from regard.errors import RegardError
from regard.views.display import broken, cut, display_width, harmless, isolated
from regard.views.document import document, static
from regard.views.shades import DARK_RAMP, RAMP, Colour, ceiling, hexadecimal, ink, rgb
from regard.views.terminal import RESET, SHADES, TITLE, Grid, known_colour, known_width, legend, paint
from regard.views.weights import EXCESS

Number = TypeVar("Number", int, float)

LEVELS = 20  # shades of a page, besides that of no weight
EMPTY = " "  # a word of no characters still has a place


@dataclass(frozen=True)
class ShadedWords:
    """The words as they can be shown, with a weight and a shade for each."""

    words: tuple[str, ...]
    weights: Float32[np.ndarray, " words"]
    title: str
    top: float  # the weight that gets the darkest shade

    @property
    def shades(self) -> list[float]:
        """The part of the darkest shade that every word gets."""
        return [min(1.0, weight / self.top) for weight in self.weights.tolist()]


def shaded(words: Sequence[str], weights: Any, title: str = "") -> ShadedWords:
    """The words and weights checked, or a `RegardError`."""
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise RegardError(f"words: found {words!r}; give a sequence of texts")
    numbers = np.asarray(weights, dtype=np.float32)
    if numbers.shape != (len(words),):
        raise RegardError(f"words: found {len(words)} words and weights of shape {numbers.shape}; give one for each")
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= 1 + EXCESS)))  # a NaN is wrong as well
    if len(wrong):
        raise RegardError(f"words: the weight of word {wrong[0]} is {numbers[wrong[0]]:g}; weights lie between 0 and 1")
    shown = tuple(harmless(word) or EMPTY for word in words)
    return ShadedWords(shown, numbers, harmless(title), ceiling(numbers))


def shade_words(
    words: Sequence[str], weights: Any, *, title: str = "", width: int | None = None, colour: str = "auto"
) -> str:
    """The text for the terminal: words upon their shades or, without colour, above them.

    Lines fit `width` (that of the terminal, unless given); `colour` is "truecolor", "256",
    "ascii", or "auto": what standard output can show.
    """
    text = shaded(words, weights, title)
    room, colour = known_width(width), known_colour(colour)
    return "\n".join([*broken(text.title, room, TITLE), *shaded_lines(text, room, colour), scale(text.top, colour)])


def shade_steps(
    words: Sequence[str], steps: Iterable[tuple[str, Any]], *, width: int | None = None, colour: str = "auto"
) -> str:
    """The same words under one title after the other, shaded by other weights each time, all on one scale.

    Steps are titles and weights; the rest is as in `shade_words`.
    """
    texts = [shaded(words, weights, title) for title, weights in steps]
    room, colour = known_width(width), known_colour(colour)
    top = max(text.top for text in texts)
    blocks = [[*broken(text.title, room), *shaded_lines(replace(text, top=top), room, colour)] for text in texts]
    return "\n\n".join([*map("\n".join, blocks), scale(top, colour)])


def shaded_lines(text: ShadedWords, room: int, colour: str) -> list[str]:
    """The words and their shades in lines of no more than `room` columns."""
    pairs = [(cut(word, room), shade) for word, shade in zip(text.words, text.shades, strict=True)]
    return [line for pairs in wrapped(pairs, room) for line in shaded_line(pairs, colour)]


def scale(top: float, colour: str) -> str:
    """The shades, and what the darkest stands for."""
    return legend(Grid(0, 1, 0, colour), top, marked=False)


def shaded_line(pairs: Sequence[tuple[str, float]], colour: str) -> list[str]:
    """One line of words and shades: in colour a line of the terminal, without it two."""
    if colour != "ascii":
        return [" ".join(f"{paint(shade, colour)}{isolated(word)}{RESET}" for word, shade in pairs)]
    steps = len(SHADES) - 1
    below = " ".join(SHADES[round(shade * steps)] * display_width(word) for word, shade in pairs)
    return [" ".join(isolated(word) for word, _ in pairs).rstrip(), below.rstrip()]


def wrapped(pairs: Iterable[tuple[str, Number]], room: int) -> list[list[tuple[str, Number]]]:
    """The words, each with its number, in lines of no more than `room` columns with the blanks between."""
    lines: list[list[tuple[str, Number]]] = []
    taken = room
    for word, number in pairs:
        size = display_width(word)
        if taken + 1 + size > room:
            lines.append([])
            taken = -1
        lines[-1].append((word, number))
        taken += 1 + size
    return lines


def words_page(texts: Iterable[tuple[Sequence[str], Any, str]]) -> str:
    """An HTML page, whole in itself, of any number of (words, weights, title)."""
    sections = [section(shaded(words, weights, title)) for words, weights, title in texts]
    return document("Words by their weights", "\n".join(sections), style=static("words.css") + shade_rules())


def section(text: ShadedWords) -> str:
    """One text: its title, its words upon their shades, and the numbers as a table."""
    pairs = [(escape(word), f"{weight:.4g}") for word, weight in zip(text.words, text.weights.tolist(), strict=True)]
    levels = [round(shade * LEVELS) for shade in text.shades]
    words = [
        f'<data class="s{level}" value="{weight}" title="{weight}">{word}</data>'
        for level, (word, weight) in zip(levels, pairs, strict=True)
    ]
    rows = "".join(f'<tr><th scope="row">{word}</th><td>{weight}</td></tr>' for word, weight in pairs)
    numbers = f"<details><summary>Weights (the darkest: {text.top:g})</summary><table>{rows}</table></details>"
    title = [f'<h2 dir="auto">{escape(text.title)}</h2>'] if text.title else []
    return "\n".join(["<section>", *title, f'<p dir="auto">{" ".join(words)}</p>', numbers, "</section>"])


def shade_rules() -> str:
    """The style of every shade, on light pages and on dark ones."""
    light, dark = (
        "".join(shade_rule(level, rgb(level / LEVELS, ramp)) for level in range(LEVELS + 1))
        for ramp in (RAMP, DARK_RAMP)
    )
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def shade_rule(level: int, colour: Colour) -> str:
    """The style of one shade."""
    return f".s{level} {{ background: {hexadecimal(colour)}; color: {hexadecimal(ink(colour))}; }}\n"
