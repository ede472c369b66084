"""Recipes: TOML files, tables, and what is wrong with them."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.models import MODELS
from regard.recipe import fitting_models
from regard.tasks import TASKS, read_recipe, task_of, to_recipe
from regard.tasks.pairs.settings import PairRecipe

MODEL_NAMES = ", ".join(sorted(MODELS))


def test_nothing_said_is_a_recipe_of_defaults():
    assert to_recipe({}, "x") == PairRecipe()


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
        assert task_of({"data": {"train": name}}).name == task
    assert task_of({"data": {"train": "pairs.tsv"}, "model": {"name": "gpt"}}).name == "text"
    assert task_of({"data": {"train": "a.txt"}, "model": {"name": "bahdanau"}}).name == "pairs"
    assert task_of({"data": {"train": "a.txt", "format": "tsv"}}).name == "pairs"
    assert task_of({"data": {"train": "a.txt", "columns": ("a", "b")}}).name == "pairs"
    assert task_of({"data": {"train": "a.txt", "task": "label"}}).name == "label"
    assert task_of({"data": {"train": "a.conll.gz"}}).name == "tag"
    assert (
        error_of(task_of, {"data": {"task": "taag"}}) == 'recipe: [data] task: there is no "taag"; did you mean "tag"?'
    )
    assert error_of(task_of, {"data": {"task": "tag"}, "model": {"name": "gpt"}}) == (
        "data.task is tag; gpt is for the task text"
    )


def test_every_model_is_of_a_task_and_every_task_has_models():
    assert {preset.task for preset in MODELS.values()} == set(TASKS)
    for name, task in TASKS.items():
        assert [MODELS[preset].task for preset in task.presets] == [name] * len(task.presets)
        assert task.example.startswith("regard train ")


def test_a_setting_of_another_task_is_refused():
    for table, line in (
        ({"data": {"documents": "line"}}, "[data] documents is for the task text; this recipe is for pairs"),
        ({"training": {"class_weights": 0.0}},
         "[training] class_weights is for the tasks tag and label; this recipe is for pairs"),
        ({"model": {"name": "gpt"}, "decoding": {}}, "[decoding] is for the task pairs; this recipe is for text"),
        ({"data": {"task": "tag", "separator": "|"}}, "[data] separator is for the task label; this recipe is for tag"),
    ):  # fmt: skip
        assert error_of(to_recipe, table, "x.toml") == f"x.toml: {line}"


def test_importing_tasks_does_not_import_torch():
    program = "import sys, regard.tasks; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_of_text_beside_a_recipe_is_seen(tmp_path):
    (tmp_path / "books").mkdir()
    path = write(tmp_path, '[data]\ntrain = "books"\n[model]\nlayers = 2\n')
    assert read_recipe(path)["data"]["train"] == str(tmp_path / "books")


def test_settings_tell_which_models_they_fit():
    presets = TASKS["pairs"].presets
    assert presets == ("bahdanau", "transformer")
    assert TASKS["text"].presets == ("lstm-lm", "gpt")
    assert fitting_models({}, "x", presets) == ["bahdanau", "transformer"]
    assert fitting_models({"hidden": 8}, "x", presets) == ["bahdanau"]
    assert fitting_models({"width": 8}, "x", presets) == ["transformer"]
    assert fitting_models({"tied": False}, "x", presets) == ["bahdanau"]
    assert fitting_models({"tied": "all"}, "x", presets) == ["transformer"]
    with pytest.raises(
        RegardError, match=r'^x: \[model\] settings: there is no "width"; did you mean "learn_width"\?$'
    ):
        fitting_models({"hidden": 8, "layers": 1, "width": 8}, "x", presets)


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


def test_settings_of_reading_are_checked():
    for name, value, said in (
        ("steps", 0, "steps is 0; 1 is the least"),
        ("repeats", -1, "repeats is -1; 0 is the least"),
        ("rate", 0.0, "rate is 0.0; a number above 0 is needed"),
        ("dropout", 1.0, "dropout is 1.0; a share from 0 to below 1 is needed"),
    ):
        assert (
            error_of(to_recipe, {"data": {"task": "tag"}, "reading": {name: value}}, "recipe")
            == f"recipe: [reading] {said}"
        )
