"""Text with words shaded by their weights, in the terminal and as an HTML page.

    print(shade_words(("a", "dull", "film"), (0.1, 0.7, 0.2), title="negative"))
    build_words_page([(words, weights, title), ...])

Use it for attention without rows, such as that of a classifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32

from regard.errors import RegardError
from regard.views.display import display_width, isolate_direction, sanitize_text, truncate, wrap_text
from regard.views.document import build_document, read_static
from regard.views.shades import DARK_RAMP, RAMP, Color, ceiling, choose_text_color, shade_to_rgb, to_hex
from regard.views.terminal import (
    RESET,
    SHADES,
    TITLE,
    Grid,
    format_legend,
    get_color_code,
    resolve_color,
    resolve_width,
)
from regard.views.weights import EXCESS

Number = TypeVar("Number", int, float)

LEVELS = 20  # shades of a page, not counting zero
EMPTY = " "  # shown for an empty word


@dataclass(frozen=True)
class ShadedWords:
    """Sanitized words with their weights and shades."""

    words: tuple[str, ...]
    weights: Float32[np.ndarray, " words"]
    title: str
    top: float  # weight of the darkest shade

    @property
    def shades(self) -> list[float]:
        """Shade of every word, from 0 to 1."""
        return [min(1.0, weight / self.top) for weight in self.weights.tolist()]


def build_shaded_words(words: Sequence[str], weights: Any, title: str = "") -> ShadedWords:
    """Validate words and weights, or raise `RegardError`."""
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise RegardError(f"words: expected a sequence of strings, got {words!r}")
    values = np.asarray(weights, dtype=np.float32)
    if values.shape != (len(words),):
        raise RegardError(f"words: expected {len(words)} weights, got shape {values.shape}")
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1 + EXCESS)))  # catches NaN as well
    if len(wrong):
        raise RegardError(f"words: weight {wrong[0]} must be between 0 and 1, got {values[wrong[0]]:g}")
    sanitized = tuple(sanitize_text(word) or EMPTY for word in words)
    return ShadedWords(sanitized, values, sanitize_text(title), ceiling(values))


def shade_words(
    words: Sequence[str], weights: Any, *, title: str = "", width: int | None = None, color: str = "auto"
) -> str:
    """Return a text for the terminal with words on shaded backgrounds or, without color, above their shades.

    Args:
        words: The words.
        weights: A weight between 0 and 1 for each word.
        title: Title above the text.
        width: Maximum width in columns (default: that of the terminal).
        color: "truecolor", "256", "ascii", or "auto" for what standard output supports.

    Raises:
        RegardError: An argument is invalid.

    Example:
        >>> print(shade_words(("a", "dull", "film"), (0.1, 0.7, 0.2), width=30, color="ascii"))
        a dull film
        . **** ::::
        0  .:-=+*#%@ 1
    """
    text = build_shaded_words(words, weights, title)
    max_width, color = resolve_width(width), resolve_color(color)
    return "\n".join(
        [
            *wrap_text(text.title, max_width, TITLE),
            *format_shaded_lines(text, max_width, color),
            format_scale(text.top, color),
        ]
    )


def shade_steps(
    words: Sequence[str], steps: Iterable[tuple[str, Any]], *, width: int | None = None, color: str = "auto"
) -> str:
    """Return the same words once per step, each with its own title and weights, all on one scale.

    `steps` are (title, weights) pairs; for the rest, see `shade_words`.
    """
    texts = [build_shaded_words(words, weights, title) for title, weights in steps]
    max_width, color = resolve_width(width), resolve_color(color)
    top = max(text.top for text in texts)
    blocks = [
        [*wrap_text(text.title, max_width), *format_shaded_lines(replace(text, top=top), max_width, color)]
        for text in texts
    ]
    return "\n\n".join([*map("\n".join, blocks), format_scale(top, color)])


def format_shaded_lines(text: ShadedWords, max_width: int, color: str) -> list[str]:
    """Return the shaded words in lines of at most `max_width` columns."""
    pairs = [(truncate(word, max_width), shade) for word, shade in zip(text.words, text.shades, strict=True)]
    return [line for pairs in wrap_words(pairs, max_width) for line in format_shaded_line(pairs, color)]


def format_scale(top: float, color: str) -> str:
    """Return the color scale with its maximum."""
    return format_legend(Grid(0, 1, 0, color), top, marked=False)


def format_shaded_line(pairs: Sequence[tuple[str, float]], color: str) -> list[str]:
    """Return one line of shaded words: a terminal line in color, two without."""
    if color != "ascii":
        return [" ".join(f"{get_color_code(shade, color)}{isolate_direction(word)}{RESET}" for word, shade in pairs)]
    steps = len(SHADES) - 1
    below = " ".join(SHADES[round(shade * steps)] * display_width(word) for word, shade in pairs)
    return [" ".join(isolate_direction(word) for word, _ in pairs).rstrip(), below.rstrip()]


def wrap_words(pairs: Iterable[tuple[str, Number]], max_width: int) -> list[list[tuple[str, Number]]]:
    """Split (word, value) pairs into lines of at most `max_width` columns, separated by spaces."""
    lines: list[list[tuple[str, Number]]] = []
    used_width = max_width
    for word, value in pairs:
        size = display_width(word)
        if used_width + 1 + size > max_width:
            lines.append([])
            used_width = -1
        lines[-1].append((word, value))
        used_width += 1 + size
    return lines


def build_words_page(texts: Iterable[tuple[Sequence[str], Any, str]]) -> str:
    """Build a self-contained HTML page from (words, weights, title) tuples."""
    sections = [format_section(build_shaded_words(words, weights, title)) for words, weights, title in texts]
    return build_document("Word weights", "\n".join(sections), style=read_static("words.css") + build_shade_css())


def format_section(text: ShadedWords) -> str:
    """Return the HTML of one text: title, shaded words, and a table of the weights."""
    pairs = [(escape(word), f"{weight:.4g}") for word, weight in zip(text.words, text.weights.tolist(), strict=True)]
    levels = [round(shade * LEVELS) for shade in text.shades]
    words = [
        f'<data class="s{level}" value="{weight}" title="{weight}">{word}</data>'
        for level, (word, weight) in zip(levels, pairs, strict=True)
    ]
    rows = "".join(f'<tr><th scope="row">{word}</th><td>{weight}</td></tr>' for word, weight in pairs)
    details = f"<details><summary>Weights (darkest: {text.top:g})</summary><table>{rows}</table></details>"
    title = [f'<h2 dir="auto">{escape(text.title)}</h2>'] if text.title else []
    return "\n".join(["<section>", *title, f'<p dir="auto">{" ".join(words)}</p>', details, "</section>"])


def build_shade_css() -> str:
    """Return the CSS of all shades, for light and dark mode."""
    light, dark = (
        "".join(format_shade_rule(level, shade_to_rgb(level / LEVELS, ramp)) for level in range(LEVELS + 1))
        for ramp in (RAMP, DARK_RAMP)
    )
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def format_shade_rule(level: int, color: Color) -> str:
    """Return the CSS rule of one shade."""
    return f".s{level} {{ background: {to_hex(color)}; color: {to_hex(choose_text_color(color))}; }}\n"
