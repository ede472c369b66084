import gettext
import gzip
import io
import json
import struct
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError
from regard.data.example import Example
from regard.data.formats import FORMATS, read_lines, read_pairs, read_parallel, tmx
from regard.data.formats import lines as lines_module

GREETING = Example("Guten Tag", "good day")


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name: str, content: str | bytes) -> str:
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return name

    return put


def pairs(*args, **kwargs) -> list[tuple[str, str]]:
    return [(example.source, example.target) for example in read_pairs(*args, **kwargs)]


def error(call, *args, **kwargs) -> str:
    with pytest.raises(RegardError) as caught:
        list(call(*args, **kwargs))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def mo(*entries: tuple[bytes, bytes], order: str = "<") -> bytes:
    """An MO file as the manual of GNU gettext lays it out."""
    count, start = len(entries), 28
    index, tables, strings = start + 16 * count, [b"", b""], b""
    for side in range(2):
        for entry in entries:
            tables[side] += struct.pack(f"{order}2I", len(entry[side]), index + len(strings))
            strings += entry[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, count, start, start + 8 * count, 0, index)
    return head + tables[0] + tables[1] + strings


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de"/><body>
<tu><note>met often</note>
 <tuv xml:lang="en-GB"><seg>good day</seg></tuv>
 <tuv xml:lang="de"><seg>Guten <bpt i="1">&lt;b><sub>no</sub></bpt><hi>Tag</hi><ept i="1">&lt;/b></ept></seg></tuv>
