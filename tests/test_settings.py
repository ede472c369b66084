"""Settings: strict types, words typed on a command line, and TOML against Python's own reader."""

import dataclasses
import inspect
import math
import re
import tomllib
import types
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpora import CORPORA
from regard.errors import RegardError
from regard.models import MODELS
from regard.settings import (
    check_choices,
    convert_value,
    format_type,
    format_value,
    get_fields,
    parse_settings,
    parse_value,
    read_toml,
    to_table,
    to_toml,
)
from regard.tasks import get_recipes
from regard.text.steps import TextSteps


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What others inherit."""

    width: int = 4  # in tokens
    silent: int = 1
    name: str = "ä # ö"  # after a string with a # in it


@dataclass(frozen=True, kw_only=True)
class Example(Basis):
    """One field of each kind."""

    needed: int
    width: int = 8
    rate: float | None = None  # a number
    kind: Literal["auto", "words", "bytes"] = "auto"
    least: Literal[1, 2] = 1
    joint: bool | Literal["auto"] = "auto"  # one vocabulary
    quiet: bool = False
    betas: tuple[float, ...] = (
        0.9,
        0.98,
    )  # two of them
    columns: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.width < 1:
            raise RegardError(f"width must be at least 1, got {self.width}")


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A table of tables."""

    example: Example
    basis: Basis = field(default_factory=Basis)
    model: dict[str, Any] = field(default_factory=dict)


KINDS = {name: each.type for name, each in get_fields(Example).items()}
EVERY = [
    *get_recipes().values(),
    TextSteps,
    *(each.type for kind in get_recipes().values() for each in get_fields(kind).values() if each.name != "model"),
    *(preset.config for preset in MODELS.values()),
    *CORPORA.values(),
]


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


# fields


def test_fields_know_their_remarks_defaults_and_types():
    fields = get_fields(Example)
    assert list(fields) == ["width", "silent", "name", "needed", *list(fields)[4:]]
    assert {name: each.help for name, each in fields.items() if each.help} == {
        "width": "in tokens",  # of the class that it comes from
        "name": "after a string with a # in it",
        "rate": "a number",
        "joint": "one vocabulary",
        "betas": "two of them",
    }
    assert fields["needed"].default is dataclasses.MISSING
    assert (fields["width"].default, fields["more"].default) == (8, {})
    assert fields["rate"].type == float | None


def test_a_class_without_source_has_no_remarks(monkeypatch):
    @dataclass
    class Other:
        width: int = 4  # in tokens

    def nowhere(kind):
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", nowhere)
    assert get_fields(Other)["width"].help == ""


def test_every_setting_of_regard_can_be_read_and_written():
    for kind in EVERY:
        fields = get_fields(kind)
        for each in fields.values():
            assert format_type(each.type), each
            if types.NoneType in get_args(each.type):  # or what is left out would be read as something else
                assert each.default is None, (kind, each.name)
        needed = {
            name: 8 if each.type is int else ["a", "b"]
            for name, each in fields.items()
            if each.default is dataclasses.MISSING
        }
        settings = parse_settings(kind, needed, "here")
        assert parse_settings(kind, tomllib.loads(to_toml(to_table(settings))), "here") == settings
    assert len(EVERY) > 15


# tables


def test_a_table_gives_its_dataclass():
    table = {
        "needed": 3,
        "rate": 1,
        "betas": [1, 0.5],
        "columns": ["de"],
        "joint": True,
        "least": 2,
        "more": {"a": [1]},
    }
    settings = parse_settings(Example, table, "x")
    assert settings == Example(
        needed=3, rate=1.0, betas=(1.0, 0.5), columns=("de",), joint=True, least=2, more={"a": [1]}
    )
    assert [type(beta) for beta in (settings.rate, *settings.betas)] == [float] * 3
    assert settings.more is not table["more"]


