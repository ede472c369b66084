import sys

import pytest

from regard.errors import RegardError
from regard.text import TextSteps, learn
from regard.text.steps import moses_tool


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
    steps = TextSteps(lowercase=True, normalise_punctuation=True, moses="de")
    assert steps.apply("„Zwei“ Männer \u2013 im FREIEN.") == "&quot; zwei &quot; männer - im freien ."


def test_a_model_sees_the_words_of_moses():
    pytest.importorskip("sacremoses")
    tokenizer = learn("words", ["It's late.", "It's early."], steps=TextSteps(lowercase=True, moses="en"))
    encoded = tokenizer.encoded("It's LATE.")
    assert encoded.tokens == ["it", "&apos;s", "late", "."]
    assert encoded.words == tokenizer.words_of(encoded.ids) == [0, 1, 2, 3]
    assert tokenizer.written(encoded.ids) == "it &apos;s late ."
    assert tokenizer.decode(encoded.ids) == "it's late."


def test_without_sacremoses_the_extra_is_named(monkeypatch):
    moses_tool.cache_clear()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(RegardError) as caught:
        TextSteps(moses="en").apply("a")
    assert str(caught.value) == "moses: sacremoses is not installed; pip install 'regard[moses]'"


def test_a_language_is_a_code():
    with pytest.raises(RegardError) as caught:
        TextSteps(moses="German")
    assert str(caught.value) == 'moses: "German" is no language; a code of two or three letters is, such as "en"'


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(RegardError) as caught:
        TextSteps().apply("ab\ud83d")
    assert str(caught.value) == "text: character 3 is U+D83D, half of a surrogate pair"
