import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import TextSteps, TokenizerPair, learn_tokenizer, learn_tokenizer_pair
from regard.text.normal_forms import apply_form, compose, count_parts
from regard.text.units import TextUnit, split_into_units

GANG = "\u1100\u1161\u11bc"  # 강 by hand: initial g, vowel a, final ng
FORMS = ("none", "nfc", "nfd", "nfkc", "nfkd")

MIXED = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.characters(min_codepoint=0x0300, max_codepoint=0x036F),  # marks
        st.characters(min_codepoint=0x1100, max_codepoint=0x11FF),  # parts of syllables
        st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3),  # syllables
        st.sampled_from("e\u1ebf\u304c\u09c7\u09be\u05e9\u05c1\uff21"),
    )
)


@pytest.mark.parametrize(
    ("text", "form", "tokens"),
    [
        ("강", "nfd", GANG),
        ("강", "nfc", "강"),
        (GANG, "nfc", "강"),
        (GANG, "none", GANG),
        ("ế", "nfd", "e\u0302\u0301"),
        ("が", "nfd", "か\u3099"),
        ("\uff21\uff11", "nfkc", "A1"),
        ("\uff21\uff11", "nfd", "\uff21\uff11"),
        ("ﬁ가", "nfkd", "fi\u1100\u1161"),
    ],
)
def test_the_tokens_of_a_form(text, form, tokens):
    assert apply_form(text, form) == tokens


@given(MIXED, st.sampled_from(FORMS))
def test_composing_undoes_taking_apart(text, form):
    composed = {"none": text, "nfc": "NFC", "nfd": "NFC", "nfkc": "NFKC", "nfkd": "NFKC"}[form]
    expected = text if form == "none" else unicodedata.normalize(composed, text)
    steps = TextSteps(normal_form=form)
    assert compose(apply_form(text, form), form) == expected
    assert steps.undo(steps.apply(text)) == steps.prepare(text) == steps.compose(text) == expected


@given(MIXED)
def test_parts_of_characters_join_to_the_composed_text(text):
    tokens = unicodedata.normalize("NFD", text)
    counts = count_parts(tokens)
    assert sum(counts) == len(tokens)
    starts = [sum(counts[:index]) for index in range(len(counts))]
    parts = [tokens[start : start + count] for start, count in zip(starts, counts, strict=True)]
    assert "".join(unicodedata.normalize("NFC", part) for part in parts) == unicodedata.normalize("NFC", text)


def test_syllables_and_letters_with_marks_are_one_unit_each():
    tokenizer = learn_tokenizer("characters", ["강가 q\u0301"], steps=TextSteps(normal_form="nfd"))
    text = "강가 q\u0301"
    encoded = tokenizer.encode_with_words(text)
    assert encoded.tokens == [*GANG, "\u1100", "\u1161", "▁", "q", "\u0301"]
    assert split_into_units(tokenizer, text, encoded.tokens, encoded.word_indices) == [
        TextUnit("강", (0, 1, 2)),
        TextUnit("가", (3, 4)),
        TextUnit("▁", (5,)),
        TextUnit("q\u0301", (6, 7)),
    ]
    assert tokenizer.decode(encoded.ids) == tokenizer.decode_raw(encoded.ids) == text


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "unigram", "bytes"])
def test_every_kind_decodes_to_composed_text(kind):
    tokenizer = learn_tokenizer(kind, ["강가 가나", "나 강"], steps=TextSteps(normal_form="nfd"))
    assert tokenizer.decode(tokenizer.encode("강 나")) == "강 나"
    assert tokenizer.encode("강 나") == tokenizer.encode(f"{GANG} 나")


def test_words_stay_whole_and_are_shown_composed():
    tokenizer = learn_tokenizer("words", ["k ã m"], steps=TextSteps(normal_form="nfd"))
    encoded = tokenizer.encode_with_words("ã k")
    assert encoded.tokens == tokenizer.ids_to_tokens(encoded.ids) == ["ã", "k"]


def test_lowercase_and_form_are_combined():
    steps = TextSteps(normal_form="nfd", lowercase=True)
    assert steps.apply("É") == "e\u0301"
    assert steps.prepare("É") == "é"


def test_the_form_is_saved(tmp_path):
    steps = TextSteps(normal_form="nfd")
    pair, _ = learn_tokenizer_pair(["강"], ["k a ŋ"], source_kind="characters", target_kind="words", source_steps=steps)
    pair.save(tmp_path / "tokenizer.json")
    loaded = TokenizerPair.load(tmp_path / "tokenizer.json")
    assert loaded.source.steps == steps
    assert loaded.source.encode_with_words("강").tokens == list(GANG)
