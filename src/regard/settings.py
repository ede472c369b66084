"""Tables of plain values <-> typed dataclasses, strictly.

A dataclass says once which settings there are, of which type, with which default; a
recipe (TOML) and the command line are read against it. The remark behind a field in
its source is its help.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import RegardError, unknown_name

Settings = TypeVar("Settings")
Table = dict[str, Any]


Mark = Literal["path", "origin", "may_change", "read_once", "whole_name", "no_option"]
"""What else is known of a setting.

path: a file or folder, which is looked for beside the recipe first; origin: where the data come from, so that the
rest of its section belongs to it; may_change: may differ when a run goes on; read_once: a file that a run needs
until its first checkpoint, and that may have moved by then; whole_name: a section whose settings are called as
those of others are, so that a command line has to name it, too; no_option: not for a command line at all.
"""


class Between(NamedTuple):
    """The least and the greatest value of an option, in its annotation; `above` is less than any."""

    least: float | None = None
    greatest: float | None = None
    above: float | None = None


@dataclass(frozen=True)
class Field:
    """One setting, as help shows it."""

    name: str
    type: Any
    default: Any
    help: str
    marks: frozenset[Mark] = frozenset()


def setting(default: Any, *marks: Mark) -> Any:
    """A field of settings with marks."""
    return dataclasses.field(default=default, metadata=with_marks(*marks))


def with_marks(*marks: Mark) -> dict[str, frozenset[Mark]]:
    """The metadata of a field with marks."""
    return {"marks": frozenset(marks)}


def check_least(settings: Any, least: float, *names: str) -> None:
    """Raise a `RegardError` for a setting that is less; None is not."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < least:
            raise RegardError(f"{name} is {value}; {least} is the least")


def check_shares(settings: Any, *names: str) -> None:
    """Raise a `RegardError` for a setting that is no share from 0 to below 1; None is one."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 <= value < 1:
            raise RegardError(f"{name} is {value}; a share from 0 to below 1 is needed")


def check_known(settings: Any, **known: Iterable[str]) -> None:
    """Raise a `RegardError` for a setting that names something which is not there, or one of several that does."""
    for name, names in known.items():
        value = getattr(settings, name)
        for each in value if isinstance(value, tuple) else (value,):
            if each not in names:
                raise unknown_name(name, each, names)


def fields_of(kind: type) -> dict[str, Field]:
    """The settings of a dataclass by name."""
    types_, remarks = get_type_hints(kind), remarks_of(kind)
    return {
        field.name: Field(
            field.name,
            types_[field.name],
            default_of(field),
            remarks.get(field.name, ""),
            field.metadata.get("marks", frozenset()),
        )
        for field in dataclasses.fields(kind)
    }


def merge_fields(tables: Iterable[Mapping[str, Field]]) -> dict[str, Field]:
    """The settings of several dataclasses as those of one: of all types and remarks where these differ."""
    merged: dict[str, Field] = {}
    for each in (field for table in tables for field in table.values()):
        other = merged.setdefault(each.name, each)
        if other.type != each.type:
            merged[each.name] = other = dataclasses.replace(other, type=other.type | each.type)
        if each.help not in other.help:
            merged[each.name] = dataclasses.replace(other, help=f"{other.help}; {each.help}")
    return merged


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@cache
def remarks_of(kind: type) -> dict[str, str]:
    """The remark behind each field in the source of its class, or of the class it comes from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= own_remarks(base)
    return found


def own_remarks(kind: type) -> dict[str, str]:
    """The remarks behind the fields that a class itself defines; none where its source is not at hand."""
    try:
        lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    except OSError:
        return {}
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.end_lineno is not None
            behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()  # columns are of bytes
            _, mark, remark = behind.partition("# ")
            if mark:
                found[node.target.id] = remark.strip()
    return found


def from_table(kind: type[Settings], table: Mapping[str, Any], where: str) -> Settings:
    """A dataclass from a table, in which every name and type must be right."""
    known = fields_of(kind)
    for name in table:
        if name not in known:
            raise unknown_name(beside(where, "settings"), name, known)
    missing = [name for name, field in known.items() if field.default is dataclasses.MISSING and name not in table]
    if missing:
        raise RegardError(beside(where, f"{', '.join(missing)} must be set"))
    values = {name: fitting(value, known[name].type, place(where, known[name])) for name, value in table.items()}
    try:
        return kind(**values)
    except RegardError as error:
        raise RegardError(beside(where, str(error))) from None


def from_part(kind: type[Settings], table: Any, where: str) -> Settings:
    """A dataclass from those settings of a table that it knows; all others are passed over."""
    found = table if isinstance(table, dict) else {}
    return from_table(kind, {name: value for name, value in found.items() if name in fields_of(kind)}, where)


def beside(where: str, text: str) -> str:
    """Where something is, and what; the name of a table, in brackets, needs no colon."""
    return f"{where} {text}" if where.endswith("]") else f"{where}: {text}"


