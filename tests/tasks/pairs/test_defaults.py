from dataclasses import replace

import pytest

from regard.batch import Pair
from regard.errors import RegardError
from regard.models import build
from regard.tasks.pairs.defaults import LARGE, Facts, choose_model, choose_settings, is_symbols, model_defaults
from regard.tasks.pairs.settings import PairRecipe, PairTraining
from regard.text import learn_pair
from regard.text.tokenizer import is_spelt

FACTS = Facts(pairs=1000, source_tokens=60_000, target_tokens=120_000, symbols=False, words=True, on_gpu=False)


def recipe(name: str = "bahdanau", model: dict[str, object] | None = None, **training: object) -> PairRecipe:
    return PairRecipe(model={"name": name, **(model or {})}, training=PairTraining(**training))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def letters():
    return learn_pair(["a b", "b c"], ["a b", "b c"], kind="words")[0]


@pytest.fixture(scope="module")
def text():
    return learn_pair(["some words here"] * 9, ["other words there"] * 9, kind="bpe", size=270)[0]


def test_facts_count_the_ends_of_sentences(letters):
    found = Facts.of([Pair([5, 6], [7]), Pair([5], [])], letters.target, on_gpu=False)
    assert (found.pairs, found.source_tokens, found.target_tokens, found.tokens) == (2, 5, 3, 5)


def test_symbols_are_characters_and_few_words(letters, text):
    assert is_symbols(letters.target)
    assert not is_symbols(text.target)
    assert is_symbols(learn_pair(["ab"], ["ba"], kind="characters")[0].source)


def test_letters_apart_by_spaces_are_spelt(letters, text):
    assert is_spelt(letters.target)
    assert is_spelt(learn_pair(["ab"], ["ba"], kind="characters")[0].source)
    assert not is_spelt(text.target)
    assert not is_spelt(learn_pair(["two words"], ["two words"], kind="words")[0].source)


def test_only_much_running_text_is_for_a_transformer(letters, text):
    assert choose_model(LARGE - 1, text) == "bahdanau"
    assert choose_model(LARGE, text) == "transformer"
    assert choose_model(LARGE, letters) == "bahdanau"


def test_settings_that_only_one_model_has_choose_it(text):
    assert choose_model(LARGE, text, {"hidden": 8}) == "bahdanau"
    assert choose_model(10, text, {"encoder_layers": 2}) == "transformer"
    assert choose_model(10, text, {"dropout": 0.5}) == "bahdanau"
    with pytest.raises(
        RegardError, match=r'^recipe: \[model\] settings: there is no "hiden"; did you mean "hidden"\?$'
    ):
        choose_model(10, text, {"hiden": 8})


def test_what_is_left_open_is_worked_out_of_the_data():
    found = choose_settings(recipe(), FACTS)
    training = found.training
    assert training.tokens == 2000  # a sixtieth of the longer side
    assert training.steps == 40 * 60  # epochs of sixty batches
    assert (training.rate, training.warmup, training.validate_every) == (2e-3, 100, 80)
    assert (training.metric, training.precision) == ("bleu", "float32")
    assert found.model == {"name": "bahdanau", "hidden": 128, "embedding": 128, "dropout": 0.3}


def test_nothing_that_was_said_is_changed():
    said = {
        "steps": 7, "tokens": 99, "rate": 0.5, "warmup": 0, "validate_every": 3, "metric": "loss",
        "precision": "bfloat16",
    }  # fmt: skip
    found = choose_settings(recipe(model={"hidden": 5}, **said), FACTS)
    assert {name: getattr(found.training, name) for name in said} == said
    assert found.model == {"name": "bahdanau", "hidden": 5, "embedding": 128, "dropout": 0.3}
    assert choose_settings(found, replace(FACTS, pairs=9, source_tokens=9, target_tokens=9)).training == found.training


def test_pairs_are_not_judged_like_labels():
    with pytest.raises(RegardError) as refused:
        choose_settings(recipe(metric="accuracy"), FACTS)
    line = "training.metric: accuracy is not found here; there are exact, bleu, chrf, loss"
    assert str(refused.value) == line


def test_bounds_hold_for_the_least_and_for_the_most_data():
    small = choose_settings(recipe(), Facts(2, 6, 6, True, False, False)).training
    assert (small.steps, small.tokens, small.metric) == (1500, 1024, "exact")
    large = Facts(10**7, 10**9, 10**9, False, True, True)
    found = choose_settings(recipe("transformer"), large)
    assert (found.training.steps, found.training.tokens, found.training.rate) == (20_000, 8192, 1e-3)
    assert (found.training.warmup, found.training.validate_every, found.training.precision) == (400, 666, "bfloat16")
    assert found.model == {"name": "transformer", "width": 512}


@pytest.mark.parametrize(("tokens", "width"), [(399_999, 128), (400_000, 256), (10_000_000, 512)])
def test_a_model_grows_with_its_data(tokens, width):
    facts = replace(FACTS, target_tokens=tokens, words=False)
    assert model_defaults(True, facts) == {"hidden": width, "embedding": width}
    assert model_defaults(False, facts) == {"width": width}


def test_few_words_want_more_dropout_than_letters_or_many_words():
    assert model_defaults(True, FACTS)["dropout"] == 0.3
    assert model_defaults(False, FACTS)["dropout"] == 0.2
    assert "dropout" not in model_defaults(True, replace(FACTS, words=False))
    assert "dropout" not in model_defaults(True, replace(FACTS, target_tokens=10_000_000))


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_a_model_can_be_built_of_what_was_chosen(name):
    settings = {key: value for key, value in choose_settings(recipe(name), FACTS).model.items() if key != "name"}
    assert build(name, source_size=9, target_size=9, **settings) is not None