</tu></body></tmx>
"""

ONE_OF_EACH = {
    "a.tsv": "Guten Tag\tgood day\n",
    "a.csv": 'Guten Tag,"good day"\n',
    "a.jsonl": '{"target": "good day", "source": "Guten Tag"}\n',
    "a.tmx": TMX,
    "a.po": 'msgid "Guten Tag"\nmsgstr "good day"\n',
    "a.mo": mo((b"Guten Tag", b"good day")),
}


# Every format


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_each_format_plain_and_zipped(write, name, ending):
    assert list(read_pairs(write(name + ending, ONE_OF_EACH[name]))) == [GREETING]


def test_each_format_is_met():
    assert {name[2:] for name in ONE_OF_EACH} == set(FORMATS)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_format_can_be_said(write, name):
    assert list(read_pairs(write("a", ONE_OF_EACH[name]), format=name[2:])) == [GREETING]


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=60)
@given(junk=st.binary(max_size=60), start=st.integers(0, 400))
def test_junk_is_read_or_refused(tmp_path_factory, kind, junk, start):
    whole = ONE_OF_EACH[f"a.{kind}"]
    whole = whole if isinstance(whole, bytes) else whole.encode()
    path = tmp_path_factory.getbasetemp() / f"junk.{kind}"
    path.write_bytes(whole[:start] + junk + whole[start:])
    with suppress(RegardError):
        assert all(example.source and example.target for example in read_pairs(path))


def test_only_what_was_asked_for_is_read(write):
    examples = read_pairs(write("a.tsv", b"a\tb\n" + b"\xff\n"))
    assert next(examples) == Example("a", "b")
    with pytest.raises(RegardError):
        next(examples)


@pytest.mark.parametrize("said", [None, "csv"])
def test_standard_input_is_tsv_unless_told_otherwise(monkeypatch, said):
    separator = b"," if said else b"\t"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a" + separator + b"b\nx\n")))
    examples = read_pairs("-", format=said)
    assert next(examples) == Example("a", "b")
    with pytest.raises(RegardError, match=r"^standard input, line 2: expected 2 columns"):
        next(examples)
    assert not sys.stdin.buffer.closed


# Lines


def test_lines_end_at_newlines_alone(write):
    text = "one\u2028still\x0cone\x85 \r\n\n  two\rtwo \nlast"
    assert list(read_lines(write("a", text))) == ["one\u2028still\x0cone", "", "two\rtwo", "last"]


def test_a_byte_order_mark_is_no_text(write):
    assert list(read_lines(write("a", b"\xef\xbb\xbfone\ntwo\n"))) == ["one", "two"]
    assert pairs(write("a.tsv", b"\xef\xbb\xbfsource\ttarget\r\na\tb\r\n")) == [("a", "b")]


def test_text_stays_as_it_is(write):
    decomposed = "u\u0308 ﬁ\u00a0x"
    assert list(read_lines(write("a", decomposed))) == [decomposed]


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", codec="utf-8"))))
def test_as_many_lines_as_newlines(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "lines.gz"
    path.write_bytes(gzip.compress("".join(f"x{text}x\n" for text in texts).encode()))
    assert list(read_lines(path)) == [f"x{text}x" for text in texts]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\nb\xffc\n", "a, line 2: byte 2 (0xff) is not valid UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\0", "a, line 1: looks like UTF-16; save the file as UTF-8"),
        (gzip.compress(b"ab", mtime=0), "a is gzipped; rename it to end in .gz, or decompress it"),
        (b"ab\0c", "a, line 1: byte 3 is 0x00, which is not text; save the file as UTF-8"),
    ],
)
def test_what_is_no_text(write, content, said):
    assert error(read_lines, write("a", content)) == said


def test_a_line_without_end_is_refused(write, monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 4)
    assert list(read_lines(write("a", "abc\nabcd"[:7]))) == ["abc", "abc"]
    said = "a, line 2: line is longer than 4 bytes; expected one text per line"
    assert error(read_lines, write("a", "abc\nabcde\n")) == said


def test_files_that_cannot_be_read(write, tmp_path):
    assert error(read_lines, "none.txt") == "cannot read none.txt: not found"
    assert error(read_lines, tmp_path) == f"cannot read {tmp_path}: expected a file, got a folder"
    assert error(read_lines, "a\0b") == '"a b" is not a valid file name: it contains the byte 0x00'
    assert error(read_lines, f"{write('a', '')}/b") == "cannot read a/b: Not a directory"


def test_damaged_gzip(write, tmp_path):
    whole = gzip.compress(b"some text\n" * 9, mtime=0)
    for raw, reason in [
        (whole[:-9], "Compressed file ended before the end-of-stream marker was reached"),
        (b"plain", "Not a gzipped file (b'pl')"),
    ]:
        (tmp_path / "a.gz").write_bytes(raw)
        assert error(read_lines, "a.gz") == f"a.gz is corrupt: not a complete gzip file ({reason})"
    (tmp_path / "a.gz").write_bytes(whole[:12] + b"\xff" + whole[13:])
    assert error(read_lines, "a.gz").startswith("a.gz is corrupt: not a complete gzip file (")


# Which format, which columns, what is empty


def test_a_name_that_tells_no_format(write):
    said = (
        "train.txt.gz: cannot infer the format from the file name; "
        "pass --data.format, or use one of .csv, .gmo, .jsonl, "
        ".mo, .ndjson, .po, .tab, .tmx, .tsv; "
        "for lemma, form and features, pass --format unimorph; "
        "for plain text, choose a language model (--model lstm-lm)"
    )
    assert error(read_pairs, "train.txt.gz") == said
    assert error(read_pairs, "a.tsv", format="tvs") == 'unknown data.format "tvs"; did you mean "tsv"?'
    assert error(read_pairs, "a.tsv", on_empty="leave") == 'unknown data.on_empty "leave"; choose from error, skip'
    assert error(read_pairs, "a.tsv", columns=["a"]) == "data.columns: expected 2 columns, source and target, got 1"
    assert pairs(write("A.TSV.gz", "a\tb")) == [("a", "b")]


@pytest.mark.parametrize(
    ("line", "side"),
    [
        ("\tb", "the source is"),
        ("a\t ", "the target is"),
        ("\t", "source and target are"),
        ("", "source and target are"),
    ],
)
def test_empty_sides(write, line, side):
    path = write("a.tsv", f"a\tb\n{line}\nc\td\n")
    said = f"a.tsv, line 2: {side} empty; pass --data.on-empty skip to skip such pairs"
    assert error(read_pairs, path) == said
    assert pairs(path, on_empty="skip") == [("a", "b"), ("c", "d")]


# Two files


def test_two_files_side_by_side(write):
    source, target = write("a.de", "ein\r\nzwei\n"), write("a.en.gz", "one\ntwo")
    assert list(read_parallel(source, target)) == [Example("ein", "one"), Example("zwei", "two")]


@pytest.mark.parametrize(("source_lines", "target_lines"), [(3, 1), (1, 3), (0, 2), (4, 0)])
def test_two_files_of_different_length(write, source_lines, target_lines):
    source, target = write("train.de", "a\n" * source_lines), write("train.en", "b\n" * target_lines)
    counted = "1 line" if source_lines == 1 else f"{source_lines} lines"
    said = f"train.de has {counted}, train.en {target_lines}; line n of one must translate line n of the other"
    assert error(read_parallel, source, target) == said


def test_two_files_with_an_empty_line(write):
    source, target = write("a.de", "ein\n\n"), write("a.en", "one\ntwo\n")
    said = "a.de and a.en, line 2: the source is empty; pass --data.on-empty skip to skip such pairs"
    assert error(read_parallel, source, target) == said
    assert len(list(read_parallel(source, target, on_empty="skip"))) == 1
    assert error(read_parallel, "-", "-") == (
        "standard input cannot be both source and target; one of them must be a file"
    )


# Tables


@pytest.mark.parametrize("columns", [None, (3, 1), ("3", "1"), ("source", "Target"), ("source", 1)])
def test_a_header_is_no_pair(write, columns):
    assert pairs(write("a.tsv", "Target\tid\tsource\nb\t1\ta\n"), columns=columns) == [("a", "b")]


def test_columns_by_name_and_number(write):
    table = write("a.tsv", "id\tde\ten\n1\tja\tyes\n2\tnein\tno\n")
    assert pairs(table, columns=("en", "de")) == [("yes", "ja"), ("no", "nein")]
    assert pairs(table, columns=(2, "en")) == [("ja", "yes"), ("nein", "no")]
    assert pairs(table, columns=(2, 3)) == [("de", "en"), ("ja", "yes"), ("nein", "no")]  # no header was spoken of
    assert pairs(table, columns=("2", "3")) == pairs(table, columns=(2, 3))


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        ("a b\n", None, 'expected source and target separated by a tab, got "a b"'),
        ("a\tb\tc\n", None, "expected 2 columns, got 3 columns (2 tabs); "
         "choose source and target by number or name: --data.columns 1,2, "
         "or join columns on one side: --data.columns 1+3,2"),
        ("a\tb\n", (1, 3), "column 3 does not exist; the line has 2 columns"),
        ("de\ten\n", ("de", "fr"), 'unknown column "fr"; this line has "de, en"'
         "; names need a header; without one, choose columns by number"),
    ],
)  # fmt: skip
def test_columns_that_are_not_there(write, content, columns, said):
    assert error(read_pairs, write("a.tsv", content), columns=columns) == f"a.tsv, line 1: {said}"


def test_rows_of_different_width(write):
    said = "a.tsv, line 2: expected 2 columns, as in line 1, got 3 columns (2 tabs)"
    more = "; to ignore other columns, pass --data.columns 1,2"
    assert error(read_pairs, write("a.tsv", "a\tb\nc\td\te\n")) == said + more
    assert error(read_pairs, "a.tsv", columns=(1, 2)) == said
    assert error(read_pairs, "a.tsv", columns=(0, 2)) == "column numbers start at 1, got 0"
    said = "a.tsv, line 2: expected {} columns, as in line 1, got {}; a tab{} is missing"
    one = said.format(2, "1 column (0 tabs)", " between {}")
    assert error(read_pairs, write("a.tsv", "a\tb\nc d\n")) == one.format("source and target")
    assert error(read_pairs, "a.tsv", columns=(2, 1)) == one.format("target and source")
    write("a.tsv", "a\tb\tc\nd\te\n")
    assert error(read_pairs, "a.tsv", columns=(1, 2)) == said.format(3, "2 columns (1 tab)", "")


def test_csv_quotes(write):
    content = 'source,target\n"a, b","say ""x"""\r\n"two\nlines",c\n\nd,e\n'
    assert pairs(write("a.csv", content), on_empty="skip") == [("a, b", 'say "x"'), ("two\nlines", "c"), ("d", "e")]
    assert error(read_pairs, "a.csv").startswith("a.csv, line 5: source and target are empty;")


