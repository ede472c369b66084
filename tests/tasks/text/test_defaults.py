from dataclasses import replace

import pytest

from regard.errors import RegardError
from regard.models import MODELS, build
from regard.tasks.text.defaults import TextFacts, choose_text_model, choose_text_settings
from regard.tasks.text.settings import TextRecipe, TextTraining

FACTS = TextFacts(tokens=1_000_000, bits=5_000_000, character_level=False, on_gpu=False)
TEXT_MODELS = [name for name, preset in MODELS.items() if preset.task == "text"]


def recipe(name: str = "lstm-lm", model: dict[str, object] | None = None, **training: object) -> TextRecipe:
    return TextRecipe(model={"name": name, **(model or {})}, training=TextTraining(**training))  # type: ignore[arg-type]


def trained(facts: TextFacts = FACTS, name: str = "lstm-lm", **training: object) -> TextTraining:
    return choose_text_settings(recipe(name, None, **training), facts).training


@pytest.mark.parametrize(
    ("on_gpu", "settings", "name"),
    [
        (False, {}, "lstm-lm"),
        (True, {}, "gpt2"),
        (False, {"hidden": 9}, "lstm-lm"),
        (False, {"width": 8, "heads": 2}, "gpt2"),
        (True, {"hidden": 9}, "lstm-lm"),
        (True, {"layers": 3}, "gpt2"),
    ],
)
def test_the_model_that_is_chosen(on_gpu, settings, name):
    assert choose_text_model(on_gpu, settings) == name


def test_settings_that_no_model_has():
    with pytest.raises(RegardError) as caught:
        choose_text_model(False, {"hiden": 9})
    assert str(caught.value) == 'recipe: unknown setting "hiden" in [model]; did you mean "hidden"?'


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_nothing_is_left_open_and_every_model_can_be_built(name):
    chosen = choose_text_settings(recipe(name), FACTS)
    assert [name for name, value in vars(chosen.training).items() if value is None] == ["epochs"]
    assert "auto" not in vars(chosen.training).values()
    assert chosen.training.segment_length <= chosen.training.batch_tokens
    build(**chosen.model, vocab_size=10)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_what_is_asked_for_stays(name):
    given = {
        "steps": 7,
        "batch_tokens": 300,
        "segment_length": 256,
        "learning_rate": 0.5,
        "warmup_steps": 0,
        "validate_every": 3,
        "label_smoothing": 0.1,
        "precision": "bfloat16",
    }
    training = trained(name=name, **given)
    assert {key: getattr(training, key) for key in given} == given
    assert training.metric == "loss"


@pytest.mark.parametrize(
    ("tokens", "on_gpu", "batch", "steps"),
    [
        (2000, False, 1024, 1500),  # small text: both at their minimum
        (600_000, False, 3000, 20 * 200),  # 200 batches per epoch, 20 epochs
        (10_000_000, False, 4096, 20_000),  # both at their maximum
        (10_000_000, True, 16_384, 20 * 610),
    ],
)
def test_batches_and_steps_by_the_size_of_the_text(tokens, on_gpu, batch, steps):
    training = trained(TextFacts(tokens, bits=1e6, character_level=False, on_gpu=on_gpu))
    assert (training.batch_tokens, training.steps) == (batch, steps)


def test_batches_that_make_one_update_count_as_one():
    assert trained(TextFacts(600_000, 1e6, False, False), gradient_accumulation=2).steps == 20 * 100


@pytest.mark.parametrize(
    ("steps", "warmup", "every"), [(5, 0, 50), (600, 60, 50), (3000, 100, 100), (90_000, 100, 1000)]
)
def test_warm_up_and_validation_by_the_steps(steps, warmup, every):
    training = trained(steps=steps)
    assert (training.warmup_steps, training.validate_every) == (warmup, every)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_a_segment_is_the_context_of_a_model_without_memory(name):
    word, letter = (trained(replace(FACTS, character_level=spelt), name).segment_length for spelt in (False, True))
    assert (word, letter) == ((256, 256) if name in ("gpt", "gpt2") else (64, 128))
    if name in ("gpt", "gpt2"):
        assert choose_text_settings(recipe(name, {"context_length": 99}), FACTS).training.segment_length == 99


def test_a_segment_fits_into_the_batch():
    assert trained(batch_tokens=40).segment_length == 40
    assert trained(segment_length=6000).batch_tokens == 6000
    long = choose_text_settings(recipe("gpt", {"context_length": 5000}), FACTS).training
    assert (long.segment_length, long.batch_tokens) == (5000, 5000)


@pytest.mark.parametrize(("tokens", "width"), [(100_000, 128), (1_000_000, 256), (20_000_000, 512)])
def test_sizes_by_the_size_of_the_text(tokens, width):
    facts = TextFacts(tokens, bits=4.8 * tokens, character_level=False, on_gpu=True)
    assert choose_text_settings(recipe("gpt"), facts).model == {"name": "gpt", "width": width}
    assert choose_text_settings(recipe("gru-lm"), facts).model == {
        "name": "gru-lm",
        "hidden": width,
        "embedding": width,
    }
    expected = {"name": "gru-lm", "hidden": 5, "embedding": width}
    assert choose_text_settings(recipe("gru-lm", {"hidden": 5}), facts).model == expected


@pytest.mark.parametrize(
    ("name", "on_gpu", "precision", "rate"),
    [
        ("gpt", True, "bfloat16", 1e-3),
        ("gpt", False, "float32", 1e-3),
        ("lstm-lm", True, "float32", 2e-3),
    ],
)
def test_a_transformer_on_a_gpu_is_trained_in_half_precision(name, on_gpu, precision, rate):
    training = trained(replace(FACTS, on_gpu=on_gpu), name)
    assert (training.precision, training.learning_rate) == (precision, rate)


def test_what_cannot_be():
    with pytest.raises(RegardError, match=r"^training\.metric must be loss for the task text, got bleu$"):
        trained(metric="bleu")
    line = r"^training\.segment_length must equal model\.context_length \(256\) for gpt, got 30$"
    with pytest.raises(RegardError, match=line):
        trained(name="gpt", segment_length=30)
    with pytest.raises(RegardError, match=r"^training\.label_smoothing cannot be combined with model\.mute$"):
        choose_text_settings(recipe("gpt", {"mute": (0, 1)}, label_smoothing=0.1), FACTS)
