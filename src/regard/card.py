"""The card of a run, run.json: what the run is, with the checksums of its files and one of the card itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard import __version__
from regard.errors import RegardError, format_json
from regard.files import wrap_read_errors
from regard.settings import format_value

FORMAT = 1
CARD_CHECKSUM = "card_sha256"
"""Field with the checksum of all other fields. A card without it, such as one edited by hand, is not verified."""

Card = dict[str, Any]

CARD_FIELDS: tuple[tuple[str, type, str], ...] = (
    ("sha256", dict, "an object"),
    ("best", dict, "an object"),
    ("data", dict, "an object"),
    ("imported", dict, "an object"),
    ("from", str, "a string"),
    ("threads", int, "an integer"),
)
"""Fields of a card that are read without the help of a dataclass, and their types."""


class DamagedCardError(RegardError):
    """A card that is not what was written."""

    advice = ""
    """What to do if there is no copy of the card."""


class ChangedCardError(DamagedCardError):
    """A card whose checksum is not that of its fields."""

    advice = f"; restore it from a backup, or remove {CARD_CHECKSUM} if you edited it"


def format_card(card: Mapping[str, Any]) -> bytes:
    """Format a card as JSON, with its checksum as the last field."""
    content = json.dumps({**card, CARD_CHECKSUM: compute_card_checksum(card)}, indent=2, ensure_ascii=False)
    return content.encode() + b"\n"


def compute_card_checksum(card: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a card as JSON with sorted keys, so that line breaks and order do not matter."""
    fields = json.loads(json.dumps(card))  # as they are read again: all keys are strings
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def read_card(path: Path) -> Card:
    """Read a card without its own checksum.

    Raises:
        DamagedCardError: If it is not valid JSON, or not what was written.
        RegardError: If it cannot be read, was written by a newer version of regard, or has fields of other types.
    """
    card = parse_card(path)
    check_format(card, path)
    for name, kind, description in CARD_FIELDS:
        if name in card and not isinstance(card[name], kind):
            raise RegardError(f"{path}: {name}: expected {description}, got {format_json(card[name])}")
    return card


def parse_card(path: Path) -> Any:
    """Parse a card, and remove its checksum after comparing it."""
    try:
        with wrap_read_errors(path):
            card = json.loads(path.read_bytes().decode())
        json.dumps(card, ensure_ascii=False).encode()  # an unpaired surrogate could not be written again
    except (ValueError, RecursionError) as error:
        raise DamagedCardError(f"{path} is corrupt: {error}") from None
    if isinstance(card, dict) and CARD_CHECKSUM in card:
        checksum = card.pop(CARD_CHECKSUM)
        if checksum != compute_card_checksum(card):
            raise ChangedCardError(f"{path} was damaged or edited: its checksum differs from {CARD_CHECKSUM}")
    return card


def check_format(card: Any, path: Path) -> None:
    """Raise a `RegardError` for a card of a newer format, or for what is no card."""
    file_format = card.get("format") if isinstance(card, dict) else None
    if type(file_format) is not int or file_format < 1:
        raise RegardError(f"{path}: expected format 1 to {FORMAT}, got {format_value(file_format)}")
    if file_format > FORMAT:
        raise RegardError(
            f"{path}: format {file_format} was written by regard {card.get('regard')}; "
            f"regard {__version__} reads formats up to {FORMAT}; upgrade regard"
        )


def is_intact_card(path: Path) -> bool:
    """Return whether a card exists and is what was written."""
    try:
        return path.is_file() and isinstance(parse_card(path), dict)
    except RegardError:
        return False
