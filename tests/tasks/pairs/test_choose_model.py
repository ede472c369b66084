from functools import partial
from itertools import product

import pytest

from regard.batch import Pair
from regard.data.example import Example
from regard.errors import RegardError
from regard.tasks.pairs.choose_model import (
    LARGE,
    UnknownWords,
    choose_copy,
    choose_pair_model,
    measure_copied_shares,
    measure_unknown_words,
    supports_copy,
)
from regard.text import learn_tokenizer_pair

FEW = [Pair([4, 5], [6, 5, 4])] * 10
MANY = [Pair([4, 5], [6, 5, 4])] * LARGE
NONE = UnknownWords(0.0, 0.0)


@pytest.fixture(scope="module")
def text():
    return learn_tokenizer_pair(["some words here"] * 9, ["other words there"] * 9, kind="bpe", vocab_size=270)[0]


def test_only_much_running_text_is_for_a_transformer(text):
    assert choose_pair_model(MANY[1:], text)[0] == "bahdanau"
    assert choose_pair_model(MANY, text)[0] == "transformer"
    reversed_letters, tokenizers = encode(WORDS, [word[::-1] for word in WORDS])
    assert choose_pair_model(reversed_letters * (LARGE // len(WORDS) + 1), tokenizers)[0] == "bahdanau"


def encode(sources, targets):
    tokenizers = learn_tokenizer_pair(sources, targets, kind="characters")[0]
    pairs = [
        Pair(tokenizers.source.encode(source), tokenizers.target.encode(target))
        for source, target in zip(sources, targets, strict=True)
    ]
    return pairs, tokenizers


WORDS = ["".join(letters) for letters in product("abcdef", repeat=3)]


def test_targets_in_the_order_of_their_sources_are_for_hard_monotonic_attention():
    spelt = [word.translate({97: "xy", 98: "z"}) for word in WORDS]
    because = "100% of the steps of a target do not move back in its source; --model bahdanau to change it"
    assert choose_pair_model(*encode(WORDS, spelt)) == ("hard-monotonic", because)
    assert choose_pair_model(*encode(WORDS, spelt), {"heads": 2}) == ("bahdanau", None)
    assert choose_pair_model(*encode(WORDS, [word[::-1] for word in WORDS])) == ("bahdanau", None)


def test_long_targets_are_not_for_hard_attention():
    long = [word * 17 for word in WORDS]
    assert choose_pair_model(*encode(long, long)) == ("bahdanau", None)


def test_many_different_target_characters_are_not_for_hard_attention():
    for size, name in ((400, "hard-monotonic"), (600, "bahdanau")):
        words = [chr(0x4E00 + index) + chr(0x4E00 + (index + 1) % size) for index in range(size)]
        assert choose_pair_model(*encode(words, words))[0] == name


def test_settings_that_only_one_model_has_choose_it(text):
    assert choose_pair_model(MANY, text, {"hidden": 8})[0] == "bahdanau"
    assert choose_pair_model(FEW, text, {"encoder_layers": 2})[0] == "transformer"
    assert choose_pair_model(FEW, text, {"dropout": 0.5})[0] == "bahdanau"
    with pytest.raises(RegardError, match=r'^recipe: unknown setting "hiden" in \[model\]; did you mean "hidden"\?$'):
        choose_pair_model(FEW, text, {"hiden": 8})


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        (["walked", "grins"], "yes: 73% of the target tokens occur in their source in the same order, 0% in that of "),
        (["klaw", "nirg"], "no: 25% of the target tokens occur in their source in the same order, 0% in that of "),
    ],
)
def test_a_model_copies_if_targets_mostly_do(targets, reason):
    sources = ["walk", "grin"]
    tokenizers = learn_tokenizer_pair(sources, targets, kind="characters")[0]
    examples = [Example(*pair) for pair in zip(sources, targets, strict=True)]
    model, copies = {"name": "bahdanau"}, reason.startswith("yes")
    change = f"another pair; --copy {'no' if copies else 'yes'} to change it"
    choose = partial(choose_copy, examples=examples, tokenizers=tokenizers, unknown=NONE)
    assert choose(model, is_new=True) == (copies, reason + change)
    assert choose({**model, "copy": True}, is_new=True) == (True, "yes: as configured")
    assert choose({**model, "copy": False}, is_new=True) == (False, "no: as configured")
    assert choose(model, is_new=False) == (False, "no: as configured")


def test_few_letters_in_another_order_are_no_copies():
    sources = ["".join(letters) for letters in product("abc", repeat=4)]
    examples = [Example(source, source[::-1]) for source in sources]
    tokenizers = learn_tokenizer_pair(sources, sources, kind="characters")[0]
    assert measure_copied_shares(examples, tokenizers)[0] > 0.5  # by chance
    assert not choose_copy({"name": "bahdanau"}, examples, tokenizers, unknown=NONE, is_new=True)[0]


def test_new_names_in_their_source_are_copied():
    names = [("to " + name, "nach " + name) for name in ("Köln", "Bonn", "Trier", "Aachen")]
    old, new = names[:2], names[2:]
    examples = [Example(*pair) for pair in old]
    tokenizers = learn_tokenizer_pair(*zip(*old, strict=True), kind="words")[0]
    unknown = measure_unknown_words([Example(*pair) for pair in new], tokenizers)
    assert unknown == UnknownWords(share=2 / 4, copied=1.0)  # Trier and Aachen, of four words
    choose = partial(choose_copy, examples=examples, tokenizers=tokenizers, unknown=unknown)
    assert choose({"name": "bahdanau"}, is_new=True) == (
        True,
        "yes: 50% of the target words of the validation data are unknown, and 100% of these are in their source; "
        "--copy no to change it",
    )
    assert choose({"name": "bahdanau"}, is_new=False)[0] is False  # a run without this setting goes on
    assert choose({"name": "bahdanau", "copy": False}, is_new=True)[0] is False
    elsewhere = measure_unknown_words([Example("to Trier", "nach Aachen")], tokenizers)
    assert elsewhere == UnknownWords(share=1 / 2, copied=0.0)
    assert not elsewhere.need_copying  # no source has them
    letters = learn_tokenizer_pair(["ab"], ["ab"], kind="characters")[0]
    assert measure_unknown_words([Example("xy", "xy")], letters) == NONE


def test_models_that_must_copy_are_not_those_of_hard_attention():
    pairs, tokenizers = encode(WORDS, WORDS)
    assert choose_pair_model(pairs, tokenizers)[0] == "hard-monotonic"
    assert choose_pair_model(pairs, tokenizers, must_copy=True) == ("bahdanau", None)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"name": "bahdanau"}, True),
        ({"name": "transformer"}, True),
        ({"name": "seq2seq"}, False),
        ({"name": "seq2seq", "attention": "after"}, True),
        ({"name": "luong-dot", "normalizer": "none"}, False),
        ({"name": "hard-monotonic"}, False),
    ],
)
def test_copying_requires_attention(model, expected):
    assert supports_copy(model) == expected
