"""Convert between tables of plain values and typed dataclasses, with strict checks.

A dataclass defines the names, types and defaults of settings. Recipes (TOML) and command-line
options are parsed against it. The comment behind a field in the source is its help text.
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
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.bounds import format_number
from regard.errors import RegardError, format_os_error, unknown_name

Settings = TypeVar("Settings")
Table = dict[str, Any]

MAX_BITS = 10_000
"""Python does not convert integers much longer than this to text."""


Mark = Literal["path", "origin", "from_data", "may_change", "read_once", "whole_name", "no_option"]
"""Properties of a setting.

path: a file or folder, looked up in the folder of the recipe first; origin: the source of the data, to which the rest
of its section belongs; from_data: chosen from the data if it is not given, and kept when a run resumes; may_change: may
change when a run resumes; read_once: a file that is read only before the first checkpoint; whole_name: a section whose
options need the section name (`--pretraining.steps`), since other sections have settings of the same names; no_option:
not available on the command line.
"""


@dataclass(frozen=True)
class Field:
    """A setting: its name, type, default, help text and marks."""

    name: str
    type: Any
    default: Any
    help: str
    marks: frozenset[Mark] = frozenset()


def setting(default: Any, *marks: Mark) -> Any:
    """Return a dataclass field with marks."""
    return dataclasses.field(default=default, metadata=make_metadata(*marks))


def make_metadata(*marks: Mark) -> dict[str, frozenset[Mark]]:
    """Return the metadata of a dataclass field with marks."""
    return {"marks": frozenset(marks)}


def check_choices(settings: Any, **choices: Iterable[str]) -> None:
    """Raise a `RegardError` if a setting, or an item of a tuple, is not one of its choices."""
    for name, names in choices.items():
        value = getattr(settings, name)
        for item in value if isinstance(value, tuple) else (value,):
            if item not in names:
                raise unknown_name(name, item, names)


def get_fields(kind: type) -> Mapping[str, Field]:
    """Return the settings of a dataclass by name."""
    return read_fields(kind)


@cache  # reading the hints of a class takes a millisecond, and a command asks for hundreds
def read_fields(kind: type) -> Mapping[str, Field]:
    """Read the settings of a dataclass from its hints, fields and source."""
    hints, comments = get_type_hints(kind), get_field_comments(kind)
    settings = (
        Field(
            field.name,
            hints[field.name],
            get_default(field),
            comments.get(field.name, ""),
            field.metadata.get("marks", frozenset()),
        )
        for field in dataclasses.fields(kind)
    )
    return types.MappingProxyType({setting.name: setting for setting in settings})


def merge_fields(tables: Iterable[Mapping[str, Field]]) -> dict[str, Field]:
    """Merge settings of several dataclasses by name; types and help texts that differ are joined."""
    merged: dict[str, Field] = {}
    for new_field in (field for table in tables for field in table.values()):
        known_field = merged.setdefault(new_field.name, new_field)
        if known_field.type != new_field.type:
            merged[new_field.name] = known_field = dataclasses.replace(
                known_field, type=known_field.type | new_field.type
            )
        if new_field.help not in known_field.help:
            merged[new_field.name] = dataclasses.replace(known_field, help=f"{known_field.help}; {new_field.help}")
    return merged


def get_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@cache
def get_field_comments(kind: type) -> dict[str, str]:
    """Return the comment behind each field in the source of its class, inherited fields included."""
    comments: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            comments |= parse_field_comments(base)
    return comments


def parse_field_comments(kind: type) -> dict[str, str]:
    """Return the comments behind the fields that a class defines itself; none if the source is unavailable."""
    try:
        lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    except OSError:
        return {}
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    comments = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.end_lineno is not None
            trailing = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()  # columns count bytes
            _, hash_sign, comment = trailing.partition("# ")
            if hash_sign:
                comments[node.target.id] = comment.strip()
    return comments


def parse_settings(kind: type[Settings], table: Mapping[str, Any], location: str) -> Settings:
    """Build a dataclass from a table.

    Raises:
        RegardError: For an unknown or missing setting, or a value of the wrong type. `location` is where the table is.
    """
    fields = get_fields(kind)
    for name in table:
        if name not in fields:
            raise unknown_name(join_location(location, "setting"), name, fields)
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in table]
    if missing:
        raise RegardError(join_location(location, f"missing {', '.join(missing)}"))
    values = {
        name: convert_value(value, fields[name].type, locate_field(location, fields[name]))
        for name, value in table.items()
    }
    try:
        return kind(**values)
    except RegardError as error:
        raise RegardError(join_location(location, str(error))) from None


def parse_known_settings(kind: type[Settings], table: Any, location: str) -> Settings:
    """Build a dataclass from a table; unknown settings are ignored."""
    values = table if isinstance(table, dict) else {}
    return parse_settings(kind, {name: value for name, value in values.items() if name in get_fields(kind)}, location)


def join_location(location: str, text: str) -> str:
    """Join a location and a text with a colon, or with a space after a table name in brackets."""
    return f"{location} {text}" if location.endswith("]") else f"{location}: {text}"


def locate_field(location: str, field: Field) -> str:
    """Return the location of a setting: `copy.max_length`, or in a file `de-en.toml: [data] max_length`."""
    if is_table(field.type):
        return join_location(location, f"[{field.name}]")
    return join_location(location, field.name) if location.endswith("]") else f"{location}.{field.name}"


def is_table(expected_type: Any) -> bool:
    """Return whether the values of a type are tables."""
    return get_origin(expected_type) is dict or (
        isinstance(expected_type, type) and dataclasses.is_dataclass(expected_type)
    )


def convert_value(value: Any, expected_type: Any, location: str) -> Any:
    """Convert a plain value to the type of its field. The only implicit conversion is from int to float."""
    origin, type_arguments = get_origin(expected_type), get_args(expected_type)
    if is_table(expected_type):
        if isinstance(value, Mapping):
            return dict(value) if origin is dict else parse_settings(expected_type, value, location)
        if origin is None and isinstance(value, expected_type):
            return value
    elif origin is Literal:
        if any(value == item and type(value) is type(item) for item in type_arguments):
            return value
        raise unknown_name(location, value, (str(item) for item in type_arguments))
    elif origin in (Union, types.UnionType):
        return convert_to_first(value, type_arguments, location)
    elif origin is tuple:
        if isinstance(value, (list, tuple)) and all(accepts(type_arguments[0], item) for item in value):
            return tuple(convert_value(item, type_arguments[0], location) for item in value)
        if isinstance(value, str) and accepts(expected_type, as_list := to_plain_value(value, expected_type)):
            expected = f"{format_type(expected_type)} such as {format_value(as_list)}"
            raise RegardError(f"{location}: expected {expected}, got {format_value(value)}")
    elif expected_type is float:
        if type(value) in (int, float) and (abs(value) <= sys.float_info.max or abs(value) == float("inf")):
            return float(value)
    elif type(value) is str and not is_encodable(value):
        raise RegardError(f"{location}: expected a string that UTF-8 can encode, got {format_value(value)}")
    elif expected_type is Any or type(value) is expected_type:
        return value
    raise RegardError(f"{location}: expected {format_type(expected_type)}, got {format_value(value)}")


def convert_to_first(value: Any, kinds: tuple[Any, ...], location: str) -> Any:
    """Convert a value to the first type that accepts it."""
    if value is None and types.NoneType in kinds:
        return None
    candidates = [kind for kind in kinds if kind is not types.NoneType]
    if len(candidates) == 1:
        return convert_value(value, candidates[0], location)
    for kind in candidates:
        if accepts(kind, value):
            return convert_value(value, kind, location)
    expected = " or ".join(map(format_type, candidates))
    raise RegardError(f"{location}: expected {expected}, got {format_value(value)}")


def accepts(kind: Any, value: Any) -> bool:
    """Return whether a type accepts a value."""
    try:
        convert_value(value, kind, "")
    except RegardError:
        return False
    return True


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text: not if it has surrogates, as file names in other encodings do."""
    return not re.search("[\ud800-\udfff]", text)


