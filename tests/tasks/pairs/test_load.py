import io
import sys

import pytest

from regard.data.example import Example
from regard.errors import RegardError
from regard.tasks.pairs.load import load_corpus
from regard.tasks.pairs.settings import PairData

LETTERS = {"shortest": 2, "longest": 3, "alphabet": "abc"}


def pairs(count: int, first: int = 0) -> str:
    return "".join(f"source {n}\ttarget {n}\n" for n in range(first, first + count))


def write(folder, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_part_of_one_file_is_held_out_and_it_is_said(tmp_path):
    path = write(tmp_path, "pairs.tsv", pairs(20))
    found = load_corpus(PairData(train=path, held_out=0.2), seed=0)
    assert (len(found.train), len(found.valid)) == (16, 4)
    assert sorted([*found.train, *found.valid], key=lambda e: int(e.source.split()[1])) == [
        Example(f"source {n}", f"target {n}") for n in range(20)
    ]
    assert found.origin == f"{path}, of which 4 pairs are held out to validate with"
    assert load_corpus(PairData(train=path, held_out=0.2), seed=0) == found
    assert load_corpus(PairData(train=path, held_out=0.2), seed=1).valid != found.valid


def test_two_files_and_two_to_validate_with(tmp_path):
    names = {name: write(tmp_path, name, f"{name} 1\n{name} 2\n") for name in ("a", "b", "c", "d")}
    settings = PairData(source=names["a"], target=names["b"], valid_source=names["c"], valid_target=names["d"])
    found = load_corpus(settings, seed=0)
    assert found.train == [Example("a 1", "b 1"), Example("a 2", "b 2")]
    assert found.valid == [Example("c 1", "d 1"), Example("c 2", "d 2")]
    assert found.origin == f"{names['a']} and {names['b']}"


def test_a_built_in_corpus_is_made_with_its_settings():
    found = load_corpus(PairData(train="reverse", count=20, held_out=0.1, corpus=LETTERS), seed=3)
    assert (len(found.train), len(found.valid)) == (20, 2)
    assert all(example.target == example.source[::-1] for example in (*found.train, *found.valid))
    assert not {example.source for example in found.train} & {example.source for example in found.valid}
    assert found.origin == "the built-in corpus reverse, seed 3"


def test_a_built_in_corpus_can_be_validated_with_a_file(tmp_path):
    path = write(tmp_path, "pairs.tsv", pairs(2))
    found = load_corpus(PairData(train="reverse", count=20, valid=path, corpus=LETTERS), seed=0)
    assert [example.source for example in found.valid] == ["source 0", "source 1"]
    assert len(found.train) == 20


def test_pairs_come_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pairs(4).encode())))
    found = load_corpus(PairData(train="-"), seed=0)
    assert len(found.train) + len(found.valid) == 4


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {},
            "data: nothing to train on; give a file of pairs, --source and --target, or a built-in corpus "
            "(copy, dates, numbers, reverse, sort, toy-en-de)",
        ),
        ({"source": "a"}, "data: --target is missing; two files, line by line, are needed"),
        ({"target": "a"}, "data: --source is missing; two files, line by line, are needed"),
        (
            {"train": "copy", "valid_target": "a"},
            "data: --valid-source is missing; two files, line by line, are needed",
        ),
        (
            {"train": "copy", "source": "a", "target": "b"},
            "data: found copy and --source a; give one file of pairs, or two files",
        ),
        ({"train": "date"}, 'file or built-in corpus: there is no "date"; did you mean "dates"?'),
        (
            {"train": "xyzzy"},
            'file or built-in corpus: there is no "xyzzy"; '
            "there are: copy, dates, numbers, reverse, sort, toy-en-de",
        ),
        ({"train": "folder"}, "folder: is a folder; a file of pairs or a built-in corpus is needed"),
        ({"train": "nothing.tsv"}, "nothing.tsv: there is no such file"),
        ({"train": "empty.tsv"}, "empty.tsv: no pairs are there; at least one is needed"),
        ({"train": "two.tsv", "valid": "empty.tsv"}, "empty.tsv: no pairs are there; at least one is needed"),
        ({"train": "copy", "valid": "empty.tsv"}, "empty.tsv: no pairs are there; at least one is needed"),
        ({"source": "empty.tsv", "target": "empty.tsv"}, "empty.tsv and empty.tsv: no pairs are there; "
         "at least one is needed"),
        ({"train": "two.tsv", "valid": "copy"}, "data: --valid is copy, a built-in corpus; a file of pairs is needed"),
        (
            {"train": "two.tsv", "corpus": {"longest": 3}},
            "data: [corpus] is for a built-in corpus; found two.tsv",
        ),
        ({"train": "copy", "held_out": 1.0}, "data: held_out is 1.0; a share above 0 and below 1 is needed"),
        (
            {"train": "copy", "held_out": float("nan")},
            "data: held_out is nan; a share above 0 and below 1 is needed",
        ),
        ({"train": "-", "valid": "-"}, "standard input: was given more than once; it can be read once"),
        (
            {"train": "copy", "corpus": {"longst": 3}},
            'copy: settings: there is no "longst"; did you mean "longest"?',
        ),
        (
            {"train": "one.tsv"},
            "hold_out: 1 pair with 1 different source; two sources are needed to keep one for validation",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(settings, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, count in (("empty.tsv", 0), ("one.tsv", 1), ("two.tsv", 2)):
        write(tmp_path, name, pairs(count))
    with pytest.raises(RegardError) as caught:
        load_corpus(PairData(**settings), seed=0)
    assert str(caught.value) == line
