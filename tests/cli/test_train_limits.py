"""Whatever number or word is typed for any setting of `regard train`: a model that could be built, or one line."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli.train import parse_arguments
from regard.cli.train_options import override
from regard.errors import RegardError
from regard.memory import on_meta_device
from regard.models import MODELS
from regard.recipe import SIZES, Recipe, build_model, get_model_fields, get_section_fields, get_setting_fields
from regard.tasks import get_recipes, to_recipe

SMALL_SIZES = {**dict.fromkeys(SIZES, 8), "labels": ("O", "B-X", "I-X")}


def list_settings(model: str) -> list[str]:
    """List the settings of a model's recipe, by their whole names."""
    recipes = [get_recipes()[MODELS[model].task]]
    sections = {section: get_setting_fields(section, recipes) for section in get_section_fields(recipes)}
    sections["model"] = get_model_fields(model)
    return [f"{section}.{name}" for section, fields in sections.items() for name in fields]


SETTINGS = {model: list_settings(model) for model in MODELS}

ODD_WORDS = [
    *("nan", "inf", "-inf", "1e30", "-1e30", "1e-300", "1e400", "0", "-0.0", "-1", "0.5", "1.0", "1e3"),
    *("2147483648", "-9223372036854775809", "1" + "0" * 20, "1" + "0" * 22, "9" * 5000, "1_0", "0x10", "٣", "½"),
    *("none", "true", "no", "auto", "", " ", ",", "1,2", "0.9,nan", "1e30,1", "\x1b[2J", "\u202e", "\udcff", "a\nb"),
]
VALUES = (
    st.sampled_from(ODD_WORDS)
    | st.integers(-8, 8).map(str)
    | st.integers(min_value=10**6).map(str)
    | st.integers(max_value=-1).map(str)
    | st.floats().map(repr)
    | st.text(max_size=5)
)


def build_recipe(words: list[str]) -> Recipe:
    """Do what `regard train` does before it reads data, and build the model without its memory."""
    recipe = to_recipe(override({}, parse_arguments(words).settings), "recipe")
    with on_meta_device():
        build_model(recipe, SimpleNamespace(sizes=lambda: SMALL_SIZES))
    return recipe


@st.composite
def command_lines(draw):
    model = draw(st.sampled_from(sorted(MODELS)))
    names = draw(st.lists(st.sampled_from(SETTINGS[model]), min_size=1, max_size=3))
    return [f"--model={model}", *(f"--{name}={draw(VALUES)}" for name in names)]


@pytest.mark.slow
@given(command_lines())
def test_whatever_is_typed_gives_a_model_or_one_line(words):
    try:
        build_recipe(words)
    except RegardError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--model=gpt", "--layers=100000"], "recipe: [model] layers must be at most 1,000, got 100,000"),
        (
            ["--model=transformer", "--decoder-layers=2147483648"],
            "recipe: [model] decoder_layers must be at most 1,000, got 2,147,483,648",
        ),
        (
            ["--model=bahdanau", "--hidden=1" + "0" * 22],
            "recipe: [model] hidden must be at most 100,000, got 10,000,000,000,000,000,000,000",
        ),
        (
            ["--model=lstm-lm", "--segment-length=1" + "0" * 20],
            "recipe: [training] segment_length must be at most 1,000,000, got 100,000,000,000,000,000,000",
        ),
        (
            ["--model=gpt", "--context-length=1" + "0" * 20],
            "recipe: [model] context_length must be at most 1,000,000, got 100,000,000,000,000,000,000",
        ),
        (["--model=gpt", "--learning-rate=inf"], "recipe: [training] learning_rate must be at most 10, got inf"),
        (["--model=gpt", "--learning-rate=1e30"], "recipe: [training] learning_rate must be at most 10, got 1e+30"),
        (["--model=gpt", "--learning-rate=nan"], '--learning-rate: expected a number, got "nan"'),
        (["--model=gpt", "--dropout=1"], "recipe: [model] dropout must be at least 0 and below 1, got 1.0"),
        (
            ["--model=gpt", "--vocab-size=99999999"],
            "recipe: [text] vocab_size must be at most 10,000,000, got 99,999,999",
        ),
    ],
)
def test_a_value_that_is_too_large_is_refused_with_its_limit(words, line):
    with pytest.raises(RegardError) as caught:
        build_recipe(words)
    assert str(caught.value) == line


def test_usual_values_pass():
    recipe = build_recipe(["--model=gpt", "--layers=2", "--width=16", "--heads=2", "--learning-rate=1e-3"])
    assert recipe.model == {"name": "gpt", "layers": 2, "width": 16, "heads": 2}
