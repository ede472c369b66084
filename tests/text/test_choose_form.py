import unicodedata

import pytest

from regard.text.choose_form import SideCharacters, choose_forms

HANGUL = ["가", "나", "다", "강", "가나", "나다", "다가"]
PHONES = ["k a", "n a", "t a", "k a ŋ", "k a n a", "n a t a", "t a k a"]
LATIN = ["ga", "na", "da", "gang", "gana", "nada", "daga"]


def choose(sources, targets, source_kind="characters", target_kind="characters"):
    source = SideCharacters("source", sources, source_kind)
    return choose_forms(source, SideCharacters("target", targets, target_kind))


@pytest.mark.parametrize(("others", "kind"), [(PHONES, "words"), (LATIN, "characters")])
def test_syllables_are_taken_apart_where_the_other_side_spells_sounds(others, kind):
    symbols = sum(len(text.split()) if kind == "words" else len(text) for text in others)
    syllables = sum(map(len, HANGUL))
    for swapped in (False, True):
        pair = choose(others, HANGUL, kind) if swapped else choose(HANGUL, others, "characters", kind)
        plain, hangul = pair if swapped else reversed(pair)
        side, other = ("target", "source") if swapped else ("source", "target")
        assert (hangul.form, plain.form, plain.reasons) == ("nfd", "nfc", ())
        assert hangul.reasons == (  # g, n, d, a and final ng
            f"{side}: nfd: the {other} has {symbols / syllables:.1f} symbols per syllable, so 4 characters are taken "
            f"apart: 5 instead of 4 distinct ones (--{side}-normal-form nfc keeps them whole)",
        )


def test_syllables_stay_whole_where_the_other_side_has_no_more_symbols():
    frequent = 300 * HANGUL
    assert [choice.form for choice in choose(frequent, 300 * ["A"] * len(HANGUL))] == ["nfc", "nfc"]


def test_more_syllables_do_not_spell_sounds():
    assert [choice.form for choice in choose(300 * HANGUL, 300 * [2 * word for word in HANGUL])] == ["nfc", "nfc"]


def test_words_and_subwords_stay_whole():
    for kind in ("words", "bpe", "unigram", "bytes"):
        assert choose(HANGUL, PHONES, kind, "words")[0] == ("nfc", ())


def test_characters_are_taken_apart_if_new_text_would_have_unknown_ones():
    frequent = 20 * ["e", "a", "\u00e9", "\u00e2"]  # e, a, é, â
    one_in_81 = choose([*frequent, "\u00ea"], 81 * ["x"])[0]  # ê, whose parts are known
    assert one_in_81 == (
        "nfd",
        (
            "source: nfd: characters seen only once: 1; about 1.2 % of new text would be unknown, so 3 characters are "
            "taken apart: 4 instead of 5 distinct ones (--source-normal-form nfc keeps them whole)",
        ),
    )
    assert choose([*frequent, "\u00f1"], 81 * ["x"])[0] == ("nfc", ())  # ñ, whose parts nobody knows
    assert choose([*(3 * frequent), "\u00ea"], 241 * ["x"])[0] == ("nfc", ())  # 0.4 %


def test_two_sides_of_one_script_are_taken_apart_together():
    often = 60 * ["\u00e9\u00e2ea"]
    first, second = choose([*often, "\u00ea"], often)
    assert (first.form, second.form) == ("nfc", "nfc")  # one of 241
    first, second = choose([*often[:20], "\u00ea"], often)
    assert (first.form, second.form) == ("nfd", "nfd")  # one of 81
    assert second.reasons == ("target: nfd: as the other side (--target-normal-form)",)


def test_decomposed_text_is_composed_and_that_is_said():
    source, target = choose(["caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9 \u00e9")] * 30, ["x"] * 60)
    assert source == ("nfc", ("source: nfc: 30 texts are not composed (--source-normal-form none keeps them)",))
    assert target == ("nfc", ())


def test_wide_and_invisible_characters_are_mentioned():
    source, target = choose(["\uff21\uff22", "AB"], ["a\u200bb\ufeff", "\u200b"], "bpe", "bpe")
    assert source.reasons == (
        "source: 1 texts have full-width letters or digits; --source-normal-form nfkc makes them ordinary",
    )
    assert target.reasons == (
        "target: note: 3 invisible characters (U+200B, U+FEFF) count as characters of their words",
    )
    assert choose(["\uff21\uff22"], ["a"], "bpe", "bpe")[0].reasons == ()  # nothing to confuse them with
