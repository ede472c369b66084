"""Translation memories (TMX 1.4), read unit by unit, so that memory stays flat.

Entities are refused, declared ones as well as those of other files: a memory needs none,
and they can make a small file unfold to a huge one.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from regard.data.formats.lines import Found, Path, opened, shown
from regard.data.formats.tables import Columns
from regard.errors import RegardError

BLOCK = 2**16
CODES = {"bpt", "ept", "ph", "it", "ut"}
"""Elements inside a segment that hold markup of the document it came from, not text."""

Unit = tuple[int, dict[str, str]]
"""The line a unit begins on, and its first text in each language."""


def read_tmx(path: Path, columns: Columns | None) -> Iterator[Found]:
    """Units that have both languages; without a choice, the source is the memory's own `srclang`.

    A language chosen without a region takes any: en is also en-GB.
    """
    memory, found, languages = MemoryParser(shown(path)), False, columns
    for line, texts in units(path, memory):
        source, target = languages = languages or usual_languages(f"{shown(path)}, line {line}", memory, texts)
        ours, theirs = pick(texts, str(source)), pick(texts, str(target))
        if ours is not None and theirs is not None:
            found = True
            yield Found(line, ours, theirs)
    if languages and not found:
        there = ", ".join(sorted(memory.languages)) or "none"
        raise RegardError(
            f'{shown(path)}: no unit has both "{languages[0]}" and "{languages[1]}"; languages there: {there} '
            "(choose: --data.columns de,en)"
        )


def units(path: Path, memory: MemoryParser) -> Iterator[Unit]:
    """Every unit of a memory, as soon as it is read."""
    with opened(path) as file:
        ended = False
        while not ended:
            block = file.read(BLOCK)
            ended = not block
            memory.feed(block)
            yield from memory.units
            memory.units.clear()


def usual_languages(where: str, memory: MemoryParser, texts: dict[str, str]) -> Columns:
    """The memory's own source language, and the only other one of its first unit."""
    others = [language for language in texts if not speaks(language, memory.source)]
    if len(others) != 1 or len(texts) != 2:
        raise RegardError(
            f'{where}: has texts in {", ".join(texts) or "no language"}, and srclang is "{memory.source}"; '
            "choose source and target: --data.columns de,en"
        )
    return memory.source, others[0]


def pick(texts: dict[str, str], wanted: str) -> str | None:
    """The text in a language, if there is one."""
    return next((text for language, text in texts.items() if speaks(language, wanted)), None)


def speaks(language: str, wanted: str) -> bool:
    """Whether a language is the one wanted, or a region's form of it."""
    language, wanted = (name.lower().replace("_", "-") for name in (language, wanted))
    return language == wanted or language.startswith(f"{wanted}-")


class MemoryParser:
    """Collects the units of a memory while its bytes are fed."""

    def __init__(self, name: str) -> None:
        self.name, self.source, self.languages = name, "", set[str]()
        self.units: list[Unit] = []
        self._texts, self._line, self._language = dict[str, str](), 0, ""
        self._segment: list[str] | None = None  # of the open <seg>
        self._hidden = 0  # how deep inside a code
        self._begun = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity

    def feed(self, block: bytes) -> None:
        """Read on; an empty block is the end."""
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            found = expat.ErrorString(error.code)
            raise RegardError(
                f"{self.name}, line {error.lineno}: is no XML ({found}); a TMX file is expected"
            ) from None
        except (LookupError, ValueError) as error:
            raise RegardError(f"{self.name}: its encoding cannot be read ({error}); save it as UTF-8") from None

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._begun and tag != "tmx":
            raise RegardError(f"{self._where()}: begins with <{tag}>; a TMX file begins with <tmx>")
        self._begun = True
        if self._hidden or (self._segment is not None and tag in CODES):
            self._hidden += 1
        elif tag == "header":
            self.source = attributes.get("srclang", "")
        elif tag == "tu":
            self._texts, self._line = {}, self._parser.CurrentLineNumber
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            if not self._language:
                raise RegardError(f"{self._where()}: <tuv> does not say its language; xml:lang is needed")
            self.languages.add(self._language)
        elif tag == "seg":
            self._segment = []

    def _end(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= 1
        elif tag == "seg":
            self._texts.setdefault(self._language, "".join(self._segment or ()))
            self._segment = None
        elif tag == "tu":
            self.units.append((self._line, self._texts))

    def _characters(self, text: str) -> None:
        if self._segment is not None and not self._hidden:
            self._segment.append(text)

    def _refuse_entity(self, entity: str, *_: object) -> None:
        raise RegardError(f'{self._where()}: has the entity "{entity}"; write the text itself')

    def _where(self) -> str:
        return f"{self.name}, line {self._parser.CurrentLineNumber}"
