from regard.text.units import Unit, units_of


def test_words_where_tokens_are_parts_of_them_otherwise_tokens():
    words = [0, 0, None, 1]
    assert units_of("bpe", "ab c", ["a", "b", "▁", "c"], words) == [Unit("ab", (0, 1)), Unit("c", (3,), (2,))]
    assert units_of("characters", "ab c", ["a", "b", "▁", "c"], words) == [
        Unit(token, (place,)) for place, token in enumerate(["a", "b", "▁", "c"])
    ]
    assert units_of("bpe", "ab", ["a", "b"], [0, 0]) == [Unit("a", (0,)), Unit("b", (1,))]  # one word says nothing