@pytest.mark.parametrize(("row", "reason"), [('"a"b,c', "',' expected after '\"'"), ('"a,b', "unexpected end of data")])
def test_csv_that_is_none(write, row, reason):
    assert error(read_pairs, write("a.csv", f"x,y\n{row}\n")) == (
        f'a.csv, line 2 is not valid CSV: {reason}; put text with commas or quotes in "", and double the quotes inside'
    )


def test_csv_with_other_separators(write):
    assert error(read_pairs, write("a.csv", "a;b\n")) == (
        "a.csv, line 1: columns are separated by semicolons; save the file with commas or tabs"
    )
    assert error(read_pairs, write("a.csv", "a b\n")) == (
        'a.csv, line 1: expected source and target separated by a comma, got "a b"'
    )


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8"), min_size=1)] * 2), min_size=1))
def test_jsonl_against_json(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "texts.jsonl"
    path.write_text("".join(json.dumps({"translation": {"de": a, "en": b}}) + "\n" for a, b in texts))
    kept = [(a.strip(), b.strip()) for a, b in texts if a.strip() and b.strip()]
    assert pairs(path, columns=("translation.de", "translation.en"), on_empty="skip") == kept


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"source": "a"',
         "is not valid JSON: Expecting ',' delimiter: line 1 column 15 (char 14)"),
        ("[1]", 'expected an object, {"source": "…", "target": "…"}, got "[1]"'),
        ('{"id": 1, "translation": {"de": "a", "en": "b"}}',
         'missing key "source"; this line has the keys "id, translation.de, translation.en"; '
         "to read other keys, pass them as --data.columns"),
        ('{"source": true, "target": "b"}', 'expected a string in "source", got true'),
        ('{"source": "\\ud800", "target": "b"}',
         '"source" contains an unpaired surrogate, \\ud800 to \\udfff'),
        ('{"source": null, "target": "b"}', "the source is empty; pass --data.on-empty skip to skip such pairs"),
    ],
)  # fmt: skip
def test_jsonl_that_is_none(write, line, said):
    assert (
        error(read_pairs, write("a.jsonl", f"{line}\n"))
        == f"a.jsonl, line 1{' ' if said.startswith('is ') else ': '}{said}"
    )


