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
    check_known,
    check_least,
    check_shares,
    fields_of,
    fitting,
    from_table,
    in_words,
    read_toml,
    read_value,
    shown,
    to_table,
    to_toml,
)
from regard.tasks import recipes
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
            raise RegardError(f"width is {self.width}; 1 is the least")


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A table of tables."""

    example: Example
    basis: Basis = field(default_factory=Basis)
    model: dict[str, Any] = field(default_factory=dict)


KINDS = {name: each.type for name, each in fields_of(Example).items()}
EVERY = [
    *recipes().values(),
    TextSteps,
    *(each.type for kind in recipes().values() for each in fields_of(kind).values() if each.name != "model"),
    *(preset.config for preset in MODELS.values()),
    *CORPORA.values(),
]


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


# fields


def test_fields_know_their_remarks_defaults_and_types():
    found = fields_of(Example)
    assert list(found) == ["width", "silent", "name", "needed", *list(found)[4:]]
    assert {name: each.help for name, each in found.items() if each.help} == {
        "width": "in tokens",  # of the class that it comes from
        "name": "after a string with a # in it",
        "rate": "a number",
        "joint": "one vocabulary",
        "betas": "two of them",
    }
    assert found["needed"].default is dataclasses.MISSING
    assert (found["width"].default, found["more"].default) == (8, {})
    assert found["rate"].type == float | None


def test_a_class_without_source_has_no_remarks(monkeypatch):
    @dataclass
    class Other:
        width: int = 4  # in tokens

    def nowhere(kind):
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", nowhere)
    assert fields_of(Other)["width"].help == ""


def test_every_setting_of_regard_can_be_read_and_written():
    for kind in EVERY:
        found = fields_of(kind)
        for each in found.values():
            assert in_words(each.type), each
            if types.NoneType in get_args(each.type):  # or what is left out would be read as something else
                assert each.default is None, (kind, each.name)
        needed = {
            name: 8 if each.type is int else ["a", "b"]
            for name, each in found.items()
            if each.default is dataclasses.MISSING
        }
        settings = from_table(kind, needed, "here")
        assert from_table(kind, tomllib.loads(to_toml(to_table(settings))), "here") == settings
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
    found = from_table(Example, table, "x")
    assert found == Example(needed=3, rate=1.0, betas=(1.0, 0.5), columns=("de",), joint=True, least=2, more={"a": [1]})
    assert [type(beta) for beta in (found.rate, *found.betas)] == [float] * 3
    assert found.more is not table["more"]


def test_tables_in_tables():
    table = {"example": {"needed": 3}, "basis": {"name": "b"}, "model": {"x": 1}}
    whole = Whole(example=Example(needed=3), basis=Basis(name="b"), model={"x": 1})
    assert from_table(Whole, table, "x.toml") == whole
    assert from_table(Whole, {"example": Example(needed=3), "basis": Basis(name="b"), "model": {"x": 1}}, "") == whole
    assert to_table(whole)["basis"] == {"width": 4, "silent": 1, "name": "b"}
    assert "rate" not in to_table(whole)["example"]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"needed": 1, "widht": 2}, 'copy: settings: there is no "widht"; did you mean "width"?'),
        ({}, "copy: needed must be set"),
        ({"needed": True}, "copy.needed is true; a whole number is needed"),
        ({"needed": 2.0}, "copy.needed is 2.0; a whole number is needed"),
        ({"needed": None}, "copy.needed is none; a whole number is needed"),
        ({"needed": 1, "width": 0}, "copy: width is 0; 1 is the least"),
        ({"needed": 1, "rate": "1"}, 'copy.rate is "1"; a number is needed'),
        ({"needed": 1, "rate": False}, "copy.rate is false; a number is needed"),
        ({"needed": 1, "rate": math.nan}, "copy.rate is nan; a number is needed"),
        ({"needed": 1, "rate": date(2024, 2, 29)}, "copy.rate is 2024-02-29; a number is needed"),
        ({"needed": 1, "kind": "word"}, 'copy.kind: there is no "word"; did you mean "words"?'),
        ({"needed": 1, "kind": "x"}, 'copy.kind: there is no "x"; there are: auto, bytes, words'),
        ({"needed": 1, "least": True}, 'copy.least: there is no "True"; there are: 1, 2'),
        ({"needed": 1, "joint": "yes"}, 'copy.joint is "yes"; true or false or auto is needed'),
        ({"needed": 1, "joint": 1}, "copy.joint is 1; true or false or auto is needed"),
        ({"needed": 1, "quiet": 0}, "copy.quiet is 0; true or false is needed"),
        ({"needed": 1, "name": 7}, "copy.name is 7; a text is needed"),
        ({"needed": 1, "name": "a\udcff"}, 'copy.name is "a\\udcff"; a text that UTF-8 can write is needed'),
        ({"needed": 1, "betas": [0.9, "x"]}, 'copy.betas is [0.9, "x"]; a list of numbers is needed'),
        ({"needed": 1, "betas": 0.9}, "copy.betas is 0.9; a list of numbers is needed"),
        ({"needed": 1, "columns": "de"}, 'copy.columns is "de"; a list of texts is needed: ["de"]'),
        ({"needed": 1, "more": 3}, "copy: [more] is 3; a table is needed"),
    ],
)
def test_what_does_not_fit_is_said(table, text):
    with refused(text):
        from_table(Example, table, "copy")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"exampel": {}}, 'x.toml: settings: there is no "exampel"; did you mean "example"?'),
        ({"example": 5}, "x.toml: [example] is 5; a table is needed"),
        ({"example": {}}, "x.toml: [example] needed must be set"),
        ({"example": {"widht": 2}}, 'x.toml: [example] settings: there is no "widht"; did you mean "width"?'),
        ({"example": {"needed": "3"}}, 'x.toml: [example] needed is "3"; a whole number is needed'),
        ({"example": {"needed": 3, "width": -1}}, "x.toml: [example] width is -1; 1 is the least"),
        (
            {"example": {"needed": 3, "kind": "byte"}},
            'x.toml: [example] kind: there is no "byte"; did you mean "bytes"?',
        ),
        ({"example": {"needed": 3}, "model": []}, "x.toml: [model] is []; a table is needed"),
    ],
)
def test_in_a_file_the_table_is_named(table, text):
    with refused(text):
        from_table(Whole, table, "x.toml")


def test_numbers_without_end():
    assert fitting(math.inf, float, "x") == math.inf
    assert fitting(-math.inf, float, "x") == -math.inf
    assert fitting(10**300, float, "x") == 1e300
    with refused(f"x is 1{'0' * 400}; a number is needed"):
        fitting(10**400, float, "x")


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
    found = read_value(typed, KINDS[name], f"--{name}")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "typed", "text"),
    [
        ("needed", "many", '--needed is "many"; a whole number is needed'),
        ("needed", "1.5", "--needed is 1.5; a whole number is needed"),
        ("needed", "none", '--needed is "none"; a whole number is needed'),
        ("rate", "nan", '--rate is "nan"; a number is needed'),
        ("rate", "fast", '--rate is "fast"; a number is needed'),
        ("kind", "Words", '--kind: there is no "Words"; did you mean "words"?'),
        ("least", "3", '--least: there is no "3"; there are: 1, 2'),
        ("joint", "maybe", '--joint is "maybe"; true or false or auto is needed'),
        ("quiet", "1", '--quiet is "1"; true or false is needed'),
        ("betas", "0.9,x", '--betas is [0.9, "x"]; a list of numbers is needed'),
        ("more", "a=1", '--more is "a=1"; a table is needed'),
        ("name", "\udcff", '--name is "\\udcff"; a text that UTF-8 can write is needed'),
    ],
)
def test_what_somebody_types_wrongly(name, typed, text):
    with refused(text):
        read_value(typed, KINDS[name], f"--{name}")


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
    found = read_value(typed, Any, "")
    assert (found, type(found)) == (value, type(value))


@given(st.text())
def test_whatever_is_typed_fits_or_is_refused(typed):
    for kind in (*KINDS.values(), Any):
        try:
            value = read_value(typed, kind, "--x")
        except RegardError as error:
            assert str(error).startswith("--x")  # noqa: PT017
        else:
            assert fitting(value, kind, "--x") == value


# TOML

texts = st.text()  # without half surrogates, with every control character
plain = (
    st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | texts
    | st.dates()
    | st.times().map(lambda found: found.replace(fold=0))
    | st.datetimes().map(lambda found: found.replace(fold=0))
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
    assert from_table(Whole, tomllib.loads(to_toml(to_table(whole))), "x") == whole


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
    assert [shown(value) for value in (None, True, "a", (1, 2.5), {"a": "b"})] == [
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
    with refused(f"{path}: {reason}; a TOML file is needed"):
        read_toml(path)


@pytest.mark.parametrize("content", ["a = " + "1" * 5000, "a = " + "[" * 5000])
def test_a_file_that_overdoes_it(tmp_path, content):
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(RegardError, match=r"; a TOML file is needed$"):
        read_toml(path)


def test_a_file_that_is_not_there(tmp_path):
    with refused(f"{tmp_path}/x.toml: No such file or directory; a TOML file is needed"):
        read_toml(tmp_path / "x.toml")
    with refused(f"{tmp_path}: Is a directory; a TOML file is needed"):
        read_toml(tmp_path)


@dataclass(frozen=True)
class Checked:
    count: int | None = 1
    share: float | None = 0.0
    kind: str = "a"
    kinds: tuple[str, ...] = ("a", "b")

    def __post_init__(self):
        check_least(self, 1, "count")
        check_shares(self, "share")
        check_known(self, kind=("a", "b"), kinds=("a", "b"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"count": 0}, "count is 0; 1 is the least"),
        ({"share": 1.0}, "share is 1.0; a share from 0 to below 1 is needed"),
        ({"share": -0.1}, "share is -0.1; a share from 0 to below 1 is needed"),
        ({"kind": "c"}, 'kind: there is no "c"; there are: a, b'),
        ({"kinds": ("a", "c")}, 'kinds: there is no "c"; there are: a, b'),
    ],
)
def test_values_out_of_bounds_are_said(settings, text):
    with pytest.raises(RegardError, match=f"^{re.escape(text)}$"):
        Checked(**settings)


def test_what_is_left_open_or_empty_is_in_bounds():
    Checked(count=None, share=None, kinds=())
