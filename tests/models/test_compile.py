"""Every model trains compiled as it does uncompiled; models without recurrences are one graph."""

import pytest

from regard.models import MODELS

from ..attention.test_compile import run_python

EACH_CLASS = {preset.model: name for name, preset in MODELS.items()}  # compiling takes ten seconds: one preset of each


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EACH_CLASS.values(), "bahdanau"])  # which attends in every decoder step
def test_a_compiled_model_trains_as_an_uncompiled_one(name):
    run_python("-m", "tests.models.compile_cases", name)


@pytest.mark.slow
def test_the_command_trains_a_compiled_model(tmp_path):
    steps = ("--steps", "3", "--batch-tokens", "150", "--validate-every", "3", "--corpus-size", "200")
    model = ("--model", "neural-lm", "--hidden", "16", "--embedding", "16")  # which compiles in a few seconds
    options = ("--device", "cpu", "--compile", "true", "--quiet", "--out", str(tmp_path / "run"))
    run_python("-m", "regard", "train", "agreement", *model, *steps, *options)
    assert (tmp_path / "run" / "model.safetensors").exists()
