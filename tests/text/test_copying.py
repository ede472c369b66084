import pytest

from regard.batch import UNKNOWN
from regard.text import learn_tokenizer_pair
from regard.text.copying import CopyTable, count_copied


def learn(sources, targets, **settings):
    return CopyTable(learn_tokenizer_pair(sources, targets, **settings)[0])


def test_letters_copy_themselves_and_unknown_ones_get_ids_after_the_last():
    table = learn(["abc"], ["abx"], kind="characters", shared_vocab=False)
    target = table.tokenizers.target
    (a, b), size = target.encode("ab"), target.size
    copied = table.encode("aßcßb")
    assert copied.ids == [a, size, size + 1, size, b]
    assert copied.pieces == ("ß".encode(), b"c")  # c is known, but not to the target
    assert table.extend_target(copied).decode([size, a, size + 1]) == "ßac"


def test_a_target_has_the_copies_of_its_unknown_tokens():
    table = learn(["the cat"], ["die katze"], kind="words")
    pair = table.encode_pair("the Ada cat", "die Ada Bob katze")
    (die, katze), size = table.tokenizers.target.encode("die katze"), table.tokenizers.target.size
    assert pair.copy_ids == [size, size + 1, size + 2]
    assert pair.target == [die, size + 1, UNKNOWN, katze]
    extended = table.extend_target(table.encode("the Ada cat"))
    assert extended.decode(pair.target) == "die Ada <unk> katze"
    assert extended.ids_to_tokens(pair.target) == ["die", "Ada", "<unk>", "katze"]
    assert extended.size == size


@pytest.mark.parametrize(
    ("source_kind", "target_kind", "source", "expected"),
    [
        ("characters", "words", "abz", "a b z"),
        ("words", "characters", "a b z", "abz"),
        ("words", "words", "a b z", "a b z"),
        ("bytes", "bytes", "abz", "abz"),
    ],
)
def test_every_token_can_be_copied_between_kinds(source_kind, target_kind, source, expected):
    targets = ["a b"] if target_kind == "words" else ["ab"]
    table = learn(["a b"], targets, source_kind=source_kind, target_kind=target_kind, shared_vocab=False)
    copied = table.encode(source)
    assert table.extend_target(copied).decode(copied.ids) == expected
    known = table.tokenizers.target.encode(expected)[:2]
    assert copied.ids[:2] == known


def test_subwords_copy_their_bytes():
    sources, targets = ["low lower lowest"] * 3, ["new newer newest"] * 3
    table = learn(sources, targets, kind="bpe", vocab_size=270, shared_vocab=False)
    copied = table.encode("lower")
    assert table.extend_target(copied).decode(copied.ids) == "lower"


def test_what_can_be_copied_in_order_is_the_longest_common_subsequence():
    assert count_copied([1, 2, 3, 4], [1, 9, 3, 4]) == 3
    assert count_copied([1, 2, 3], [3, 2, 1]) == 1
    assert count_copied([5, 5], [5, 5, 5]) == 2
    assert count_copied([], [1]) == count_copied([1], []) == 0