def test_tables_in_tables():
    table = {"example": {"needed": 3}, "basis": {"name": "b"}, "model": {"x": 1}}
    whole = Whole(example=Example(needed=3), basis=Basis(name="b"), model={"x": 1})
    assert parse_settings(Whole, table, "x.toml") == whole
    assert (
        parse_settings(Whole, {"example": Example(needed=3), "basis": Basis(name="b"), "model": {"x": 1}}, "") == whole
    )
    assert to_table(whole)["basis"] == {"width": 4, "silent": 1, "name": "b"}
    assert "rate" not in to_table(whole)["example"]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"needed": 1, "widht": 2}, 'copy: unknown setting "widht"; did you mean "width"?'),
        ({}, "copy: missing needed"),
        ({"needed": True}, "copy.needed: expected an integer, got true"),
        ({"needed": 2.0}, "copy.needed: expected an integer, got 2.0"),
        ({"needed": None}, "copy.needed: expected an integer, got none"),
        ({"needed": 1, "width": 0}, "copy: width must be at least 1, got 0"),
        ({"needed": 1, "rate": "1"}, 'copy.rate: expected a number, got "1"'),
        ({"needed": 1, "rate": False}, "copy.rate: expected a number, got false"),
        ({"needed": 1, "rate": math.nan}, "copy.rate: expected a number, got nan"),
        ({"needed": 1, "rate": date(2024, 2, 29)}, "copy.rate: expected a number, got 2024-02-29"),
        ({"needed": 1, "kind": "word"}, 'unknown copy.kind "word"; did you mean "words"?'),
        ({"needed": 1, "kind": "x"}, 'unknown copy.kind "x"; choose from auto, bytes, words'),
        ({"needed": 1, "least": True}, 'unknown copy.least "True"; choose from 1, 2'),
        ({"needed": 1, "joint": "yes"}, 'copy.joint: expected true or false or auto, got "yes"'),
        ({"needed": 1, "joint": 1}, "copy.joint: expected true or false or auto, got 1"),
        ({"needed": 1, "quiet": 0}, "copy.quiet: expected true or false, got 0"),
        ({"needed": 1, "name": 7}, "copy.name: expected a string, got 7"),
        ({"needed": 1, "name": "a\udcff"}, 'copy.name: expected a string that UTF-8 can encode, got "a\\udcff"'),
        ({"needed": 1, "betas": [0.9, "x"]}, 'copy.betas: expected a list of numbers, got [0.9, "x"]'),
        ({"needed": 1, "betas": 0.9}, "copy.betas: expected a list of numbers, got 0.9"),
        ({"needed": 1, "columns": "de"}, 'copy.columns: expected a list of strings such as ["de"], got "de"'),
        ({"needed": 1, "more": 3}, "copy: [more]: expected a table, got 3"),
    ],
)
def test_what_does_not_fit_is_said(table, text):
    with refused(text):
        parse_settings(Example, table, "copy")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"exampel": {}}, 'x.toml: unknown setting "exampel"; did you mean "example"?'),
        ({"example": 5}, "x.toml: [example]: expected a table, got 5"),
        ({"example": {}}, "x.toml: [example] missing needed"),
        ({"example": {"widht": 2}}, 'x.toml: unknown setting "widht" in [example]; did you mean "width"?'),
        ({"example": {"needed": "3"}}, 'x.toml: [example] needed: expected an integer, got "3"'),
        ({"example": {"needed": 3, "width": -1}}, "x.toml: [example] width must be at least 1, got -1"),
        (
            {"example": {"needed": 3, "kind": "byte"}},
            'x.toml: [example] unknown kind "byte"; did you mean "bytes"?',
        ),
        ({"example": {"needed": 3}, "model": []}, "x.toml: [model]: expected a table, got []"),
    ],
)
def test_in_a_file_the_table_is_named(table, text):
    with refused(text):
        parse_settings(Whole, table, "x.toml")


