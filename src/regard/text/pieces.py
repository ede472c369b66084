"""Pieces: the bytes of text that a token stands for, how they are shown, and the words they belong to."""

from __future__ import annotations

from collections.abc import Sequence

WHITESPACE = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Where `str.split` parts words, as the inside of a regular expression's brackets."""

SPACE = "▁"
"""How a space is shown."""


def byte_characters() -> list[str]:
    """The printable character by which Hugging Face's `ByteLevel` writes each of the 256 bytes.

    A printable Latin-1 character stands for itself; the other bytes take the characters from U+0100 on, in order.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in itself else next(others)) for byte in range(256)]


def shown(piece: bytes) -> str:
    r"""A piece as a reader can see it.

    Half a character, and what has no looks of its own, is written as Python would (`\xe2`, `\n`), a space as "▁".
    """
    text = piece.decode("utf-8", "backslashreplace").replace(" ", SPACE)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def words_of_pieces(pieces: Sequence[bytes]) -> list[int | None]:
    """The place of the word each piece belongs to, among the words of `str.split` in all pieces joined.

    None for a piece without a letter of any word. A piece that reaches over two words belongs to the first.
    """
    places = words_of_bytes(b"".join(pieces))
    words, start = [], 0
    for piece in pieces:
        inside = places[start : start + len(piece)]
        words.append(next((place for place in inside if place is not None), None))
        start += len(piece)
    return words


def words_of_bytes(text: bytes) -> list[int | None]:
    """The place of the word each byte of a text belongs to; None for those of whitespace."""
    places: list[int | None] = []
    word, between = -1, True
    for character in text.decode("utf-8", "surrogateescape"):  # a byte that is no text is a character of its own
        width = len(character.encode("utf-8", "surrogateescape"))
        space = character.isspace()
        word += between and not space
        between = space
        places.extend([None if space else word] * width)
    return places
