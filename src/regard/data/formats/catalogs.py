"""Read gettext catalogs, as text (PO) or compiled (MO): msgid -> msgstr.

The header and fuzzy, obsolete and untranslated entries are skipped. With plural forms, msgid
is paired with the form for n = 1 according to the header's rule, and msgid_plural with each
of the other forms. If a language has a single form, both are paired with it.
"""

from __future__ import annotations

import codecs
import gettext
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from gzip import GzipFile
from io import SEEK_END, BufferedIOBase, BytesIO

from regard.data.formats.lines import (
    MAX_LINE_BYTES,
    NumberedPair,
    Path,
    decode_bytes,
    format_path,
    iter_raw_lines,
    open_input,
    quote_text,
)
from regard.data.formats.tables import Columns
from regard.errors import RegardError

STATEMENT = re.compile(rb'(?:(msgctxt|msgid_plural|msgid|msgstr|msgstr\[\d\])\s*)?"(.*)"')
ESCAPE = re.compile(r'\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.?))|"', re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
"""Byte order of an MO file by its first four bytes."""

MAX_UNZIPPED_BYTES = 2**28
"""Maximum size of an MO file that is read as a whole, because it is gzipped or comes from a pipe."""

NOT_CHARSETS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "utf-7")
"""Encodings of Python that catalogs do not use: slow for long texts, or with results that are not text."""


@dataclass
class Entry:
    """The statements of an entry: strings with their line numbers, as bytes until the charset is known."""

    fuzzy: bool = False
    statements: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    last: str = ""  # the statement that a string on the next line continues
    size: int = 0  # bytes of all strings

    @property
    def line(self) -> int:
        """Line number of the first statement."""
        return next(iter(self.statements.values()))[0][0]


@dataclass(frozen=True)
class Header:
    """Settings from the header of a catalog."""

    charset: str = "UTF-8"
    one: int = 0  # index of the plural form for n = 1