def test_numbers_without_end():
    assert convert_value(math.inf, float, "x") == math.inf
    assert convert_value(-math.inf, float, "x") == -math.inf
    assert convert_value(10**300, float, "x") == 1e300
    with refused(f"x: expected a number, got 1{'0' * 400}"):
        convert_value(10**400, float, "x")


# the command line


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("needed", "12", 12),
        ("needed", "1_000", 1000),
        ("needed", "-3", -3),
        ("rate", "1e-3", 0.001),
        ("rate", "2", 2.0),
        ("rate", "inf", math.inf),
        ("rate", "none", None),
        ("kind", "words", "words"),
        ("least", "2", 2),
        ("joint", "auto", "auto"),
        ("joint", "yes", True),
        ("joint", "False", False),
        ("quiet", "TRUE", True),
        ("quiet", "no", False),
        ("name", "12", "12"),
        ("name", "none", "none"),
        ("betas", "0.9, 1", (0.9, 1.0)),
        ("columns", "a,b", ("a", "b")),
        ("columns", "1", ("1",)),
        ("columns", "", ()),
    ],
)
def test_what_somebody_types(name, typed, value):
    parsed = parse_value(typed, KINDS[name], f"--{name}")
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "typed", "text"),
    [
        ("needed", "many", '--needed: expected an integer, got "many"'),
        ("needed", "1.5", "--needed: expected an integer, got 1.5"),
        ("needed", "none", '--needed: expected an integer, got "none"'),
        ("rate", "nan", '--rate: expected a number, got "nan"'),
        ("rate", "fast", '--rate: expected a number, got "fast"'),
        ("kind", "Words", '--kind: unknown value "Words"; did you mean "words"?'),
        ("least", "3", '--least: unknown value "3"; choose from 1, 2'),
        ("joint", "maybe", '--joint: expected true or false or auto, got "maybe"'),
        ("quiet", "1", '--quiet: expected true or false, got "1"'),
        ("betas", "0.9,x", '--betas: expected a list of numbers, got [0.9, "x"]'),
        ("more", "a=1", '--more: expected a table, got "a=1"'),
        ("name", "\udcff", '--name: expected a string that UTF-8 can encode, got "\\udcff"'),
    ],
)
def test_what_somebody_types_wrongly(name, typed, text):
    with refused(text):
        parse_value(typed, KINDS[name], f"--{name}")


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("3", 3),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        *((word, word) for word in ("no", "nan", "de", "v2")),
    ],
)
def test_a_word_of_any_type_is_a_number_only_if_it_looks_like_one(typed, value):
    parsed = parse_value(typed, Any, "")
    assert (parsed, type(parsed)) == (value, type(value))


@given(st.text())
def test_whatever_is_typed_fits_or_is_refused(typed):
    for kind in (*KINDS.values(), Any):
        try:
            value = parse_value(typed, kind, "--x")
        except RegardError as error:
            assert str(error).startswith("--x")  # noqa: PT017
        else:
            assert convert_value(value, kind, "--x") == value


# TOML

texts = st.text()  # without half surrogates, with every control character
plain = (
    st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | texts
    | st.dates()
    | st.times().map(lambda value: value.replace(fold=0))
    | st.datetimes().map(lambda value: value.replace(fold=0))
    | st.sampled_from([1e-9, 1e16, 5e-324, -0.0, "\x7f", "\r\n", '"""', "\\", "\u2028", "\x00", "#"])
)
lists = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2))
tables = st.recursive(
    st.dictionaries(texts, plain | st.lists(lists, max_size=3), max_size=4),
    lambda inner: st.dictionaries(texts | st.sampled_from(["a.b", "", 'a"b', "a b"]), inner | plain, max_size=3),
    max_leaves=8,
)


def same(one, other):
    """Equal, nan to nan too, and of the same types."""
    return repr(one) == repr(other)


def sorted_keys(value):
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value


