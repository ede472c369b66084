from regard.text import learn_tokenizer
from regard.text.units import TextUnit, split_into_units

BPE, CHARACTERS = (learn_tokenizer(kind, ["ab c"]) for kind in ("bpe", "characters"))


def test_words_where_tokens_are_parts_of_them_otherwise_tokens():
    words = [0, 0, None, 1]
    assert split_into_units(BPE, "ab c", ["a", "b", "▁", "c"], words) == [
        TextUnit("ab", (0, 1)),
        TextUnit("c", (3,), (2,)),
    ]
    assert split_into_units(CHARACTERS, "ab c", ["a", "b", "▁", "c"], words) == [
        TextUnit(token, (index,)) for index, token in enumerate(["a", "b", "▁", "c"])
    ]
    assert split_into_units(BPE, "ab", ["a", "b"], [0, 0]) == [
        TextUnit("a", (0,)),
        TextUnit("b", (1,)),
    ]  # one word says nothing