def test_jsonl_numbers_are_their_text(write):
    path = write("a.jsonl", '{"source": 551, "target": -1.50}\n{"source": "DLI", "target": 1e3}\n')
    assert pairs(path) == [("551", "-1.50"), ("DLI", "1e3")]


def test_jsonl_keys(write):
    path = write("a.jsonl", '{"a.b": "x", "c": "y"}\n')
    assert pairs(path, columns=("a.b", "c")) == [("x", "y")]
    assert error(read_pairs, path, columns=(1, 2)) == (
        "a.jsonl: JSON lines need column names, got 1; as in --data.columns de,en"
    )
    assert error(read_pairs, write("a.jsonl", "[" * 100_000)).startswith("a.jsonl, line 1 is not valid JSON: ")


# Translation memories


def memory(*units: str, header: str = '<header srclang="*all*"/>') -> str:
    return f"<tmx>{header}<body>\n" + "\n".join(f"<tu>{unit}</tu>" for unit in units) + "\n</body></tmx>"


def said_in(**texts: str) -> str:
    return "".join(f'<tuv xml:lang="{name}"><seg>{text}</seg></tuv>' for name, text in texts.items())


def test_languages_of_a_memory(write):
    path = write(
        "a.tmx", memory(said_in(de="ja", en_US="yes", fr="oui"), said_in(de="nein"), said_in(fr="non", DE="nein"))
    )
    assert pairs(path, columns=("de", "fr")) == [("ja", "oui"), ("nein", "non")]
    assert pairs(path, columns=("en", "de")) == [("yes", "ja")]
    assert pairs(path, columns=("en-us", "de")) == [("yes", "ja")]
    assert error(read_pairs, path, columns=("en-GB", "de")) == (
        'a.tmx: no unit has both "en-GB" and "de"; choose two of DE, de, en_US, fr with --data.columns'
    )
    assert error(read_pairs, path) == (
        'a.tmx, line 2: cannot infer the languages: texts in de, en_US, fr, srclang "*all*"; '
        "choose source and target: --data.columns de,en"
    )


def test_a_memory_in_another_encoding(write):
    whole = '<?xml version="1.0" encoding="{}"?>' + memory(said_in(de="schön", en="fine"))
    for encoding in ("utf-16", "iso-8859-1", "windows-1252"):
        raw = whole.format(encoding).encode(encoding)
        assert pairs(write("a.tmx", raw), columns=("de", "en")) == [("schön", "fine")]
    assert error(read_pairs, write("a.tmx", whole.format("none"))) == (
        "a.tmx: unsupported encoding (unknown encoding: none); save the file as UTF-8"
    )


