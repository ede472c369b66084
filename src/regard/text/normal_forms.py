"""Unicode normal forms: compose and decompose characters, and find the characters that were taken apart."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

NormalForm = Literal["none", "nfc", "nfd", "nfkc", "nfkd"]

COMPOSED: dict[NormalForm, Literal["NFC", "NFKC"]] = {"nfc": "NFC", "nfd": "NFC", "nfkc": "NFKC", "nfkd": "NFKC"}
APPLIED: dict[NormalForm, Literal["NFC", "NFD", "NFKC", "NFKD"]] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
}


def apply_form(text: str, form: NormalForm) -> str:
    """Return a text in a normal form."""
    return text if form == "none" else unicodedata.normalize(APPLIED[form], text)


def compose(text: str, form: NormalForm) -> str:
    """Return a text as people read it: composed, with the compatibility characters of `nfkc` and `nfkd` replaced."""
    return text if form == "none" else unicodedata.normalize(COMPOSED[form], text)


def is_decomposed(form: NormalForm) -> bool:
    """Return whether a normal form takes characters apart."""
    return form in ("nfd", "nfkd")


def count_parts(tokens: Sequence[str]) -> list[int]:
    """Return how many tokens each composed character consists of, for tokens that are decomposed characters.

    The counts sum to the number of tokens, and the composed characters, one after the other, are the composed text. A
    letter takes all its marks, also those that do not compose with it.
    """
    counts: list[int] = []
    character = ""
    for token in tokens:
        if character and joins(character, token):
            counts[-1] += 1
            character += token
        else:
            counts.append(1)
            character = token
    return counts


def joins(character: str, part: str) -> bool:
    """Return whether a part belongs to the character before it: a mark, or a letter that composes with it."""
    if len(part) == 1 and unicodedata.combining(part):
        return True
    return unicodedata.normalize("NFC", character + part) != unicodedata.normalize("NFC", character) + part
