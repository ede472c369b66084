import io
import sys

import pytest

from regard.data.example import Example
from regard.errors import RegardError
from regard.tasks.pairs.load import load_pair_split
from regard.tasks.pairs.settings import PairData

LETTERS = {"min_length": 2, "max_length": 3, "alphabet": "abc"}


def pairs(count: int, first: int = 0) -> str:
    return "".join(f"source {n}\ttarget {n}\n" for n in range(first, first + count))


def write(folder, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_part_of_one_file_is_held_out_and_it_is_said(tmp_path):
    path = write(tmp_path, "pairs.tsv", pairs(20))
    split = load_pair_split(PairData(train=path, validation_share=0.2), seed=0)
    assert (len(split.train), len(split.valid)) == (16, 4)
    assert sorted([*split.train, *split.valid], key=lambda e: int(e.source.split()[1])) == [
        Example(f"source {n}", f"target {n}") for n in range(20)
    ]
    assert split.origin == f"{path}, 4 pairs split off for validation"
    assert load_pair_split(PairData(train=path, validation_share=0.2), seed=0) == split
    assert load_pair_split(PairData(train=path, validation_share=0.2), seed=1).valid != split.valid


def test_two_files_and_two_to_validate_with(tmp_path):
    names = {name: write(tmp_path, name, f"{name} 1\n{name} 2\n") for name in ("a", "b", "c", "d")}
    settings = PairData(
        source=names["a"], target=names["b"], validation_source=names["c"], validation_target=names["d"]
    )
    split = load_pair_split(settings, seed=0)
    assert split.train == [Example("a 1", "b 1"), Example("a 2", "b 2")]
    assert split.valid == [Example("c 1", "d 1"), Example("c 2", "d 2")]
    assert split.origin == f"{names['a']} and {names['b']}"


def test_a_built_in_corpus_is_made_with_its_settings():
    split = load_pair_split(PairData(train="reverse", corpus_size=20, validation_share=0.1, corpus=LETTERS), seed=3)
    assert (len(split.train), len(split.valid)) == (20, 2)
    assert all(example.target == example.source[::-1] for example in (*split.train, *split.valid))
    assert not {example.source for example in split.train} & {example.source for example in split.valid}
    assert split.origin == "the built-in corpus reverse, seed 3"


def test_a_built_in_corpus_can_be_validated_with_a_file(tmp_path):
    path = write(tmp_path, "pairs.tsv", pairs(2))
    split = load_pair_split(PairData(train="reverse", corpus_size=20, validation=path, corpus=LETTERS), seed=0)
    assert [example.source for example in split.valid] == ["source 0", "source 1"]
    assert len(split.train) == 20


def test_pairs_come_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pairs(4).encode())))
    split = load_pair_split(PairData(train="-"), seed=0)
    assert len(split.train) + len(split.valid) == 4


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {},
            "data: no training data; pass a file of pairs, --source and --target, or a built-in corpus "
            "(copy, dates, numbers, reverse, sort, toy-en-de)",
        ),
        ({"source": "a"}, "data: --source requires --target"),
        ({"target": "a"}, "data: --target requires --source"),
        (
            {"train": "copy", "validation_target": "a"},
            "data: --validation-target requires --validation-source",
        ),
        (
            {"train": "copy", "source": "a", "target": "b"},
            "data: copy cannot be combined with --source; pass one file of pairs, or two parallel files",
        ),
        ({"train": "date"}, 'unknown file or built-in corpus "date"; did you mean "dates"?'),
        (
            {"train": "xyzzy"},
            'unknown file or built-in corpus "xyzzy"; '
            "choose from copy, dates, numbers, reverse, sort, toy-en-de",
        ),
        ({"train": "folder"}, "folder is a folder; expected a file of pairs or a built-in corpus"),
        ({"train": "nothing.tsv"}, "cannot read nothing.tsv: not found"),
        ({"train": "empty.tsv"}, "empty.tsv: no pairs; expected at least one"),
        ({"train": "two.tsv", "validation": "empty.tsv"}, "empty.tsv: no pairs; expected at least one"),
        ({"train": "copy", "validation": "empty.tsv"}, "empty.tsv: no pairs; expected at least one"),
        ({"source": "empty.tsv", "target": "empty.tsv"}, "empty.tsv and empty.tsv: no pairs; expected at least one"),
        ({"train": "two.tsv", "validation": "copy"},
         "data: --validation must be a file, got the built-in corpus copy"),
        (
            {"train": "two.tsv", "corpus": {"max_length": 3}},
            "data: [corpus] requires a built-in corpus, got two.tsv",
        ),
        ({"train": "copy", "validation_share": 1.0}, "validation_share must be above 0 and below 1, got 1.0"),
        (
            {"train": "copy", "validation_share": float("nan")},
            "validation_share must be above 0 and below 1, got nan",
        ),
        ({"train": "-", "validation": "-"}, "data: stdin (-) can be used for only one file"),
        (
            {"train": "copy", "corpus": {"max_lenth": 3}},
            'copy: unknown setting "max_lenth"; did you mean "max_length"?',
        ),
        (
            {"train": "one.tsv"},
            "validation split: expected at least 2 distinct sources, got 1 in 1 pair",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(settings, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, count in (("empty.tsv", 0), ("one.tsv", 1), ("two.tsv", 2)):
        write(tmp_path, name, pairs(count))
    with pytest.raises(RegardError) as caught:
        load_pair_split(PairData(**settings), seed=0)
    assert str(caught.value) == line
