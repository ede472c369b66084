import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Pair, collate
from regard.errors import RegardError
from regard.models import build
from regard.tasks.pairs.defaults import (
    HARD_MEMORY,
    PairFacts,
    choose_pair_model_sizes,
    choose_pair_settings,
    is_symbols,
    limit_hard_batch,
)
from regard.tasks.pairs.settings import PairRecipe, PairTraining
from regard.text import learn_tokenizer_pair
from regard.text.tokenizer import is_character_level
from regard.training.loss import PairStep

FACTS = PairFacts(
    pairs=1000, source_tokens=60_000, target_tokens=120_000, target_bits=1e6, symbols=False, words=True, on_gpu=False
)


def recipe(name: str = "bahdanau", model: dict[str, object] | None = None, **training: object) -> PairRecipe:
    return PairRecipe(model={"name": name, **(model or {})}, training=PairTraining(**training))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def letters():
    return learn_tokenizer_pair(["a b", "b c"], ["a b", "b c"], kind="words")[0]


@pytest.fixture(scope="module")
def text():
    return learn_tokenizer_pair(["some words here"] * 9, ["other words there"] * 9, kind="bpe", vocab_size=270)[0]


def test_facts_count_the_ends_of_sentences(letters):
    facts = PairFacts.of([Pair([5, 6], [7]), Pair([5], [])], letters.target, on_gpu=False)
    assert (facts.pairs, facts.source_tokens, facts.target_tokens, facts.tokens) == (2, 5, 3, 5)
    assert (facts.longest_source, facts.longest_target, facts.target_vocab_size) == (3, 2, letters.target.size)
    assert facts.target_bits == pytest.approx(-2 * math.log2(2 / 3) - math.log2(1 / 3))  # two ends, one token


def test_symbols_are_characters_and_few_words(letters, text):
    assert is_symbols(letters.target)
    assert not is_symbols(text.target)
    assert is_symbols(learn_tokenizer_pair(["ab"], ["ba"], kind="characters")[0].source)


def test_letters_apart_by_spaces_are_spelt(letters, text):
    assert is_character_level(letters.target)
    assert is_character_level(learn_tokenizer_pair(["ab"], ["ba"], kind="characters")[0].source)
    assert not is_character_level(text.target)
    assert not is_character_level(learn_tokenizer_pair(["two words"], ["two words"], kind="words")[0].source)


def test_what_is_left_open_is_worked_out_of_the_data():
    chosen = choose_pair_settings(recipe(), FACTS)
    training = chosen.training
    assert training.batch_tokens == 2000  # a sixtieth of the longer side
    assert training.steps == 40 * 60  # epochs of sixty batches
    assert (training.learning_rate, training.warmup_steps, training.validate_every) == (2e-3, 100, 80)
    assert (training.metric, training.precision) == ("bleu", "float32")
    assert chosen.model == {"name": "bahdanau", "hidden": 128, "embedding": 128, "dropout": 0.3}


def test_nothing_that_was_said_is_changed():
    given = {
        "steps": 7, "batch_tokens": 99, "learning_rate": 0.5, "warmup_steps": 0, "validate_every": 3, "metric": "loss",
        "precision": "bfloat16",
    }  # fmt: skip
    chosen = choose_pair_settings(recipe(model={"hidden": 5}, **given), FACTS)
    assert {name: getattr(chosen.training, name) for name in given} == given
    assert chosen.model == {"name": "bahdanau", "hidden": 5, "embedding": 128, "dropout": 0.3}
    fewer = replace(FACTS, pairs=9, source_tokens=9, target_tokens=9)
    assert choose_pair_settings(chosen, fewer).training == chosen.training


def test_pairs_are_not_judged_like_labels():
    with pytest.raises(RegardError) as refused:
        choose_pair_settings(recipe(metric="accuracy"), FACTS)
    line = "training.metric accuracy is not available for this task; choose from exact, bleu, chrf, loss"
    assert str(refused.value) == line


