"""Recipes: TOML files, tables, and what is wrong with them."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.models import MODELS
from regard.recipe import find_compatible_models
from regard.tasks import TASKS, find_task, read_recipe_file, to_recipe
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
    path = write(tmp_path, '[data]\ntrain = "train.tsv"\nvalidation = "elsewhere.tsv"')
    assert read_recipe_file(path)["data"] == {"train": str(tmp_path / "train.tsv"), "validation": "elsewhere.tsv"}
    assert read_recipe_file(write(tmp_path, '[data]\ntrain = "dates"'))["data"] == {"train": "dates"}
    assert read_recipe_file(write(tmp_path, '[data]\ntrain = "-"'))["data"] == {"train": "-"}
    long = "x" * 5000
    assert read_recipe_file(write(tmp_path, f'[data]\ntrain = "{long}"'))["data"] == {"train": long}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data = 3", "{path}: [data]: expected a table, got 3"),
        ("[data]\ncorpus = 3", "{path}: [data] [corpus]: expected a table, got 3"),
        (
            '[data]\ncolumns = "roman, arabic"',
            '{path}: [data] columns: expected a list of strings such as ["roman", "arabic"], got "roman, arabic"',
        ),
        ("[modle]", '{path}: unknown setting "modle"; did you mean "model"?'),
        ("[model]\nhiden = 3", '{path}: unknown setting "hiden" in [model]; did you mean "hidden"?'),
        ('[model]\nhidden = "3"', '{path}: [model] hidden: expected an integer, got "3"'),
        ('[model]\nscore = "dott"', '{path}: [model] unknown score "dott"; did you mean "dot"?'),
        ("[model]\nsource_vocab_size = 3", "{path}: [model] source_vocab_size is set by the tokenizer; remove it"),
        ("[model]\nname = 3", f'{{path}}: [model] unknown name "3"; choose from {MODEL_NAMES}'),
        ('[model]\nname = ["x"]', f"""{{path}}: [model] unknown name "['x']"; choose from {MODEL_NAMES}"""),
        ('[model]\nname = "transformer"\nheads = 3', "{path}: [model] width must be divisible by heads, got 256 and 3"),
        ("[training]\nsteps = 0", "{path}: [training] steps must be at least 1, got 0"),
        ("[training]\nmetric = 'blue'", '{path}: [training] unknown metric "blue"; did you mean "bleu"?'),
        ("x", "{path} is not valid TOML: Expected '=' after a key in a key/value pair (at end of document)"),
    ],
)
def test_a_wrong_recipe_says_where_and_what(tmp_path, text, line):
    path = write(tmp_path, text)
    with pytest.raises(RegardError) as caught:
        read_recipe_file(path)
    assert str(caught.value) == line.format(path=path)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(RegardError, match=r"^cannot read .*none.toml: not found$"):
        read_recipe_file(tmp_path / "none.toml")


def test_data_and_model_tell_the_task(tmp_path):
    for name, task in (("book.txt", "text"), ("book.text.gz", "text"), ("pairs.tsv", "pairs"), (str(tmp_path), "text")):
        assert find_task({"data": {"train": name}}).name == task
    assert find_task({"data": {"train": "pairs.tsv"}, "model": {"name": "gpt"}}).name == "text"
    assert find_task({"data": {"train": "a.txt"}, "model": {"name": "bahdanau"}}).name == "pairs"
    assert find_task({"data": {"train": "a.txt", "format": "tsv"}}).name == "pairs"
    assert find_task({"data": {"train": "a.txt", "columns": ("a", "b")}}).name == "pairs"
    assert find_task({"data": {"train": "a.txt", "task": "label"}}).name == "label"
    assert find_task({"data": {"train": "a.conll.gz"}}).name == "tag"
    assert error_of(find_task, {"data": {"task": "taag"}}) == 'recipe: [data] unknown task "taag"; did you mean "tag"?'
    assert error_of(find_task, {"data": {"task": "tag"}, "model": {"name": "gpt"}}) == (
        "data.task is tag, but model gpt is for the task text"
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
    assert read_recipe_file(path)["data"]["train"] == str(tmp_path / "books")


def test_settings_tell_which_models_they_fit():
    presets = TASKS["pairs"].presets
    assert presets == ("bahdanau", "hard-monotonic", "transformer")
    assert TASKS["text"].presets == ("lstm-lm", "gpt2")
    assert find_compatible_models({}, "x", presets) == ["bahdanau", "hard-monotonic", "transformer"]
    assert find_compatible_models({"hidden": 8}, "x", presets) == ["bahdanau", "hard-monotonic"]
    assert find_compatible_models({"width": 8}, "x", presets) == ["transformer"]
    assert find_compatible_models({"tied": False}, "x", presets) == ["bahdanau"]
    assert find_compatible_models({"tied": "all"}, "x", presets) == ["transformer"]
    with pytest.raises(RegardError, match=r'^x: unknown setting "width" in \[model\]; did you mean "learn_width"\?$'):
        find_compatible_models({"hidden": 8, "layers": 1, "width": 8}, "x", presets)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=4,
)
SECTIONS = st.sampled_from(["data", "text", "model", "training", "decoding", "other"])
SOME = [
    "train",
    "corpus",
    "columns",
    "name",
    "hidden",
    "width",
    "heads",
    "score",
    "tied",
    "project",
    "steps",
    "learning_rate",
]
NAMES = st.sampled_from([*SOME, "betas", "seed", "beam", "vocab_size", "shared_vocab", "x"])


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
        recipe = to_recipe(table, "x.toml")
        assert to_recipe(recipe.to_table(), "x.toml") == recipe
    else:
        assert line.startswith("x.toml: ")
        assert "\n" not in line


@pytest.mark.parametrize("setting", [{"score": "additive"}, {"heads": 2}, {"project": ["keys"]}])
def test_a_model_without_attention_has_no_settings_of_it(setting):
    (name,) = setting
    with pytest.raises(RegardError, match=rf"^recipe: \[model\] {name} requires attention, but attention is none$"):
        to_recipe({"model": {"name": "seq2seq", **setting}}, "recipe")
    to_recipe({"model": {"name": "bahdanau", "attention": "none"}}, "recipe")


def test_settings_of_attention_that_would_have_no_effect_are_refused():
    table = {"model": {"name": "attentive-classifier", "pooling": "mean", "queries": 2}}
    with pytest.raises(RegardError, match=r"^x: \[model\] queries requires pooling by attention, but pooling is mean$"):
        to_recipe(table, "x")


def test_settings_of_reading_are_checked():
    for name, value, text in (
        ("steps", 0, "steps must be at least 1, got 0"),
        ("labeled_repeats", -1, "labeled_repeats must be at least 0, got -1"),
        ("learning_rate", 0.0, "learning_rate must be above 0, got 0.0"),
        ("dropout", 1.0, "dropout must be at least 0 and below 1, got 1.0"),
    ):
        assert (
            error_of(to_recipe, {"data": {"task": "tag"}, "pretraining": {name: value}}, "recipe")
            == f"recipe: [pretraining] {text}"
        )