def place(where: str, field: Field) -> str:
    """Where a setting stands: `copy.longest`, or in a file `de-en.toml: [data] longest`."""
    if is_table(field.type):
        return beside(where, f"[{field.name}]")
    return beside(where, field.name) if where.endswith("]") else f"{where}.{field.name}"


def is_table(wanted: Any) -> bool:
    """Whether the values of a type are tables."""
    return get_origin(wanted) is dict or (isinstance(wanted, type) and dataclasses.is_dataclass(wanted))


def fitting(value: Any, wanted: Any, where: str) -> Any:
    """A value of TOML or of Python in the type of its field; an int will do for a float, and no more than that."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if is_table(wanted):
        if isinstance(value, Mapping):
            return dict(value) if origin is dict else from_table(wanted, value, where)
        if origin is None and isinstance(value, wanted):
            return value
    elif origin is Literal:
        if any(value == each and type(value) is type(each) for each in inside):
            return value
        raise unknown_name(where, value, (str(each) for each in inside))
    elif origin in (Union, types.UnionType):
        return first_fitting(value, inside, where)
    elif origin is tuple:
        if isinstance(value, (list, tuple)) and all(accepts(inside[0], each) for each in value):
            return tuple(fitting(each, inside[0], where) for each in value)
        if isinstance(value, str) and accepts(wanted, as_list := plain_value(value, wanted)):
            raise RegardError(f"{where} is {shown(value)}; {in_words(wanted)} is needed: {shown(as_list)}")
    elif wanted is float:
        if type(value) in (int, float) and (abs(value) <= sys.float_info.max or abs(value) == float("inf")):
            return float(value)
    elif type(value) is str and not can_be_written(value):
        raise RegardError(f"{where} is {shown(value)}; a text that UTF-8 can write is needed")
    elif wanted is Any or type(value) is wanted:
        return value
    raise RegardError(f"{where} is {shown(value)}; {in_words(wanted)} is needed")


def first_fitting(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    """A value in the first of several types that takes it."""
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    if len(others) == 1:
        return fitting(value, others[0], where)
    for kind in others:
        if accepts(kind, value):
            return fitting(value, kind, where)
    raise RegardError(f"{where} is {shown(value)}; {' or '.join(map(in_words, others))} is needed")


def accepts(kind: Any, value: Any) -> bool:
    """Whether a type takes a value."""
    try:
        fitting(value, kind, "")
    except RegardError:
        return False
    return True


def can_be_written(text: str) -> bool:
    """Whether UTF-8, and so TOML, has a text; not half a surrogate, as in a file name of another encoding."""
    return not re.search("[\ud800-\udfff]", text)


def read_value(text: str, wanted: Any, where: str) -> Any:
    """What somebody typed, in the type of its field."""
    return fitting(plain_value(text, wanted), wanted, where)


def plain_value(text: str, wanted: Any) -> Any:
    """What somebody typed as the plain value it most likely means for a type, or as it is."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if text == "none" and types.NoneType in inside:
            return None
        meanings = [(kind, plain_value(text, kind)) for kind in inside if kind is not types.NoneType]
        return next((value for kind, value in meanings if accepts(kind, value)), text)
    if origin is tuple:
        return [plain_value(each.strip(), inside[0]) for each in text.split(",") if each.strip()]
    if origin is Literal:
        return next((each for each in inside if str(each) == text), text)
    if wanted is bool:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    if wanted in (int, float):
        return number_in(text)
    if wanted is Any:  # "no" and "nan" are languages
        known = {"true": True, "false": False}
        return known[text] if text in known else number_in(text) if any(map(str.isdigit, text)) else text
    return text


def number_in(text: str) -> int | float | str:
    """The number that a text is, or the text."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def in_words(wanted: Any) -> str:
    """A type as a reader who knows no Python would say it."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(each) for each in inside)
    if origin is Literal:
        return ", ".join(str(each) for each in inside)
    if origin is tuple:
        return f"a list of {in_words(inside[0]).removeprefix('a ')}s"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(wanted, "a table")


def shown(value: Any) -> str:
    """A value as TOML writes it."""
    return "none" if value is None else toml_value(value)


def to_table(settings: Any) -> Table:
    """All settings of a dataclass as plain values; what is None is left out, as TOML knows no such thing."""
    found = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            found[field.name] = to_table(value) if dataclasses.is_dataclass(value) else value
    return found


def read_toml(path: Path) -> Table:
    """The table in a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # that of a number too long to read is a ValueError alone
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RegardError(f"{path}: {reason}; a TOML file is needed") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """A table as TOML: plain values first, then each table under its name. What is None is left out."""
    return "\n".join(toml_lines(table, "")).strip() + "\n"


def toml_lines(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """The lines of a table and of the tables in it."""
    if path:
        yield f"[{path}]"
    for name, value in table.items():
        if not isinstance(value, Mapping) and value is not None:
            yield f"{toml_key(name)} = {toml_value(value)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield from toml_lines(value, f"{path}.{toml_key(name)}" if path else toml_key(name))


def toml_key(name: str) -> str:
    """A name as TOML writes it: bare where it may be."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not can_be_written(value)).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items() if each is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (date, time)):
        return value.isoformat()
    return repr(value)
