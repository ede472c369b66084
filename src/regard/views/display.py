"""Tokens as they can be shown: harmless, of known width, and in their own direction.

A token may hold anything: an escape sequence, half an emoji, a lone accent. What is
drawn in a grid must neither steer the terminal nor push its neighbours aside.
"""

from __future__ import annotations

import unicodedata

REPLACEMENT, ELLIPSIS, SPACE, CIRCLE = "\N{REPLACEMENT CHARACTER}", "…", "\N{OPEN BOX}", "\N{DOTTED CIRCLE}"
ISOLATE, END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"

PICTURES: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20)}
PICTURES[0x7F] = 0x2421
PICTURES |= {0x1F1E6 + letter: ord("A") + letter for letter in range(26)}  # a flag becomes its country's letters
PICTURES |= dict.fromkeys((0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400)))  # joiners, emoji styles

STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories that draw nothing themselves, but change what is drawn
JOINING = ("Mn", "Me", "Mc")  # categories of what is drawn on the character before


def harmless(token: str) -> str:
    """The token with everything that steers the display replaced by a visible sign.

    Control characters become their pictures (␛, ␊), blanks alone ␣, a mark with nothing
    beneath it stands on ◌.
    """
    text = unicodedata.normalize("NFC", token).translate(PICTURES)
    text = "".join(REPLACEMENT if unicodedata.category(char) in STEERING else char for char in text)
    if text.isspace():
        return SPACE * len(text)
    return CIRCLE + text if text and joins(text[0]) else text


def joins(char: str) -> bool:
    """Whether a character belongs to the one before."""
    return unicodedata.category(char) in JOINING or char_width(char) == 0


def char_width(char: str) -> int:
    """How many columns of a terminal a character takes: 0, 1 or 2."""
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or "\u1160" <= char <= "\u11ff":  # the last: inside a hangul
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(map(char_width, text))


def clusters(text: str) -> list[str]:
    """The text taken apart into characters, each with the marks upon it."""
    found: list[str] = []
    for char in text:
        if found and joins(char):
            found[-1] += char
        else:
            found.append(char)
    return found


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and … where it takes more than `limit` columns."""
    if display_width(text) <= limit:
        return text
    kept = ""
    for cluster in clusters(text):
        if display_width(kept + cluster) > limit - 1:
            break
        kept += cluster
    return kept + ELLIPSIS


def broken(text: str, limit: int, most: int | None = None) -> list[str]:
    """The text in lines of no more than `limit` columns, broken at blanks; what goes beyond `most` lines is cut."""
    lines: list[str] = []
    words = text.split(" ") if text else []
    for place, word in enumerate(words):
        if lines and display_width(f"{lines[-1]} {word}") <= limit:
            lines[-1] += f" {word}"
        elif most is None or len(lines) < most:
            lines.append(word)
        else:
            lines[-1] = " ".join([lines[-1], *words[place:]])
            break
    return [cut(line, limit) for line in lines]


def isolated(text: str) -> str:
    """The text, kept from turning its neighbours around where it runs from right to left."""
    turned = any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)
    return f"{ISOLATE}{text}{END}" if turned else text


def left_padded(text: str, width: int) -> str:
    """The text at the right end of `width` columns."""
    return " " * (width - display_width(text)) + isolated(text)


def centred(text: str, width: int) -> str:
    """The text in the middle of `width` columns."""
    spare = width - display_width(text)
    return " " * (spare // 2) + isolated(text) + " " * (spare - spare // 2)
