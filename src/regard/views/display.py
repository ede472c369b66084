"""Prepare tokens for display: sanitize, measure, wrap and align them.

A token can contain anything: an escape sequence, half an emoji, a lone accent. Text in a
grid must neither control the terminal nor shift its neighbors.
"""

from __future__ import annotations

import unicodedata

REPLACEMENT, ELLIPSIS, SPACE, CIRCLE = "\N{REPLACEMENT CHARACTER}", "…", "\N{OPEN BOX}", "\N{DOTTED CIRCLE}"
ISOLATE, END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"

PICTURES: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20)}
PICTURES[0x7F] = 0x2421
PICTURES |= {0x1F1E6 + letter: ord("A") + letter for letter in range(26)}  # a flag becomes its country code
PICTURES |= dict.fromkeys((0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400)))  # joiners, emoji styles

JAMO = {  # parts of Hangul syllables, which combine with their neighbors -> letters that stand alone
    code: unicodedata.lookup("HANGUL LETTER " + unicodedata.name(chr(code)).split(" ", 2)[2])
    for code in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
}

STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of invisible control characters
JOINING = ("Mn", "Me", "Mc")  # categories of combining marks


def sanitize_text(token: str) -> str:
    """Replace control characters by visible symbols.

    Control characters become control pictures (␛, ␊), a token of spaces becomes ␣, a part of
    a Hangul syllable becomes a letter (ㄱ), and a combining mark without a base is placed on ◌.
    """
    text = unicodedata.normalize("NFC", token).translate(PICTURES).translate(JAMO)
    text = "".join(REPLACEMENT if unicodedata.category(char) in STEERING else char for char in text)
    if text.isspace():
        return SPACE * len(text)
    return CIRCLE + text if text and is_combining(text[0]) else text


def is_combining(char: str) -> bool:
    """Return whether a character combines with the one before it."""
    return unicodedata.category(char) in JOINING or char_width(char) == 0


def char_width(char: str) -> int:
    """Return the width of a character in terminal columns: 0, 1 or 2."""
    if (
        unicodedata.category(char) in ("Mn", "Me", "Cf") or "\u1160" <= char <= "\u11ff"
    ):  # the range: vowels and finals of a Hangul syllable
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def display_width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return sum(map(char_width, text))


def split_graphemes(text: str) -> list[str]:
    """Split a text into characters with their combining marks."""
    graphemes: list[str] = []
    for char in text:
        if graphemes and is_combining(char):
            graphemes[-1] += char
        else:
            graphemes.append(char)
    return graphemes


def truncate(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` columns, ending with … if it was cut."""
    if display_width(text) <= limit:
        return text
    prefix = ""
    for grapheme in split_graphemes(text):
        if display_width(prefix + grapheme) > limit - 1:
            break
        prefix += grapheme
    return prefix + ELLIPSIS


def wrap_text(text: str, limit: int, max_lines: int | None = None) -> list[str]:
    """Wrap a text at spaces into at most `max_lines` lines of at most `limit` columns, cutting the rest."""
    lines: list[str] = []
    words = text.split(" ") if text else []
    for index, word in enumerate(words):
        if lines and display_width(f"{lines[-1]} {word}") <= limit:
            lines[-1] += f" {word}"
        elif max_lines is None or len(lines) < max_lines:
            lines.append(word)
        else:
            lines[-1] = " ".join([lines[-1], *words[index:]])
            break
    return [truncate(line, limit) for line in lines]


def isolate_direction(text: str) -> str:
    """Isolate right-to-left text, so that it does not reorder its neighbors."""
    right_to_left = any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)
    return f"{ISOLATE}{text}{END}" if right_to_left else text


def align_right(text: str, width: int) -> str:
    """Right-align a text in `width` columns."""
    return " " * (width - display_width(text)) + isolate_direction(text)


def align_center(text: str, width: int) -> str:
    """Center a text in `width` columns."""
    spare = width - display_width(text)
    return " " * (spare // 2) + isolate_direction(text) + " " * (spare - spare // 2)