def read_po(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the translated entries of a PO file."""
    name, header, is_swapped = format_path(path), Header(), is_reversed(format_path(path), columns)
    for entry in iter_entries(path):
        location, strings = f"{name}, line {entry.line}", entry.statements
        if "msgid" not in strings or not {"msgstr", "msgstr[0]"} & set(strings):
            raise RegardError(f"{location}: expected msgid and msgstr in the entry, got {', '.join(strings)}")
        raw = {key: b"".join(string for _, string in parts) for key, parts in strings.items()}
        if not raw["msgid"] and "msgctxt" not in raw:
            header = parse_header(location, raw.get("msgstr", b"").replace(rb"\n", b"\n"))
        elif not entry.fuzzy:
            texts = {key: join_strings(name, parts, header.charset) for key, parts in strings.items()}
            forms = [text for key, text in sorted(texts.items()) if key.startswith("msgstr")]
            for source, target in iter_translations(texts["msgid"], texts.get("msgid_plural"), forms, header.one):
                yield NumberedPair(entry.line, *((target, source) if is_swapped else (source, target)))


def iter_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a PO file, except obsolete ones."""
    entry = Entry()
    with open_input(path) as file:
        for number, raw in iter_raw_lines(file, format_path(path)):
            line = raw.strip()
            if entry.last.startswith("msgstr") and line.startswith((b"#", b"msgctxt", b"msgid ", b'msgid"')):
                yield entry
                entry = Entry()
            if line.startswith(b"#~"):
                entry = Entry() if not entry.statements else entry  # the flags belonged to an obsolete entry
            elif line.startswith(b"#"):
                entry.fuzzy |= line.startswith((b"#,", b"#=")) and b"fuzzy" in re.split(rb"[\s,]+", line[2:])
            elif line:
                add_statement(f"{format_path(path)}, line {number}", entry, number, line)
    if entry.statements:
        yield entry


def add_statement(location: str, entry: Entry, number: int, line: bytes) -> None:
    """Add a line of a PO file to its entry."""
    match = STATEMENT.fullmatch(line)
    key = (match[1] or b"").decode() if match else ""
    if not match or not (key or entry.last):
        raise RegardError(
            f'{location}: expected a line such as msgid "…", got {quote_text(line.decode("ascii", "replace"))}'
        )
    if key in entry.statements:
        raise RegardError(f"{location}: duplicate {key} in one entry")
    entry.last, entry.size = key or entry.last, entry.size + len(line)
    if entry.size > MAX_LINE_BYTES:
        raise RegardError(f"{location}: entry is longer than {MAX_LINE_BYTES:,} bytes")
    entry.statements.setdefault(entry.last, []).append((number, match[2]))


def join_strings(name: str, parts: list[tuple[int, bytes]], charset: str) -> str:
    """Decode and join the strings of a statement."""
    return "".join(
        unescape(f"{name}, line {number}", decode_bytes(raw, f"{name}, line {number}", charset))
        for number, raw in parts
    )


def unescape(location: str, text: str) -> str:
    r"""Resolve the escapes of a PO string (\n, \", \t and so on)."""

    def replace_escape(match: re.Match[str]) -> str:
        hexadecimal, octal, plain = match.groups()
        number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else 128
        if number >= 128 and plain not in LETTERS:
            raise RegardError(f'{location}: invalid escape {match[0]}; write a quote as \\" and a backslash as \\\\')
        return chr(number) if number < 128 else LETTERS[plain]

    return ESCAPE.sub(replace_escape, text)


def read_mo(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the entries of an MO file; msgfmt does not write untranslated or fuzzy entries."""
    name, header, is_swapped = format_path(path), Header(), is_reversed(format_path(path), columns)
    for number, (key, translation) in enumerate(iter_mo_strings(path), 1):
        location = f"{name}, entry {number}"
        if not key:
            header = parse_header(location, translation)
            continue
        ids = [decode_bytes(part, location, header.charset) for part in key.split(b"\4")[-1].split(b"\0")]
        forms = [decode_bytes(part, location, header.charset) for part in translation.split(b"\0")]
        for source, target in iter_translations(ids[0], ids[1] if len(ids) > 1 else None, forms, header.one):
            yield NumberedPair(number, *((target, source) if is_swapped else (source, target)))


def iter_mo_strings(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and translation of every entry of an MO file."""
    with open_input(path) as stream:
        file = stream if stream.seekable() and not isinstance(stream, GzipFile) else read_whole(stream, path)
        size = file.seek(0, SEEK_END)
        name = format_path(path)
        start = read_at(file, 0, min(size, 4), size, name)
        order = ORDERS.get(start)
        if order is None:
            raise RegardError(f"{name} is not an MO file: expected 0xde120495 at the start, got 0x{start.hex()}")
        _, count, *table_starts = struct.unpack(f"{order}4I", read_at(file, 4, 16, size, name))
        tables = [read_at(file, at, 8 * count, size, name) for at in table_starts]
        total = 0
        for entry in zip(*(struct.iter_unpack(f"{order}2I", table) for table in tables), strict=True):
            total += sum(length for length, _ in entry)
            if total > size:  # strings that overlap would make the entries larger than the file
                raise RegardError(f"{name} is corrupt: its strings are longer than the file ({size} bytes)")
            key, translation = (read_at(file, at, length, size, name) for length, at in entry)
            yield key, translation


def read_whole(stream: BufferedIOBase, path: Path) -> BufferedIOBase:
    """Read an MO file that cannot be read in any order, because it is gzipped or comes from a pipe."""
    content = stream.read(MAX_UNZIPPED_BYTES + 1)
    if len(content) > MAX_UNZIPPED_BYTES:
        raise RegardError(f"{format_path(path)} has more than {MAX_UNZIPPED_BYTES:,} bytes; decompress it to a file")
    return BytesIO(content)


def read_at(file: BufferedIOBase, start: int, length: int, size: int, name: str) -> bytes:
    """Return a part of an MO file; raise a `RegardError` if it extends past the end."""
    if start + length <= size:
        file.seek(start)
        part = file.read(length)
        if len(part) == length:
            return part
    raise RegardError(f"{name} is corrupt: its tables extend past the end of the file ({size} bytes)")


def iter_translations(msgid: str, plural: str | None, forms: list[str], one: int) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts that translate each other."""
    for number, text in enumerate(forms):
        if text and (plural is None or number == one or len(forms) == 1):
            yield msgid, text
        if text and plural is not None and (number != one or len(forms) == 1):
            yield plural, text


def parse_header(location: str, raw: bytes) -> Header:
    """Return charset and plural rule, if the header has them."""
    header = Header()
    charset = re.search(rb"charset=([\w.:-]+)", raw)
    if charset and charset[1] != b"CHARSET":  # placeholder in templates
        header = replace(header, charset=charset[1].decode("ascii", "replace"))
        try:
            is_charset = bool(b"a".decode(header.charset)) and get_codec_name(header.charset) not in NOT_CHARSETS
        except (LookupError, UnicodeError):
            is_charset = False
        if not is_charset:
            raise RegardError(f'{location}: unknown charset "{header.charset}" in the header; use UTF-8')
    rule = re.search(rb"plural=([^;\n]+)", raw)
    if rule and rule[1].strip() != b"EXPRESSION":
        try:
            header = replace(header, one=gettext.c2py(rule[1].decode("ascii"))(1))
        except (ValueError, ZeroDivisionError, SyntaxError):  # gettext lets some errors of syntax through
            plural = quote_text(rule[1].decode("ascii", "replace"))
            raise RegardError(
                f"{location}: invalid plural rule {plural} in the header; expected one such as (n != 1)"
            ) from None
    return header


def get_codec_name(charset: str) -> str:
    """Return Python's name of an encoding."""
    return codecs.lookup(charset).name.replace("-escape", "_escape")


def is_reversed(name: str, columns: Columns | None) -> bool:
    """Return whether msgstr is the source and msgid the target."""
    if columns not in (None, ("msgid", "msgstr"), ("msgstr", "msgid")):
        raise RegardError(f"{name}: expected the columns msgid and msgstr, got {columns[0]} and {columns[1]}")
    return columns == ("msgstr", "msgid")
