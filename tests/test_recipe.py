"""Recipes: TOML files, command lines, and what is wrong with them."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.settings import DataSettings
from regard.errors import RegardError
from regard.models import MODELS
from regard.recipe import (
    DEFAULT_MODELS,
    SYNONYMS,
    Recipe,
    fitting_models,
    known_fields,
    override,
    read_recipe,
    task_of,
    to_recipe,
)
from regard.settings import Field

MODEL_NAMES = ", ".join(sorted(MODELS))


def test_nothing_said_is_a_recipe_of_defaults():
    assert to_recipe({}, "x") == Recipe()


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
    for name, value, said in (
        ("steps", 0, "steps is 0; 1 is the least"),
        ("repeats", -1, "repeats is -1; 0 is the least"),
        ("rate", 0.0, "rate is 0.0; a number above 0 is needed"),
        ("dropout", 1.0, "dropout is 1.0; a share from 0 to below 1 is needed"),
    ):
        assert error_of(to_recipe, {"reading": {name: value}}, "recipe") == f"recipe: [reading] {said}"


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
    monkeypatch.setattr("regard.recipe.every_model_field", lambda: {"seed": Field("seed", int, 0, "")})
    with pytest.raises(RegardError, match=r"^--seed: may be --model\.seed or --training\.seed; say which$"):
        override({}, [("seed", "3")])


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_files_are_looked_for_beside_the_recipe(tmp_path):
    (tmp_path / "train.tsv").touch()
    (tmp_path / "dates").touch()  # no reason not to mean the corpus
    path = write(tmp_path, '[data]\ntrain = "train.tsv"\nvalid = "elsewhere.tsv"')
    assert read_recipe(path)["data"] == {"train": str(tmp_path / "train.tsv"), "valid": "elsewhere.tsv"}
    assert read_recipe(write(tmp_path, '[data]\ntrain = "dates"'))["data"] == {"train": "dates"}
    assert read_recipe(write(tmp_path, '[data]\ntrain = "-"'))["data"] == {"train": "-"}
    long = "x" * 5000
    assert read_recipe(write(tmp_path, f'[data]\ntrain = "{long}"'))["data"] == {"train": long}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data = 3", "{path}: [data] is 3; a table is needed"),
        ("[data]\ncorpus = 3", "{path}: [data] [corpus] is 3; a table is needed"),
        (
            '[data]\ncolumns = "roman, arabic"',
            '{path}: [data] columns is "roman, arabic"; a list of texts is needed: ["roman", "arabic"]',
        ),
        ("[modle]", '{path}: settings: there is no "modle"; did you mean "model"?'),
        ("[model]\nhiden = 3", '{path}: [model] settings: there is no "hiden"; did you mean "hidden"?'),
        ('[model]\nhidden = "3"', '{path}: [model] hidden is "3"; a whole number is needed'),
        ('[model]\nscore = "dott"', '{path}: [model] score: there is no "dott"; did you mean "dot"?'),
        ("[model]\nsource_size = 3", "{path}: [model] source_size comes from the tokenizer; leave it out"),
        ("[model]\nname = 3", f'{{path}}: [model] name: there is no "3"; there are: {MODEL_NAMES}'),
        ('[model]\nname = ["x"]', f"""{{path}}: [model] name: there is no "['x']"; there are: {MODEL_NAMES}"""),
        ('[model]\nname = "transformer"\nheads = 3', "{path}: [model] heads: 3 do not divide a width of 256"),
        ("[training]\nsteps = 0", "{path}: [training] steps is 0; 1 is the least"),
        ("[training]\nmetric = 'blue'", '{path}: [training] metric: there is no "blue"; did you mean "bleu"?'),
        ("x", "{path}: Expected '=' after a key in a key/value pair (at end of document); a TOML file is needed"),
    ],
)
def test_a_wrong_recipe_says_where_and_what(tmp_path, text, line):
    path = write(tmp_path, text)
    with pytest.raises(RegardError) as caught:
        read_recipe(path)
    assert str(caught.value) == line.format(path=path)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(RegardError, match=r"none.toml: No such file or directory; a TOML file is needed$"):
        read_recipe(tmp_path / "none.toml")


def test_data_and_model_tell_the_task(tmp_path):
    for name, task in (("book.txt", "text"), ("book.text.gz", "text"), ("pairs.tsv", "pairs"), (str(tmp_path), "text")):
        assert task_of(Recipe(data=DataSettings(train=name))) == task
    assert task_of(Recipe(data=DataSettings(train="pairs.tsv"), model={"name": "gpt"})) == "text"
    assert task_of(Recipe(data=DataSettings(train="a.txt"), model={"name": "bahdanau"})) == "pairs"
    assert task_of(Recipe(data=DataSettings(train="a.txt", format="tsv"))) == "pairs"
    assert task_of(Recipe(data=DataSettings(train="a.txt", columns=("a", "b")))) == "pairs"


def test_a_folder_of_text_beside_a_recipe_is_seen(tmp_path):
    (tmp_path / "books").mkdir()
    path = write(tmp_path, '[data]\ntrain = "books"\n[model]\nlayers = 2\n')
    assert read_recipe(path)["data"]["train"] == str(tmp_path / "books")


def test_settings_tell_which_models_they_fit():
    assert DEFAULT_MODELS["pairs"] == ("bahdanau", "transformer")
    assert DEFAULT_MODELS["text"] == ("lstm-lm", "gpt")
    assert fitting_models({}, "x", "pairs") == ["bahdanau", "transformer"]
    assert fitting_models({"hidden": 8}, "x", "pairs") == ["bahdanau"]
    assert fitting_models({"width": 8}, "x", "pairs") == ["transformer"]
    assert fitting_models({"tied": False}, "x", "pairs") == ["bahdanau"]
    assert fitting_models({"tied": "all"}, "x", "pairs") == ["transformer"]
    with pytest.raises(
        RegardError, match=r'^x: \[model\] settings: there is no "width"; did you mean "learn_width"\?$'
    ):
        fitting_models({"hidden": 8, "layers": 1, "width": 8}, "x", "pairs")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=4,
)
SECTIONS = st.sampled_from(["data", "text", "model", "training", "decoding", "other"])
SOME = ["train", "corpus", "columns", "name", "hidden", "width", "heads", "score", "tied", "project", "steps", "rate"]
NAMES = st.sampled_from([*SOME, "betas", "seed", "beam", "size", "joint", "x"])


def error_of(function, *arguments) -> str | None:
    try:
        function(*arguments)
    except RegardError as error:
        return str(error)
    return None


@given(st.dictionaries(SECTIONS, VALUES | st.dictionaries(NAMES, VALUES, max_size=4), max_size=3))
def test_whatever_a_recipe_says_is_a_recipe_or_one_line(table):
    line = error_of(to_recipe, table, "x.toml")
    if line is None:
        found = to_recipe(table, "x.toml")
        assert to_recipe(found.table(), "x.toml") == found
    else:
        assert line.startswith("x.toml: ")
        assert "\n" not in line


@given(st.lists(st.tuples(NAMES | st.text(max_size=3), st.text(max_size=4) | st.none()), max_size=3))
def test_whatever_is_typed_is_a_table_or_one_line(options):
    line = error_of(override, {"data": {"train": "copy"}}, options)
    assert line is None or "--" in line


@pytest.mark.parametrize("setting", [{"score": "additive"}, {"heads": 2}, {"project": ["keys"]}])
def test_a_model_without_attention_has_no_settings_of_it(setting):
    (name,) = setting
    found = rf"^recipe: \[model\] {name} is of attention, and seq2seq has none here$"
    with pytest.raises(RegardError, match=found):
        to_recipe({"model": {"name": "seq2seq", **setting}}, "recipe")
    to_recipe({"model": {"name": "bahdanau", "attention": "none"}}, "recipe")


def test_settings_of_attention_that_would_have_no_effect_are_refused():
    table = {"model": {"name": "attentive-classifier", "pooling": "mean", "queries": 2}}
    with pytest.raises(RegardError, match=r"^x: \[model\] queries is of pooling by attention, not by mean$"):
        to_recipe(table, "x")