@given(tables)
def test_python_reads_what_we_write(table):
    assert same(sorted_keys(tomllib.loads(to_toml(table))), sorted_keys(table))


@given(
    st.builds(
        Example,
        needed=st.integers(),
        width=st.integers(1),
        rate=st.none() | st.floats(allow_nan=False),
        kind=st.sampled_from(["auto", "words", "bytes"]),
        joint=st.booleans() | st.just("auto"),
        quiet=st.booleans(),
        name=texts,
        betas=st.lists(st.floats(allow_nan=False)).map(tuple),
        columns=st.lists(texts).map(tuple),
        more=st.dictionaries(texts, st.integers() | texts),
    )
)
def test_settings_survive_a_file(settings):
    whole = Whole(example=settings)
    assert parse_settings(Whole, tomllib.loads(to_toml(to_table(whole))), "x") == whole


def test_toml_by_hand():
    table = {
        "model": {"name": "a", "deep": {"b c": 1e-9}, "none": {}},
        "plain": True,
        "nothing": None,
        "many": (1, "x", {"k": 2, "left out": None}),
        "day": datetime(2024, 2, 29, 12, 0, 30),
        "noon": time(12),
    }
    assert to_toml(table) == (
        "plain = true\n"
        'many = [1, "x", {k = 2}]\n'
        "day = 2024-02-29T12:00:30\n"
        "noon = 12:00:00\n"
        "\n"
        "[model]\n"
        'name = "a"\n'
        "\n"
        "[model.deep]\n"
        '"b c" = 1e-09\n'
        "\n"
        "[model.none]\n"
    )
    assert to_toml({}) == "\n"


def test_values_are_shown_as_toml_has_them():
    assert [format_value(value) for value in (None, True, "a", (1, 2.5), {"a": "b"})] == [
        "none",
        "true",
        '"a"',
        "[1, 2.5]",
        '{a = "b"}',
    ]


def test_a_file_is_read_with_or_without_a_mark_of_its_order(tmp_path):
    for start in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "x.toml").write_bytes(start + 'a = "ä"\r\n'.encode())
        assert read_toml(tmp_path / "x.toml") == {"a": "ä"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a = ", "Invalid value (at end of document)"),
        (b"a = 1\na = 2", "Cannot overwrite a value (at end of document)"),
        (b"a = '\xff'", "'utf-8' codec can't decode byte 0xff in position 5: invalid start byte"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path, content, reason):
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with refused(f"{path} is not valid TOML: {reason}"):
        read_toml(path)


@pytest.mark.parametrize("content", ["a = " + "1" * 5000, "a = " + "[" * 5000])
def test_a_file_that_overdoes_it(tmp_path, content):
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(RegardError, match=r"x.toml is not valid TOML: "):
        read_toml(path)


def test_a_file_that_is_not_there(tmp_path):
    with refused(f"cannot read {tmp_path}/x.toml: not found"):
        read_toml(tmp_path / "x.toml")
    with refused(f"cannot read {tmp_path}: is a directory"):
        read_toml(tmp_path)


@dataclass(frozen=True)
class Checked:
    kind: str = "a"
    kinds: tuple[str, ...] = ("a", "b")

    def __post_init__(self):
        check_choices(self, kind=("a", "b"), kinds=("a", "b"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"kind": "c"}, 'unknown kind "c"; choose from a, b'),
        ({"kinds": ("a", "c")}, 'unknown kinds "c"; choose from a, b'),
    ],
)
def test_names_that_are_no_choice_are_said(settings, text):
    with refused(text):
        Checked(**settings)


def test_an_empty_list_has_no_wrong_choice():
    Checked(kinds=())


def test_a_number_too_long_to_write_is_shown_by_its_size():
    assert format_value(10**5000) == "about 10^5000"
    assert format_value([1, -(10**5000)]) == "[1, about -10^5000]"
    with refused("x: expected a string, got about 10^5000"):
        convert_value(10**5000, str, "x")
