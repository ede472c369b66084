"""Read translation memories (TMX 1.4) unit by unit, with constant memory.

Entities, internal or external, are rejected: TMX does not need them, and they can expand a
small file to a huge one. Tags, comments, units and nesting have limits, so that no file takes
unbounded memory or time.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from regard.data.formats.lines import MAX_LINE_BYTES, NumberedPair, Path, format_path, open_input, quote_text
from regard.data.formats.tables import Columns
from regard.errors import RegardError

BLOCK = 2**16
MAX_DEPTH = 1000  # of elements in each other
MAX_LANGUAGES = 1000  # of a file
MAX_LANGUAGE_NAME = 100  # in characters
CODES = {"bpt", "ept", "ph", "it", "ut"}
"""Elements inside a segment that hold markup of the original document, not text."""

TranslationUnit = tuple[int, dict[str, str]]
"""Line number of a unit, and its first text in each language."""


def read_tmx(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the units that have both languages; by default the source language is the file's `srclang`.

    A language without a region matches any region: en matches en-GB.
    """
    memory, any_pair, languages = TmxParser(format_path(path)), False, columns
    for line, texts in iter_units(path, memory):
        source, target = languages = languages or infer_languages(f"{format_path(path)}, line {line}", memory, texts)
        source_text, target_text = get_text_in(texts, str(source)), get_text_in(texts, str(target))
        if source_text is not None and target_text is not None:
            any_pair = True
            yield NumberedPair(line, source_text, target_text)
    if languages and not any_pair:
        available = ", ".join(sorted(memory.languages)) or "none"
        raise RegardError(
            f'{format_path(path)}: no unit has both "{languages[0]}" and "{languages[1]}"; '
            f"choose two of {available} with --data.columns"
        )


def iter_units(path: Path, memory: TmxParser) -> Iterator[TranslationUnit]:
    """Yield every unit as soon as it is parsed."""
    with open_input(path) as file:
        ended = False
        while not ended:
            block = file.read(max(BLOCK, memory.pending))  # expat starts an open tag or comment over with each block
            ended = not block
            memory.feed(block)
            yield from memory.units
            memory.units.clear()


def infer_languages(location: str, memory: TmxParser, texts: dict[str, str]) -> Columns:
    """Return the file's source language, and the only other language of its first unit."""
    others = [language for language in texts if not matches_language(language, memory.source)]
    if len(others) != 1 or len(texts) != 2:
        raise RegardError(
            f"{location}: cannot infer the languages: texts in {', '.join(texts) or 'no language'}, "
            f'srclang "{memory.source}"; choose source and target: --data.columns de,en'
        )
    return memory.source, others[0]


def get_text_in(texts: dict[str, str], requested: str) -> str | None:
    """Return the text in a language, or None."""
    return next((text for language, text in texts.items() if matches_language(language, requested)), None)


def matches_language(language: str, requested: str) -> bool:
    """Return whether a language is the requested one, with or without a region."""
    language, requested = (name.lower().replace("_", "-") for name in (language, requested))
    return language == requested or language.startswith(f"{requested}-")


class TmxParser:
    """An incremental TMX parser that collects units."""

    def __init__(self, name: str) -> None:
        self.name, self.source, self.languages = name, "", set[str]()
        self.units: list[TranslationUnit] = []
        self._texts, self._line, self._language = dict[str, str](), 0, ""
        self._segment: list[str] | None = None  # texts of the open <seg>
        self._code_depth = 0  # nesting depth inside code elements
        self._depth = self._unit_size = self._fed = 0
        self._started = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity

    def feed(self, block: bytes) -> None:
        """Parse the next block; an empty block ends the file."""
        self._fed += len(block)
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise RegardError(f"{self.name}, line {error.lineno} is not valid XML: {reason}") from None
        except (LookupError, ValueError) as error:
            raise RegardError(f"{self.name}: unsupported encoding ({error}); save the file as UTF-8") from None
        if self.pending > MAX_LINE_BYTES:
            raise RegardError(f"{self._location()}: a tag or comment is longer than {MAX_LINE_BYTES:,} bytes")

    @property
    def pending(self) -> int:
        """Number of bytes of a tag or comment whose end has not been read."""
        return self._fed - max(self._parser.CurrentByteIndex, 0)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RegardError(f"{self._location()}: elements are nested more than {MAX_DEPTH:,} deep")
        if not self._started and tag != "tmx":
            raise RegardError(f"{self._location()} is not TMX: expected <tmx>, got <{tag[:60]}>")
        self._started = True
        if self._code_depth or (self._segment is not None and tag in CODES):
            self._code_depth += 1
        elif tag == "header":
            self.source = attributes.get("srclang", "")
        elif tag == "tu":
            self._texts, self._line, self._unit_size = {}, self._parser.CurrentLineNumber, 0
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            if not self._language:
                raise RegardError(f"{self._location()}: <tuv> has no xml:lang")
            self.languages.add(self._language)
            if len(self._language) > MAX_LANGUAGE_NAME or len(self.languages) > MAX_LANGUAGES:
                raise RegardError(f"{self._location()}: invalid xml:lang {quote_text(self._language)}")
        elif tag == "seg":
            self._segment = []

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._code_depth:
            self._code_depth -= 1
        elif tag == "seg":
            self._texts.setdefault(self._language, "".join(self._segment or ()))
            self._segment = None
        elif tag == "tu":
            self.units.append((self._line, self._texts))

    def _characters(self, text: str) -> None:
        if self._segment is not None and not self._code_depth:
            self._segment.append(text)
            self._unit_size += len(text)
            if self._unit_size > MAX_LINE_BYTES:
                raise RegardError(f"{self._location()}: a unit is longer than {MAX_LINE_BYTES:,} characters")

    def _refuse_entity(self, entity: str, *_: object) -> None:
        raise RegardError(f"{self._location()}: entity {quote_text(entity)} is not allowed; write the text itself")

    def _location(self) -> str:
        return f"{self.name}, line {self._parser.CurrentLineNumber}"
