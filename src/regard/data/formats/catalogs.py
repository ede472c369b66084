"""Catalogues of gettext, as text (PO) and as a program reads them (MO): msgid -> msgstr.

The header, fuzzy, obsolete and untranslated entries are left out. Of a text with plural
forms, msgid goes with the form that the header's rule gives for one, msgid_plural with
each of the others; a language with a single form has it for both.
"""

from __future__ import annotations

import gettext
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from regard.data.formats.lines import Found, Path, decoded, opened, quoted, raw_lines, shown
from regard.data.formats.tables import Columns
from regard.errors import RegardError

STATEMENT = re.compile(rb'(?:(msgctxt|msgid_plural|msgid|msgstr|msgstr\[\d\])\s*)?"(.*)"')
ESCAPE = re.compile(r'\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.?))|"', re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
"""The first four bytes of an MO file -> its byte order."""


@dataclass
class Entry:
    """The statements of an entry: the strings of each with their lines, as bytes until the charset is known."""

    fuzzy: bool = False
    statements: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    last: str = ""  # the statement that a string on a line of its own continues

    @property
    def line(self) -> int:
        """Where it begins."""
        return next(iter(self.statements.values()))[0][0]


@dataclass(frozen=True)
class Header:
    """What a catalogue says of itself."""

    charset: str = "UTF-8"
    one: int = 0  # the number of the plural form for one


def read_po(path: Path, columns: Columns | None) -> Iterator[Found]:
    """The translated entries of a PO file."""
    name, header, backwards = shown(path), Header(), is_backwards(shown(path), columns)
    for entry in entries(path):
        where, strings = f"{name}, line {entry.line}", entry.statements
        if "msgid" not in strings or not {"msgstr", "msgstr[0]"} & set(strings):
            raise RegardError(f"{where}: the entry has {', '.join(strings)}; msgid and msgstr are needed")
        raw = {key: b"".join(string for _, string in parts) for key, parts in strings.items()}
        if not raw["msgid"] and "msgctxt" not in raw:
            header = read_header(where, raw.get("msgstr", b"").replace(rb"\n", b"\n"))
        elif not entry.fuzzy:
            texts = {key: po_text(name, parts, header.charset) for key, parts in strings.items()}
            forms = [text for key, text in sorted(texts.items()) if key.startswith("msgstr")]
            for source, target in translations(texts["msgid"], texts.get("msgid_plural"), forms, header.one):
                yield Found(entry.line, *((target, source) if backwards else (source, target)))


def entries(path: Path) -> Iterator[Entry]:
    """The entries of a PO file, in use or fuzzy."""
    entry = Entry()
    with opened(path) as file:
        for number, raw in raw_lines(file, shown(path)):
            line = raw.strip()
            if entry.last.startswith("msgstr") and line.startswith((b"#", b"msgctxt", b"msgid ", b'msgid"')):
                yield entry
                entry = Entry()
            if line.startswith(b"#~"):
                entry = Entry() if not entry.statements else entry  # flags above were those of an obsolete entry
            elif line.startswith(b"#"):
                entry.fuzzy |= line.startswith((b"#,", b"#=")) and b"fuzzy" in re.split(rb"[\s,]+", line[2:])
            elif line:
                add_statement(f"{shown(path)}, line {number}", entry, number, line)
    if entry.statements:
        yield entry


def add_statement(where: str, entry: Entry, number: int, line: bytes) -> None:
    """Put a line of a PO file into its entry."""
    match = STATEMENT.fullmatch(line)
    key = (match[1] or b"").decode() if match else ""
    if not match or not (key or entry.last):
        raise RegardError(
            f'{where}: found {quoted(line.decode("ascii", "replace"))}; a PO file has lines such as msgid "…"'
        )
    if key in entry.statements:
        raise RegardError(f"{where}: {key} comes twice; each entry has it once, and then msgstr")
    entry.last = key or entry.last
    entry.statements.setdefault(entry.last, []).append((number, match[2]))


def po_text(name: str, parts: list[tuple[int, bytes]], charset: str) -> str:
    """The strings of a statement as one text."""
    return "".join(
        unescaped(f"{name}, line {number}", decoded(raw, f"{name}, line {number}", charset)) for number, raw in parts
    )


def unescaped(where: str, text: str) -> str:
    r"""A string of a PO file with what \n, \", \t and their like stand for."""

    def letter(match: re.Match[str]) -> str:
        hexadecimal, octal, plain = match.groups()
        number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else 128
        if number >= 128 and plain not in LETTERS:
            raise RegardError(f'{where}: found {match[0]} in a string; a quote is written \\", a backslash \\\\')
        return chr(number) if number < 128 else LETTERS[plain]

    return ESCAPE.sub(letter, text)


def read_mo(path: Path, columns: Columns | None) -> Iterator[Found]:
    """The entries of an MO file, which msgfmt has left the untranslated and the fuzzy out of."""
    name, header, backwards = shown(path), Header(), is_backwards(shown(path), columns)
    for number, (key, found) in enumerate(mo_strings(path), 1):
        where = f"{name}, entry {number}"
        if not key:
            header = read_header(where, found)
            continue
        ids = [decoded(part, where, header.charset) for part in key.split(b"\4")[-1].split(b"\0")]
        forms = [decoded(part, where, header.charset) for part in found.split(b"\0")]
        for source, target in translations(ids[0], ids[1] if len(ids) > 1 else None, forms, header.one):
            yield Found(number, *((target, source) if backwards else (source, target)))


def mo_strings(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Key and translation of every entry of an MO file."""
    with opened(path) as file:
        data = file.read()
    order = ORDERS.get(data[:4])
    if order is None:
        raise RegardError(f"{shown(path)}: begins with 0x{data[:4].hex()}; an MO file begins with 0xde120495")
    try:
        _, count, *tables = struct.unpack_from(f"{order}4I", data, 4)
        for place in range(count):
            key, found = (slice_of(data, *struct.unpack_from(f"{order}2I", data, at + 8 * place)) for at in tables)
            yield key, found
    except struct.error:
        raise RegardError(
            f"{shown(path)}: its tables go beyond its end, {len(data)} bytes; make or fetch it again"
        ) from None


def slice_of(data: bytes, length: int, start: int) -> bytes:
    """A string of an MO file; one that goes beyond the end is no string, as for `struct`."""
    if start + length > len(data):
        raise struct.error
    return data[start : start + length]


def translations(msgid: str, plural: str | None, forms: list[str], one: int) -> Iterator[tuple[str, str]]:
    """Which texts translate each other."""
    for number, text in enumerate(forms):
        if text and (plural is None or number == one or len(forms) == 1):
            yield msgid, text
        if text and plural is not None and (number != one or len(forms) == 1):
            yield plural, text


def read_header(where: str, raw: bytes) -> Header:
    """Charset and plural rule, where they are given."""
    header = Header()
    charset = re.search(rb"charset=([\w.:-]+)", raw)
    if charset and charset[1] != b"CHARSET":  # the template's own word for a choice to be made
        header = replace(header, charset=charset[1].decode())
        try:
            b"a".decode(header.charset)
        except (LookupError, UnicodeError):
            raise RegardError(f'{where}: the header names the charset "{header.charset}"; UTF-8 is usual') from None
    rule = re.search(rb"plural=([^;\n]+)", raw)
    if rule and rule[1].strip() != b"EXPRESSION":
        try:
            header = replace(header, one=gettext.c2py(rule[1].decode("ascii"))(1))
        except (ValueError, ZeroDivisionError):
            raise RegardError(
                f"{where}: the header's plural rule is {quoted(rule[1].decode('ascii', 'replace'))}; (n != 1) is usual"
            ) from None
    return header


def is_backwards(name: str, columns: Columns | None) -> bool:
    """Whether the translation is the source, and what was written first the target."""
    if columns not in (None, ("msgid", "msgstr"), ("msgstr", "msgid")):
        raise RegardError(f"{name}: columns are {columns[0]}, {columns[1]}; a catalogue has msgid and msgstr")
    return columns == ("msgstr", "msgid")
