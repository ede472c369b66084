import torch

from regard.maps.sides import Side, build_token_side, build_word_side, mean_rows
from regard.text import learn_tokenizer
from regard.text.units import TextUnit

BPE, CHARACTERS = (learn_tokenizer(kind, ["the animal"]) for kind in ("bpe", "characters"))

# "the", a space, "ani" + "mal", <eos>
WORDS = Side((TextUnit("the", (0,)), TextUnit("animal", (2, 3)), TextUnit("<eos>", (4,))), 5)


def test_columns_of_a_word_are_added_and_spaces_left_out():
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.15, 0.25]]])
    torch.testing.assert_close(WORDS.sum_columns(weights), torch.tensor([[[0.1, 0.45, 0.25]]]))


def test_rows_of_a_word_are_averaged():
    weights = torch.tensor([[1.0, 0.0], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5], [0.3, 0.7]])
    torch.testing.assert_close(mean_rows(weights, WORDS.units), torch.tensor([[1.0, 0.0], [0.35, 0.65], [0.3, 0.7]]))
    # the same rows without those before the first unit
    torch.testing.assert_close(mean_rows(weights[2:], WORDS.units[1:]), torch.tensor([[0.35, 0.65], [0.3, 0.7]]))


def test_blocks_keep_words_whole():
    names = [[unit.text for unit in block] for block in WORDS.iter_blocks(2)]
    assert names == [["the"], ["animal"], ["<eos>"]]
    assert [[unit.text for unit in block] for block in WORDS.iter_blocks(4)] == [["the", "animal"], ["<eos>"]]
    assert [len(block) for block in WORDS.iter_blocks(0)] == [1, 1, 1]
    assert list(WORDS.iter_blocks(5)) == [WORDS.units]


def test_tokens_are_no_words():
    side = build_token_side(("a", "b"))
    assert (side.names, side.merged, WORDS.merged) == (("a", "b"), False, True)
    weights = torch.rand(1, 3, 2)
    assert side.sum_columns(weights) is weights


def test_special_tokens_stay_around_the_words():
    side = build_word_side(BPE, "the animal", ("the", "▁ani", "mal"), (0, 1, 1), before=("<bos>",), after=("<eos>",))
    units = [(unit.text, unit.token_indices) for unit in side.units]
    assert units == [("<bos>", (0,)), ("the", (1,)), ("animal", (2, 3)), ("<eos>", (4,))]
    assert (side.size, side.merged) == (5, True)


def test_characters_and_a_single_word_stay_tokens():
    assert build_word_side(CHARACTERS, "a b", ("a", "▁", "b"), (0, None, 1)).names == ("a", "▁", "b")
    assert build_word_side(BPE, "animal", ("ani", "mal"), (0, 0), after=("<eos>",)).names == ("ani", "mal", "<eos>")
