"""Choose the Unicode normal form of each side of a corpus by the evidence in its texts."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from regard.text.normal_forms import NormalForm
from regard.text.tokenizer import Kind

MIN_UNSEEN_SHARE = 0.005  # share of the characters of new text that would be unknown, from which to take them apart
MIN_SYLLABLE_SHARE = 0.5  # share of syllables among the characters of a side that is written in them
MIN_SYMBOLS = 1.5  # symbols that the other side writes per character if it spells sounds
MIN_COMMON = 0.8  # share of characters in common from which both sides are written in the same script

INVISIBLE = "\u00ad\u200b\u2060\ufeff"
"""Characters that nobody sees and that change no word: soft hyphen, zero-width space, word joiner, byte order mark."""


class FormChoice(NamedTuple):
    """A normal form and the reasons for choosing it; none if it changes nothing."""

    form: NormalForm
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideCharacters:
    """The characters of one side of a corpus."""

    name: Literal["source", "target"]
    texts: Sequence[str]
    kind: Kind

    @property
    def option(self) -> str:
        """The option that sets the normal form of this side."""
        return f"--{self.name}-normal-form"

    @cached_property
    def is_ascii(self) -> bool:
        """Whether no normal form changes any text."""
        return all(map(str.isascii, self.texts))

    @cached_property
    def counts(self) -> Counter[str]:
        """Count of each composed character, without whitespace."""
        counts = Counter[str]()
        for text in self.texts:
            counts.update(unicodedata.normalize("NFC", text))
        return Counter({character: count for character, count in counts.items() if not character.isspace()})

    @cached_property
    def part_counts(self) -> Counter[str]:
        """Count of each decomposed character."""
        parts = Counter[str]()
        for character, count in self.counts.items():
            for part in unicodedata.normalize("NFD", character):
                parts[part] += count
        return parts

    @property
    def taken_apart(self) -> list[str]:
        """The distinct characters that consist of several parts."""
        return [character for character in self.counts if len(unicodedata.normalize("NFD", character)) > 1]

    @property
    def seen_once(self) -> int:
        """Number of characters that occur once, but consist of parts that occur more often."""
        parts = self.part_counts
        return sum(
            self.counts[character] == 1 and all(parts[part] > 1 for part in unicodedata.normalize("NFD", character))
            for character in self.taken_apart
        )

    @property
    def unseen_share(self) -> float:
        """Estimated share of unknown characters of new text whose parts are known (Good 1953): those seen once."""
        return self.seen_once / max(self.counts.total(), 1)

    @property
    def syllable_share(self) -> float:
        """Share of characters that consist of several letters, such as Hangul syllables."""
        return sum(self.counts[c] for c in self.taken_apart if is_syllable(c)) / max(self.counts.total(), 1)

    @property
    def symbols(self) -> int:
        """Number of symbols: characters, or words; 0 for tokens that are parts of words."""
        if self.kind == "characters":
            return self.counts.total()
        return sum(len(text.split()) for text in self.texts) if self.kind == "words" else 0


def is_syllable(character: str) -> bool:
    """Return whether a character consists of several letters, not of a letter and marks."""
    parts = unicodedata.normalize("NFD", character)
    return len(parts) > 1 and all(unicodedata.category(part) == "Lo" for part in parts)


def choose_forms(source: SideCharacters, target: SideCharacters) -> tuple[FormChoice, FormChoice]:
    """Choose the normal form of each side.

    A side is composed (`nfc`), unless its tokens are characters and taking them apart (`nfd`) pays: if it is written
    in syllables and the other side spells sounds, or if so many characters occur only once that new text would
    contain unknown ones. If both sides are written in the same script, both are taken apart if one is.
    """
    choices = choose_form(source, target), choose_form(target, source)
    forms = {choice.form for choice in choices}
    if "nfd" not in forms or len(forms) == 1 or not share_script(source, target):
        return choices
    first, second = (
        choice if choice.form == "nfd" else FormChoice("nfd", (f"{side.name}: nfd: as the other side ({side.option})",))
        for side, choice in zip((source, target), choices, strict=True)
    )
    return first, second


def choose_form(side: SideCharacters, other: SideCharacters) -> FormChoice:
    """Choose the normal form of one side."""
    if side.is_ascii:
        return FormChoice("nfc")
    notes = tuple(iter_notes(side))
    reason = explain_decomposition(side, other)
    if reason is not None:
        parts = (
            f"{side.name}: nfd: {reason}, so {len(side.taken_apart)} characters are taken apart: "
            f"{len(side.part_counts)} instead of {len(side.counts)} distinct ones ({side.option} nfc keeps them whole)"
        )
        return FormChoice("nfd", (parts, *notes))
    decomposed = sum(not unicodedata.is_normalized("NFC", text) for text in side.texts)
    if decomposed:
        changed = f"{side.name}: nfc: {decomposed:,} texts are not composed ({side.option} none keeps them)"
        return FormChoice("nfc", (changed, *notes))
    return FormChoice("nfc", notes)


def explain_decomposition(side: SideCharacters, other: SideCharacters) -> str | None:
    """Return why the characters of a side should be taken apart, or None if they should not."""
    if side.kind != "characters":
        return None
    symbols = other.symbols / max(side.counts.total(), 1)
    if other.syllable_share < MIN_SYLLABLE_SHARE <= side.syllable_share and symbols >= MIN_SYMBOLS:
        return f"the {other.name} has {symbols:.1f} symbols per syllable"
    if side.unseen_share >= MIN_UNSEEN_SHARE:
        return (
            f"characters seen only once: {side.seen_once}; about {100 * side.unseen_share:.1f} % of new text would be "
            "unknown"
        )
    return None


def share_script(source: SideCharacters, target: SideCharacters) -> bool:
    """Return whether both sides are characters of the same script."""
    if source.kind != "characters" or target.kind != "characters":
        return False
    return all(
        sum(count for character, count in one.counts.items() if character in other.counts)
        >= MIN_COMMON * one.counts.total()
        for one, other in ((source, target), (target, source))
    )


def iter_notes(side: SideCharacters) -> Iterator[str]:
    """Yield notes about characters that look like others, or like nothing."""
    wide = sum(any("\uff01" <= character <= "\uff5e" for character in text) for text in side.texts)
    if wide and any("!" <= character <= "~" for text in side.texts for character in text):
        yield f"{side.name}: {wide:,} texts have full-width letters or digits; {side.option} nfkc makes them ordinary"
    hidden = Counter(character for text in side.texts for character in text if character in INVISIBLE)
    if hidden:
        names = ", ".join(f"U+{ord(character):04X}" for character in sorted(hidden))
        yield f"{side.name}: note: {hidden.total():,} invisible characters ({names}) count as characters of their words"