def test_a_long_memory_is_read_in_blocks(write):
    units = [said_in(de=f"Satz {n} ü&amp;", en=f"sentence {n}") for n in range(1200)]  # several blocks
    examples = read_pairs(write("a.tmx", memory(*units)[:-6]), columns=("de", "en"))
    for n in range(1000):
        assert next(examples) == Example(f"Satz {n} ü&", f"sentence {n}")
    with pytest.raises(RegardError, match=r"^a.tmx, line 1202 is not valid XML: no element found$"):
        list(examples)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<html/>", "a.tmx, line 1 is not TMX: expected <tmx>, got <html>"),
        ("<tmx>\n<a></tmx>", "a.tmx, line 2 is not valid XML: mismatched tag"),
        ("", "a.tmx, line 1 is not valid XML: no element found"),
        (memory("<tuv><seg>a</seg></tuv>"), "a.tmx, line 2: <tuv> has no xml:lang"),
        ('<!DOCTYPE tmx [\n<!ENTITY a SYSTEM "/etc/passwd">]><tmx/>',
         'a.tmx, line 2: entity "a" is not allowed; write the text itself'),
        ('<!DOCTYPE tmx SYSTEM "x">' + memory(said_in(de="a&nbsp;b", en="a")),
         'a.tmx, line 2: entity "nbsp" is not allowed; write the text itself'),
    ],
)  # fmt: skip
def test_a_memory_that_is_none(write, content, said):
    assert error(read_pairs, write("a.tmx", content)) == said


# Catalogues

CATALOGUE = r"""# of the translators
#, fuzzy
msgid ""
msgstr ""
"Last-Translator: Jürgen\n"
"Content-Type: text/plain; charset=%s\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: place.c:7
#, c-format
msgid "a \"file\"\n"
msgstr "eine \x22Datei\042\n"
#, fuzzy, c-format
#| msgid "older"
msgid "fuzzy"
msgstr "unscharf"

msgid "untranslated"
msgstr ""

msgctxt "menu"
msgid ""
"over "
"lines\\n"
msgstr ""
"über "
"Zeilen\\n"

msgid "%%d file"
msgid_plural "%%d files"
msgstr[0] "%%d Datei"
msgstr[1] "%%d Dateien"

#, fuzzy
#~ msgid "obsolete"
#~ msgstr "veraltet"

msgid "last"
msgstr "zuletzt"
"""

TRANSLATED = [
    ('a "file"', 'eine "Datei"'),
    ("over lines\\n", "über Zeilen\\n"),
    ("%d file", "%d Datei"),
    ("%d files", "%d Dateien"),
    ("last", "zuletzt"),
]


@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-1", "cp1252"])
def test_a_catalogue(write, charset):
    path = write("de.po", (CATALOGUE % charset).encode(charset))
    assert pairs(path) == TRANSLATED
    assert pairs(path, columns=("msgstr", "msgid")) == [(target, source) for source, target in TRANSLATED]


def test_a_template_has_nothing_translated(write):
    header = "Content-Type: text/plain; charset=CHARSET\\nPlural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"
    assert pairs(write("a.po", f'msgid ""\nmsgstr "{header}"\n\nmsgid "a"\nmsgstr ""\n')) == []


