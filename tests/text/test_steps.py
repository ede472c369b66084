import sys

import pytest

from regard.errors import RegardError
from regard.text import TextSteps, learn_tokenizer
from regard.text.steps import load_moses_tool


def test_no_steps_change_nothing():
    assert TextSteps().apply(" A  b\n") == " A  b\n"
    assert TextSteps().undo(" A  b\n") == " A  b\n"


def test_lower_case_is_not_undone():
    steps = TextSteps(lowercase=True)
    assert steps.undo(steps.apply("Ärger IST")) == "ärger ist"


def test_moses_parts_escapes_and_joins():
    pytest.importorskip("sacremoses")
    steps = TextSteps(moses="en")
    assert steps.apply('He said: "don\'t [go] & stay".') == (
        "He said : &quot; don &apos;t &#91; go &#93; &amp; stay &quot; ."
    )
    assert steps.undo("&quot; don &apos;t &#91; go &#93; &amp; stay &quot; .") == '"don\'t [go] & stay".'


def test_the_order_is_case_punctuation_words():
    pytest.importorskip("sacremoses")
    steps = TextSteps(lowercase=True, normalize_punctuation=True, moses="de")
    assert steps.apply("„Zwei“ Männer \u2013 im FREIEN.") == "&quot; zwei &quot; männer - im freien ."


def test_a_model_sees_the_words_of_moses():
    pytest.importorskip("sacremoses")
    tokenizer = learn_tokenizer("words", ["It's late.", "It's early."], steps=TextSteps(lowercase=True, moses="en"))
    encoded = tokenizer.encode_with_words("It's LATE.")
    assert encoded.tokens == ["it", "&apos;s", "late", "."]
    assert encoded.word_indices == tokenizer.ids_to_word_indices(encoded.ids) == [0, 1, 2, 3]
    assert tokenizer.decode_raw(encoded.ids) == "it &apos;s late ."
    assert tokenizer.decode(encoded.ids) == "it's late."


def test_without_sacremoses_the_extra_is_named(monkeypatch):
    load_moses_tool.cache_clear()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(RegardError) as caught:
        TextSteps(moses="en").apply("a")
    assert str(caught.value) == "moses: sacremoses is not installed; pip install sacremoses"


def test_a_language_is_a_code():
    with pytest.raises(RegardError) as caught:
        TextSteps(moses="German")
    assert str(caught.value) == 'moses: expected a language code of two or three letters, such as "en", got "German"'


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(RegardError) as caught:
        TextSteps().apply("ab\ud83d")
    assert str(caught.value) == "text: character 3 is U+D83D, an unpaired surrogate"