def parse_value(text: str, expected_type: Any, location: str) -> Any:
    """Parse text from a command line to the type of its field."""
    return convert_value(to_plain_value(text, expected_type), expected_type, location)


def to_plain_value(text: str, expected_type: Any) -> Any:
    """Parse text to the most likely plain value for a type, or return it unchanged."""
    origin, type_arguments = get_origin(expected_type), get_args(expected_type)
    if origin in (Union, types.UnionType):
        if text == "none" and types.NoneType in type_arguments:
            return None
        meanings = [(kind, to_plain_value(text, kind)) for kind in type_arguments if kind is not types.NoneType]
        return next((value for kind, value in meanings if accepts(kind, value)), text)
    if origin is tuple:
        return [to_plain_value(item.strip(), type_arguments[0]) for item in text.split(",") if item.strip()]
    if origin is Literal:
        return next((item for item in type_arguments if str(item) == text), text)
    if expected_type is bool:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    if expected_type in (int, float):
        return parse_number(text)
    if expected_type is Any:  # "no" and "nan" are language codes
        booleans = {"true": True, "false": False}
        return booleans[text] if text in booleans else parse_number(text) if any(map(str.isdigit, text)) else text
    return text


def parse_number(text: str) -> int | float | str:
    """Parse a number, or return the text unchanged."""
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text


