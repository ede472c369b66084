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
import textwrap
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import RegardError, unknown_name

Settings = TypeVar("Settings")
Table = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One setting, as help shows it."""

    name: str
    type: Any
    default: Any
    help: str


@cache
def fields_of(kind: type) -> dict[str, Field]:
    """The settings of a dataclass by name."""
    types_, remarks = get_type_hints(kind), remarks_of(kind)
    return {
        field.name: Field(field.name, types_[field.name], default_of(field), remarks.get(field.name, ""))
        for field in dataclasses.fields(kind)
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def remarks_of(kind: type) -> dict[str, str]:
    """The remark behind each field in the source of its class, or of the class it comes from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= own_remarks(base)
    return found


def own_remarks(kind: type) -> dict[str, str]:
    """The remarks behind the fields that a class itself defines."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.end_lineno is not None
            _, mark, remark = lines[node.end_lineno - 1][node.end_col_offset :].partition("# ")
            if mark:
                found[node.target.id] = remark.strip()
    return found


def from_table(kind: type[Settings], table: Mapping[str, Any], where: str) -> Settings:
    """A dataclass from a table, in which every name and type must be right."""
    known = fields_of(kind)
    for name in table:
        if name not in known:
            raise unknown_name(f"{where}: settings", name, known)
    missing = [name for name, field in known.items() if field.default is dataclasses.MISSING and name not in table]
    if missing:
        raise RegardError(f"{where}: {', '.join(missing)} must be set")
    try:
        return kind(**{name: fitting(value, known[name].type, f"{where}.{name}") for name, value in table.items()})
    except RegardError as error:
        raise error if str(error).startswith(where) else RegardError(f"{where}: {error}") from None


def fitting(value: Any, wanted: Any, where: str) -> Any:
    """A value of TOML or of Python in the type of its field."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, wanted):
            return value
        if isinstance(value, Mapping):
            return from_table(wanted, value, where)
    elif origin is Literal:
        if value in inside and type(value) in {type(each) for each in inside}:
            return value
        raise unknown_name(where, value, (str(each) for each in inside))
    elif origin in (Union, types.UnionType):
        return first_fitting(value, inside, where)
    elif origin in (tuple, list):
        if isinstance(value, (list, tuple)):
            return tuple(fitting(each, inside[0], where) for each in value)
    elif origin is dict or wanted is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif wanted is float and type(value) is int:
        return float(value)
    elif wanted is Any or type(value) is wanted:
        return value
    raise RegardError(f"{where} is {shown(value)}; {in_words(wanted)} is needed")


def first_fitting(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    """A value in the first of several types that takes it."""
    for kind in sorted(kinds, key=lambda each: type(value) is not each):  # its own type first
        try:
            return None if kind is types.NoneType and value is None else fitting(value, kind, where)
        except RegardError:
            continue
    raise RegardError(f"{where} is {shown(value)}; {in_words(Union[kinds])} is needed")  # noqa: UP007


def read_value(text: str, wanted: Any, where: str) -> Any:
    """What somebody typed, in the type of its field."""
    return fitting(plain_value(text, wanted), wanted, where)


def plain_value(text: str, wanted: Any) -> Any:
    """What somebody typed as the plain value it most likely means for a type."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if text == "none" and types.NoneType in inside:
            return None
        for kind in (each for each in inside if each is not types.NoneType):
            value = plain_value(text, kind)
            if accepts(kind, value):
                return value
        return text
    if origin in (tuple, list):
        return [plain_value(each.strip(), inside[0]) for each in text.split(",") if each.strip()]
    if wanted is bool:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    if wanted in (int, float) or wanted is Any:
        for number in (int, float):
            try:
                return number(text.replace("_", ""))
            except ValueError:
                continue
    if origin is Literal and text not in inside:
        return next((each for each in inside if str(each) == text), text)
    return text


def accepts(kind: Any, value: Any) -> bool:
    """Whether a type takes a value."""
    try:
        fitting(value, kind, "")
    except RegardError:
        return False
    return True


def in_words(wanted: Any) -> str:
    """A type as a reader who knows no Python would say it."""
    origin, inside = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(each) for each in inside)
    if origin is Literal:
        return ", ".join(str(each) for each in inside)
    if origin in (tuple, list):
        return f"a list of {in_words(inside[0]).removeprefix('a ')}s"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "a table"}
    return "none" if wanted is types.NoneType else names.get(origin or wanted, "a table")


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
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RegardError(f"{path}: {reason}; a TOML file is needed") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """A table as TOML: plain values first, then each table under its name."""
    return "\n".join(toml_lines(table, "")).strip() + "\n"


def toml_lines(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """The lines of a table and of the tables in it."""
    if path:
        yield f"[{path}]"
    for name, value in table.items():
        if not isinstance(value, Mapping) and value is not None:
            yield f"{name} = {toml_value(value)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield from toml_lines(value, f"{path}.{name}" if path else name)


def toml_value(value: Any) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {toml_value(each)}' for name, each in value.items())}}}"
    return repr(value)