def test_bounds_hold_for_the_least_and_for_the_most_data():
    small = choose_pair_settings(recipe(), PairFacts(2, 6, 6, 9.0, True, False, False)).training
    assert (small.steps, small.batch_tokens, small.metric) == (1500, 1024, "exact")
    large = PairFacts(10**7, 10**9, 10**9, 1e10, False, True, True)
    chosen = choose_pair_settings(recipe("transformer"), large)
    training = chosen.training
    assert (training.steps, training.batch_tokens, training.learning_rate) == (20_000, 8192, 1e-3)
    assert (training.warmup_steps, training.validate_every, training.precision) == (400, 666, "bfloat16")
    assert chosen.model == {"name": "transformer", "width": 512, "dropout": 0.1}


CHOSEN = {  # data sets for which a width was chosen, and a size: target tokens, their entropy, and the width
    "800 French words": (6_000, 4.6, 128),
    "10,000 Finnish forms": (146_126, 4.157, 128),
    "dates": (220_000, 3.279, 128),
    "toy-en-de": (173_785, 7.0, 128),
    "5,000 captions": (87_812, 8.722, 128),
    "29,000 captions": (432_734, 8.879, 256),
    "CMUdict": (859_249, 4.711, 256),
    "ten million subwords": (10_000_000, 9.0, 512),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_rule_agrees_with_the_widths_that_were_chosen(name):
    tokens, entropy, width = CHOSEN[name]
    facts = replace(FACTS, target_tokens=tokens, target_bits=tokens * entropy, words=False)
    assert choose_pair_model_sizes("bahdanau", facts) == {"hidden": width, "embedding": width}
    assert choose_pair_model_sizes("transformer", facts)["width"] == width


HARD = {  # data sets of short targets: target tokens, their entropy, and hidden width, updates and dropout
    "100 German forms": (1_026, 4.509, 128, 1000, 0.4),
    "800 French words": (5_099, 4.473, 128, 1000, 0.4),
    "1,000 Finnish forms": (15_382, 4.157, 128, 1000, 0.4),
    "between these": (1, math.sqrt(65e3 * 107e3), 192, 1250, 0.4),
    "3,600 French words": (23_556, 4.569, 256, 1500, 0.4),
    "10,000 Finnish forms": (153_725, 4.157, 256, 1500, 0.4),
    "CMUdict": (859_249, 4.711, 256, 1500, 0.3),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_attention_is_small_for_little_data(name):
    tokens, entropy, hidden, steps, dropout = HARD[name]
    facts = replace(FACTS, source_tokens=1000, target_tokens=1000, target_bits=tokens * entropy)
    chosen = choose_pair_settings(recipe("hard-monotonic"), facts)
    assert chosen.training.steps == steps
    assert chosen.model == {
        "name": "hard-monotonic", "hidden": hidden, "embedding": 128, "layers": 2, "dropout": dropout
    }  # fmt: skip
    assert choose_pair_settings(recipe(), facts).training.steps == 1500


def test_long_pairs_make_batches_of_hard_attention_small():
    def choose(model="hard-monotonic", **longest):
        facts = replace(FACTS, source_tokens=10**6, target_bits=1e6, target_vocab_size=500, **longest)
        return choose_pair_settings(recipe(model), facts).training.batch_tokens

    assert choose(longest_source=20, longest_target=20) == 4096
    assert choose(longest_source=257, longest_target=3) == 4096  # few pairs of a source and a target token
    limit = 4 * 2**30 // (257 * 6 * 4 * (256 + 500 + 257))
    assert choose(longest_source=257, longest_target=257) == limit == 687
    assert choose("bahdanau", longest_source=257, longest_target=257) == 4096
    facts = replace(FACTS, longest_source=257, longest_target=257, target_vocab_size=500)
    assert choose_pair_settings(recipe("hard-monotonic", batch_tokens=4096), facts).training.batch_tokens == 4096


@pytest.mark.parametrize(("source", "target", "vocabulary"), [(60, 60, 40), (90, 30, 40), (40, 40, 200)])
def test_a_batch_of_hard_attention_keeps_less_than_its_limit(source, target, vocabulary):
    model = build("hard-monotonic", source_vocab_size=9, target_vocab_size=vocabulary, hidden=32, embedding=4, layers=2)
    batch = collate([Pair([5] * (source - 1), [6] * (target - 1))] * 2)
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.setdefault(tensor.untyped_storage().data_ptr(), tensor), lambda tensor: tensor
    ):
        PairStep(model.train(), 0.1)(batch)
    facts = replace(FACTS, longest_source=source, longest_target=target, target_vocab_size=vocabulary)
    tokens_of_batch = 2 * max(source, target)
    share = tokens_of_batch / limit_hard_batch({"hidden": 32}, facts)  # of a batch at the limit
    assert sum(each.untyped_storage().nbytes() for each in kept.values()) <= share * HARD_MEMORY


def test_letters_turn_where_the_heads_of_a_transformer_allow_it():
    letters = replace(FACTS, symbols=True)
    for settings, positions in (
        ({}, "rotary"),
        ({"positions": "learned"}, "learned"),
        ({"width": 12}, None),  # four heads of three
        ({"width": 12, "heads": 3}, "rotary"),
        ({"head_width": 5}, None),
    ):
        assert choose_pair_settings(recipe("transformer", settings), letters).model.get("positions") == positions
    assert "positions" not in choose_pair_settings(recipe("transformer"), FACTS).model
    assert "positions" not in choose_pair_settings(recipe(), letters).model


def test_dropout_falls_with_the_data():
    def choose(name, bits, **kind):
        return choose_pair_model_sizes(name, replace(FACTS, target_bits=bits, **kind)).get("dropout")

    text, phones, letters = {}, {"symbols": True}, {"symbols": True, "words": False}
    assert [choose("bahdanau", bits, **text) for bits in (1e5, 4e6, 14e6, 1e8)] == [0.3, 0.3, 0.3, 0.2]
    assert [choose("transformer", bits, **text) for bits in (1e5, 4e6, 14e6, 1e8)] == [0.2, 0.2, 0.2, 0.1]
    assert [choose("transformer", bits, **phones) for bits in (1e5, 4e6, 14e6, 1e8)] == [0.3, 0.2, 0.2, 0.1]
    assert choose("bahdanau", 1e5, **letters) is None  # that of the model


@given(st.lists(st.floats(1, 1e12), min_size=2, max_size=9), st.booleans())
def test_more_data_never_make_a_smaller_model_or_more_dropout(amounts, symbols):
    for name, size in (("bahdanau", "hidden"), ("hard-monotonic", "hidden"), ("transformer", "width")):
        sizes = [
            choose_pair_model_sizes(name, replace(FACTS, target_bits=bits, symbols=symbols)) for bits in sorted(amounts)
        ]
        widths, dropouts = ([each[key] for each in sizes] for key in (size, "dropout"))
        assert widths == sorted(widths)
        assert dropouts == sorted(dropouts, reverse=True)


@given(st.lists(st.integers(2, 10**9), min_size=2, max_size=9), st.sampled_from(["bahdanau", "hard-monotonic"]))
def test_more_data_never_train_for_less_or_in_smaller_batches(amounts, name):
    chosen = [
        choose_pair_settings(
            recipe(name), replace(FACTS, source_tokens=tokens, target_tokens=tokens, target_bits=4.0 * tokens)
        ).training
        for tokens in sorted(amounts)
    ]
    for setting in ("steps", "batch_tokens"):
        values = [getattr(training, setting) for training in chosen]
        assert values == sorted(values)


@pytest.mark.parametrize("name", ["bahdanau", "hard-monotonic", "transformer"])
def test_a_model_can_be_built_of_what_was_chosen(name):
    settings = {key: value for key, value in choose_pair_settings(recipe(name), FACTS).model.items() if key != "name"}
    assert build(name, source_vocab_size=9, target_vocab_size=9, **settings) is not None