def format_type(expected_type: Any) -> str:
    """Return a type in plain words: "an integer", "a list of strings"."""
    origin, type_arguments = get_origin(expected_type), get_args(expected_type)
    if origin in (Union, types.UnionType):
        return " or ".join(format_type(item) for item in type_arguments)
    if origin is Literal:
        return ", ".join(str(item) for item in type_arguments)
    if origin is tuple:
        return f"a list of {format_type(type_arguments[0]).removeprefix('a ').removeprefix('an ')}s"
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return names.get(expected_type, "a table")


def format_value(value: Any) -> str:
    """Format a value as in TOML; None is "none"."""
    return "none" if value is None else format_toml_value(value)


def to_table(settings: Any) -> Table:
    """Return the settings of a dataclass as plain values, without those that are None, which TOML lacks."""
    table = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            table[field.name] = to_table(value) if dataclasses.is_dataclass(value) else value
    return table


def read_toml(path: Path) -> Table:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise RegardError(f"cannot read {path}: {format_os_error(error)}") from None
    except (ValueError, RecursionError) as error:  # a number that is too long is a plain ValueError
        raise RegardError(f"{path} is not valid TOML: {error}") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """Format a table as TOML: plain values first, then each nested table. Values that are None are skipped."""
    return "\n".join(iter_toml_lines(table, "")).strip() + "\n"


def iter_toml_lines(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the TOML lines of a table and its nested tables."""
    if path:
        yield f"[{path}]"
    for name, value in table.items():
        if not isinstance(value, Mapping) and value is not None:
            yield f"{format_toml_key(name)} = {format_toml_value(value)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield from iter_toml_lines(value, f"{path}.{format_toml_key(name)}" if path else format_toml_key(name))


def format_toml_key(name: str) -> str:
    """Format a key as in TOML, quoted only if necessary."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else format_toml_value(name)


def format_toml_value(value: Any) -> str:
    """Format a plain value as in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not is_encodable(value)).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(format_toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (
            f"{format_toml_key(name)} = {format_toml_value(item)}" for name, item in value.items() if item is not None
        )
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (date, time)):
        return value.isoformat()
    return format_number(value) if isinstance(value, int) and value.bit_length() > MAX_BITS else repr(value)
