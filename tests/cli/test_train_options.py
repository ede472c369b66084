"""What is typed behind `regard train`, and what is wrong with it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli.train_options import SYNONYMS, known_fields, override
from regard.errors import RegardError
from regard.models import MODELS
from regard.settings import Field
from regard.tasks import to_recipe
from tests.test_recipe import NAMES, error_of

MODEL_NAMES = ", ".join(sorted(MODELS))


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ([("model", "bahdanau"), ("hidden", "64")], {"model": {"name": "bahdanau", "hidden": 64}}),
        ([("hidden", "64"), ("model", "luong-dot")], {"model": {"name": "luong-dot", "hidden": 64}}),
        ([("model.name", "seq2seq"), ("model.dropout", "0.3")], {"model": {"name": "seq2seq", "dropout": 0.3}}),
        ([("valid-source", "a"), ("data.valid_target", "b")], {"data": {"valid_source": "a", "valid_target": "b"}}),
        ([("columns", "de,en")], {"data": {"columns": ("de", "en")}}),
        ([("steps", "10"), ("steps", "20")], {"training": {"steps": 20}}),
        ([("compile", None), ("lowercase", "no")], {"training": {"compile": True}, "text": {"lowercase": False}}),
        ([("heads", "2"), ("score", "dot")], {"model": {"heads": 2, "score": "dot"}}),
        ([("cell", "lstm"), ("layers", "2")], {"model": {"cell": "lstm", "layers": 2}}),
        ([("joint", "auto")], {"text": {"joint": "auto"}}),
        ([("joint", None)], {"text": {"joint": True}}),
        ([("tied", "all")], {"model": {"tied": "all"}}),
        ([("tied-embeddings", None)], {"model": {"tied_embeddings": True}}),
        ([("seed", "3"), ("beam", "7")], {"training": {"seed": 3}, "decoding": {"beam": 7}}),
        (
            [("data.corpus.longest", "5"), ("train", "copy"), ("data.corpus.alphabet", "123")],
            {"data": {"train": "copy", "corpus": {"longest": 5, "alphabet": "123"}}},
        ),
    ],
)
def test_what_is_typed_finds_its_place_and_type(options, table):
    assert override({}, options) == table
    to_recipe(table, "x")


def test_what_is_typed_replaces_what_a_recipe_says_and_nothing_else():
    before = {"model": {"name": "bahdanau", "hidden": 8}, "data": {"train": "copy", "corpus": {"longest": 4}}}
    found = override(before, [("hidden", "9"), ("data.corpus.shortest", "2")])
    assert found["model"] == {"name": "bahdanau", "hidden": 9}
    assert found["data"] == {"train": "copy", "corpus": {"longest": 4, "shortest": 2}}
    assert before["data"]["corpus"] == {"longest": 4}


@pytest.mark.parametrize(
    ("option", "text", "line"),
    [
        ("hiden", "3", "train: there is no option --hiden; did you mean --hidden?"),
        ("xyzzy", "3", "train: there is no option --xyzzy; regard train --help lists all"),
        ("foo.bar", "3", "train: there is no option --foo.bar; regard train --help lists all"),
        ("", "3", "train: there is no option --; regard train --help lists all"),
        ("model.hiden", "3", '--model.hiden: there is no "hiden"; did you mean "hidden"?'),
        ("model", "bahdanu", '--model: there is no "bahdanu"; did you mean "bahdanau"?'),
        ("model", "", f'--model: there is no ""; there are: {MODEL_NAMES}'),
        ("model", None, "--model: a value is missing"),
        ("hidden", None, "--hidden: a value is missing"),
        ("hidden", "x", '--hidden is "x"; a whole number is needed'),
        ("hidden", "2.5", "--hidden is 2.5; a whole number is needed"),
        ("rate", "fast", '--rate is "fast"; a number is needed'),
        ("compile", "perhaps", '--compile is "perhaps"; true or false is needed'),
        ("cell", "grU", '--cell: there is no "grU"; did you mean "gru"?'),
        ("corpus", "3", '--corpus is "3"; a table is needed'),
        (
            "data.corpus.longest",
            "3",
            "--data.corpus.longest: is for a built-in corpus (copy, dates, numbers, reverse, sort, toy-en-de); "
            "found none",
        ),
    ],
)
def test_what_is_typed_wrong_is_said_with_its_option(option, text, line):
    with pytest.raises(RegardError) as caught:
        override({}, [(option, text)])
    assert str(caught.value) == line


def test_an_option_of_another_model_is_refused():
    assert error_of(override, {}, [("width", "8"), ("model", "bahdanau")]) == (
        "--width: bahdanau has no such setting; it has embedding, hidden, layers, cell, bidirectional, reverse-source, "
        "dropout, attention, score, heads, project, normaliser, learn-width, composition, input-feeding, tied, "
        "tied-embeddings"
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [("lr", "--rate"), ("learning-rate", "--rate"), ("epochs", "--steps, in updates"), ("max_steps", "--steps")],
)
def test_what_other_programs_call_an_option(option, said):
    line = f"train: there is no option --{option}; here it is {said}"
    assert error_of(override, {}, [(option, "1")]) == line


def test_every_synonym_leads_somewhere():
    sections = ("data", "text", "model", "training", "decoding")
    known = {name.replace("_", "-") for section in sections for name in known_fields(section, {})}
    for name, meant in SYNONYMS.items():
        assert name.replace("_", "-") not in known
        assert set(re.findall(r"--([a-z-]+)", meant)) <= known | {"out", "quiet"}


def test_settings_of_reading_have_whole_names_alone():
    found = override({}, [("steps", "5"), ("reading.steps", "7"), ("reading.dropout", "0"), ("dropout", "0.1")])
    assert found == {"training": {"steps": 5}, "reading": {"steps": 7, "dropout": 0.0}, "model": {"dropout": 0.1}}
    assert error_of(override, {}, [("repeats", "2")]) == (
        "train: there is no option --repeats; it may be --reading.repeats"
    )
    assert error_of(override, {}, [("reading.stepps", "2")]).endswith('did you mean "steps"?')


def test_settings_of_a_built_in_corpus_have_short_names_where_no_other_has_them():
    found = override({}, [("alphabet", "abc"), ("train", "copy")])
    assert found == {"data": {"train": "copy", "corpus": {"alphabet": "abc"}}}
    recurrent = {"data": {"train": "copy"}, "model": {"name": "bahdanau"}}
    assert override(recurrent, [("longest", "5")])["data"]["corpus"] == {"longest": 5}
    assert error_of(override, {"data": {"train": "copy"}}, [("longest", "5")]) == (
        "--longest: may be --model.longest or --data.corpus.longest; say which"
    )
    assert error_of(override, {"data": {"train": "a.tsv"}}, [("alphabet", "abc")]) == (
        "train: there is no option --alphabet; regard train --help lists all"
    )


def test_a_setting_that_two_sections_have_needs_its_whole_name(monkeypatch):
    monkeypatch.setattr("regard.cli.train_options.every_model_field", lambda: {"seed": Field("seed", int, 0, "")})
    with pytest.raises(RegardError, match=r"^--seed: may be --model\.seed or --training\.seed; say which$"):
        override({}, [("seed", "3")])


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES | st.text(max_size=3), st.text(max_size=4) | st.none()), max_size=3))
def test_whatever_is_typed_is_a_table_or_one_line(options):
    line = error_of(override, {"data": {"train": "copy"}}, options)
    assert line is None or "--" in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([("documents", "line"), ("model", "bahdanau")], "--documents is for the task text; this recipe is for pairs"),
        ([("data.documents", "line"), ("task", "tag")],
         "--data.documents is for the task text; this recipe is for tag"),
        ([("model", "gpt"), ("beam", "3")], "--beam is for the task pairs; this recipe is for text"),
        ([("task", "text"), ("reading.steps", "3")],
         "--reading.steps is for the tasks tag and label; this recipe is for text"),
        ([("task", "taag")], '--task: there is no "taag"; did you mean "tag"?'),
    ],
)  # fmt: skip
def test_an_option_of_another_task_is_refused(options, line):
    assert error_of(override, {}, options) == line
