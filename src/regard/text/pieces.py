"""Pieces: the bytes of a token, how they are displayed, and the words they belong to."""

from __future__ import annotations

from collections.abc import Sequence

WHITESPACE = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The whitespace of `str.split`, for use inside the brackets of a regular expression."""

SPACE = "▁"
"""Displayed form of a space."""


def list_byte_characters() -> list[str]:
    """Return the printable character that Hugging Face's `ByteLevel` uses for each of the 256 bytes.

    A printable Latin-1 character represents itself; the other bytes use the characters from U+0100 on, in order.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in itself else next(others)) for byte in range(256)]


def format_piece(piece: bytes) -> str:
    r"""Format a piece for display.

    Incomplete and unprintable characters are escaped as in Python (`\xe2`, `\n`); a space becomes "▁".
    """
    text = piece.decode("utf-8", "backslashreplace").replace(" ", SPACE)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def map_pieces_to_words(pieces: Sequence[bytes]) -> list[int | None]:
    """Return the index of the word of each piece, among the words of the joined pieces split at whitespace.

    None for a piece of whitespace only. A piece that spans two words belongs to the first.
    """
    byte_words = map_bytes_to_words(b"".join(pieces))
    words, start = [], 0
    for piece in pieces:
        inside = byte_words[start : start + len(piece)]
        words.append(next((word for word in inside if word is not None), None))
        start += len(piece)
    return words


def map_bytes_to_words(text: bytes) -> list[int | None]:
    """Return the index of the word of each byte; None for whitespace."""
    byte_words: list[int | None] = []
    word, between = -1, True
    for character in text.decode("utf-8", "surrogateescape"):  # an invalid byte counts as a character
        width = len(character.encode("utf-8", "surrogateescape"))
        space = character.isspace()
        word += between and not space
        between = space
        byte_words.extend([None if space else word] * width)
    return byte_words