@pytest.mark.parametrize(
    ("rule", "forms", "expected"),
    [
        ("nplurals=1; plural=0;", ["x"], [("one", "x"), ("many", "x")]),
        ("nplurals=2; plural=n>1;", ["x", "y"], [("one", "x"), ("many", "y")]),
        ("nplurals=2; plural=n==1;", ["x", "y"], [("many", "x"), ("one", "y")]),
        ("nplurals=3; plural=n==1 ? 0 : n<5 ? 1 : 2;", ["x", "y", "z"], [("one", "x"), ("many", "y"), ("many", "z")]),
    ],
)
def test_plural_forms(write, rule, forms, expected):
    strings = "".join(f'msgstr[{n}] "{form}"\n' for n, form in enumerate(forms))
    entry = f'msgid "one"\nmsgid_plural "many"\n{strings}'
    assert pairs(write("a.po", f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\n{entry}')) == expected
    key, translation = b"one\0many", "\0".join(forms).encode()
    assert pairs(write("a.mo", mo((b"", f"Plural-Forms: {rule}\n".encode()), (key, translation)))) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('msgid "a"\n', "line 1: expected msgid and msgstr in the entry, got msgid"),
        ('msgid "a"\nmsgid "b"\n', "line 2: duplicate msgid in one entry"),
        ('msgid "a"\nmsgstr b\n', 'line 2: expected a line such as msgid "…", got "msgstr b"'),
        ('"a"\n', 'line 1: expected a line such as msgid "…", got ""a""'),
        ('msgid "a"\nmsgstr "x"\n"\\q"\n', 'line 3: invalid escape \\q; write a quote as \\" and a backslash as \\\\'),
        ('msgid "a"\nmsgstr "x"y"\n', 'line 2: invalid escape "; write a quote as \\" and a backslash as \\\\'),
        ('msgid "a"\nmsgstr "\\8"\n', 'line 2: invalid escape \\8; write a quote as \\" and a backslash as \\\\'),
        ('msgid ""\nmsgstr "charset=klingon"\n', 'line 1: unknown charset "klingon" in the header; use UTF-8'),
        ('msgid ""\nmsgstr "charset=base64"\n', 'line 1: unknown charset "base64" in the header; use UTF-8'),
        (
            'msgid ""\nmsgstr "plural=n%0;"\n',
            'line 1: invalid plural rule "n%0" in the header; expected one such as (n != 1)',
        ),
        (
            'msgid ""\nmsgstr "plural=os;"\n',
            'line 1: invalid plural rule "os" in the header; expected one such as (n != 1)',
        ),
    ],
)
def test_a_catalogue_that_is_none(write, content, said):
    assert error(read_pairs, write("a.po", content)) == f"a.po, {said}"


def test_a_catalogue_in_the_wrong_charset(write):
    raw = (CATALOGUE % "UTF-8").encode("latin-1")
    said = "de.po, line 26: byte 1 (0xfc) is not valid UTF-8; save the file as UTF-8"
    assert error(read_pairs, write("de.po", raw)) == said
    assert error(read_pairs, "de.po", columns=("de", "en")) == (
        "de.po: expected the columns msgid and msgstr, got de and en"
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_compiled_catalogue(write, order):
    header = b"Content-Type: text/plain; charset=ISO-8859-1\n"
    raw = mo((b"", header), (b"menu\4over", "über".encode("latin-1")), (b"yes", b"ja"), order=order)
    reference = gettext.GNUTranslations(io.BytesIO(raw))
    expected = [("over", reference.pgettext("menu", "over")), ("yes", reference.gettext("yes"))]
    assert pairs(write("a.mo", raw)) == expected == [("over", "über"), ("yes", "ja")]


def test_a_compiled_catalogue_that_is_none(write):
    whole = mo((b"yes", b"ja"))
    assert error(read_pairs, write("a.mo", b"PK\3\4")) == (
        "a.mo is not an MO file: expected 0xde120495 at the start, got 0x504b0304"
    )
    for raw in (whole[:10], whole[:40], whole[:-2]):
        assert error(read_pairs, write("a.mo", raw)) == (
            f"a.mo is corrupt: its tables extend past the end of the file ({len(raw)} bytes)"
        )
    assert error(read_pairs, write("a.mo", mo((b"yes", b"\xff")))) == (
        "a.mo, entry 1: byte 1 (0xff) is not valid UTF-8; save the file as UTF-8"
    )


ENTRIES = st.text(st.characters(codec="utf-8", exclude_characters="\0\4"), min_size=1).filter(str.strip)


@settings(max_examples=50)
@given(texts=st.dictionaries(ENTRIES, ENTRIES, min_size=1, max_size=5))
def test_catalogues_as_babel_writes_them(tmp_path_factory, texts):
    catalog_module = pytest.importorskip("babel.messages.catalog")
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import write_po

    texts = {key: text for key, text in texts.items() if "\r" not in key + text}  # babel leaves these as they are
    catalog = catalog_module.Catalog(locale="de")
    for key, text in texts.items():
        catalog.add(key, text)
    expected = {(key.strip(), text.strip()) for key, text in texts.items()}
    for name, write_catalog in (("babel.po", write_po), ("babel.mo", write_mo)):
        path = tmp_path_factory.getbasetemp() / name
        with path.open("wb") as file:
            write_catalog(file, catalog)
        assert set(pairs(path)) == expected


TMX_START = '<tmx version="1.4"><header srclang="en"/><body>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<!--" + "x" * 17_000_000, "line 1: a tag or comment is longer than 16,777,216 bytes"),
        ('<tu><tuv xml:lang="' + "x" * 17_000_000, "line 1: a tag or comment is longer than 16,777,216 bytes"),
        ("<tu>" * 2000, "line 1: elements are nested more than 1,000 deep"),
        (
            '<tu><tuv xml:lang="en"><seg>' + "word " * 3_400_000,
            "line 1: a unit is longer than 16,777,216 characters",
        ),
        ('<tu><tuv xml:lang="' + "x" * 200 + '">', f'line 1: invalid xml:lang "{"x" * 59}…"'),
        (
            "".join(f'<tuv xml:lang="x{number}"/>' for number in range(1100)),
            'line 1: invalid xml:lang "x1000"',
        ),
    ],
    ids=["comment", "attribute", "nesting", "unit", "language", "languages"],
)
def test_a_memory_has_limits(content, message, tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(TMX_START + content)
    with pytest.raises(RegardError) as error:
        list(read_pairs(path, columns=("en", "de")))
    assert str(error.value) == f"{path}, {message}"


def test_each_byte_of_an_open_comment_is_read_a_few_times(tmp_path, monkeypatch):  # expat starts it over each time
    path, parsed = tmp_path / "a.tmx", []

    class Counting(tmx.TmxParser):
        def feed(self, block):
            parsed.append(len(block) + self.pending)
            super().feed(block)

    monkeypatch.setattr(tmx, "TmxParser", Counting)
    path.write_text(TMX_START + "<!--" + "x" * 4_000_000)
    with pytest.raises(RegardError, match="unclosed token"):
        list(read_pairs(path))
    assert sum(parsed) < 4 * path.stat().st_size


def build_mo(lengths, starts, size=200):
    """Return an MO file of one entry."""
    tables = struct.pack("<4I", lengths[0], starts[0], lengths[1], starts[1])
    return (struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 0) + tables).ljust(size, b"x")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (build_mo((4, 4), (100, 1000)), "its tables extend past the end of the file (200 bytes)"),
        (build_mo((2**31, 4), (100, 100)), "its strings are longer than the file (200 bytes)"),
        (build_mo((150, 150), (50, 50)), "its strings are longer than the file (200 bytes)"),
        (
            struct.pack("<7I", 0x950412DE, 0, 2**31, 28, 36, 0, 0),
            "its tables extend past the end of the file (28 bytes)",
        ),
        (struct.pack("<I", 0x950412DE), "its tables extend past the end of the file (4 bytes)"),
    ],
)
@pytest.mark.parametrize("name", ["a.mo", "a.mo.gz"])
def test_a_compiled_catalog_is_read_within_its_bounds(content, reason, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(RegardError) as error:
        list(read_pairs(path))
    assert str(error.value) == f"{path} is corrupt: {reason}"


def test_a_gzipped_compiled_catalog_is_read(tmp_path):
    entry = build_mo((3, 4), (100, 110))
    content = entry[:100] + b"dog".ljust(10, b"x") + b"Hund".ljust(90, b"x")
    (tmp_path / "a.mo.gz").write_bytes(gzip.compress(content))
    assert list(read_pairs(tmp_path / "a.mo.gz")) == [Example("dog", "Hund")]


@pytest.mark.parametrize("charset", ["unicode_escape", "punycode", "utf-7", "idna", "hex", "utf-9"])
def test_a_charset_that_no_catalog_has_is_refused(charset, tmp_path):
    path = tmp_path / "a.po"
    path.write_text(f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n')
    with pytest.raises(RegardError) as error:
        list(read_pairs(path))
    assert str(error.value) == f'{path}, line 1: unknown charset "{charset}" in the header; use UTF-8'


def test_an_entry_of_a_catalog_has_a_limit(tmp_path):
    path = tmp_path / "a.po"
    path.write_text('msgid "a"\nmsgstr "b"\n' + f'"{"x" * 1_000_000}"\n' * 17)
    with pytest.raises(RegardError) as error:
        list(read_pairs(path))
    assert str(error.value) == f"{path}, line 19: entry is longer than 16,777,216 bytes"


def test_a_plural_rule_that_gettext_passes_on_to_python_is_refused(tmp_path):
    path = tmp_path / "a.po"
    path.write_text('msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n !=!1);\\n"\n')
    with pytest.raises(RegardError) as error:
        list(read_pairs(path))
    expected = 'invalid plural rule "(n !=!1)" in the header; expected one such as (n != 1)'
    assert str(error.value) == f"{path}, line 1: {expected}"
