import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment import (
    NEIGHBORS,
    SYMMETRIZATIONS,
    AttentionExample,
    GoldLinks,
    HeadSelection,
    align,
    extract_links,
    merge_words,
    parse_pharaoh,
    parse_selection,
    read_pharaoh,
    select_attention,
    shift_rows,
    symmetrize,
    to_pharaoh,
)
from regard.errors import RegardError

some_links = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=14)


def links(text):
    return parse_pharaoh(text, "here").sure


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


# Two source words of two and one tokens, then <eos>; two target words of one and two tokens, a space between, <eos>.
WEIGHTS = np.array(
    [
        [0.1, 0.2, 0.6, 0.1],
        [0.7, 0.1, 0.1, 0.1],
        [0.5, 0.1, 0.2, 0.2],
        [0.3, 0.3, 0.0, 0.4],
        [0.0, 0.0, 0.1, 0.9],
    ]
)
SOURCE_WORDS, TARGET_WORDS = (0, 0, 1, None), (0, None, 1, 1, None)


def test_source_tokens_are_summed_and_target_tokens_averaged():
    merged = merge_words(WEIGHTS, SOURCE_WORDS, TARGET_WORDS)
    np.testing.assert_allclose(merged, [[0.3, 0.6], [(0.6 + 0.6) / 2, (0.2 + 0.0) / 2]])


def test_a_word_without_tokens_gets_no_weight():
    merged = merge_words(WEIGHTS, (0, 0, 2, None), (1, None, None, None, None))
    np.testing.assert_allclose(merged, [[0, 0, 0], [0.3, 0, 0.6]])


def test_sentences_without_words_give_no_links():
    merged = merge_words(WEIGHTS, (None,) * 4, (None,) * 5)
    assert merged.shape == (0, 0)
    assert extract_links(merged) == frozenset()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_heads_are_merged_side_by_side_as_each_alone(dtype):
    weights = torch.rand(2, 3, 5, 4).to(dtype)
    merged = merge_words(weights, SOURCE_WORDS, TARGET_WORDS)
    assert merged.shape == (2, 3, 2, 2)
    assert merged.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    alone = merge_words(weights[1, 2].float().numpy(), SOURCE_WORDS, TARGET_WORDS)
    np.testing.assert_allclose(merged[1, 2], alone, rtol=1e-6)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_a_row_keeps_its_sum_where_every_token_has_a_word(source_words, target_words):
    weights = np.random.default_rng(0).dirichlet(np.ones(len(source_words)), len(target_words))
    sums = merge_words(weights, source_words, target_words).sum(axis=1)
    np.testing.assert_allclose(sums, [float(word in target_words) for word in range(len(sums))])


def test_words_must_fit_the_weights():
    with refused("merge_words: expected the words of 4 source tokens, as in the weights, got 3"):
        merge_words(WEIGHTS, (0, 1, None), TARGET_WORDS)
    with refused("merge_words: expected the words of 5 target tokens, as in the weights, got 2"):
        merge_words(WEIGHTS, SOURCE_WORDS, (0, None))
    with refused("merge_words: word indices must be at least 0, got -1"):
        merge_words(WEIGHTS, (0, 1, 2, -1), TARGET_WORDS)
    with refused("merge_words: expected weights of shape (target, source), got (4,)"):
        merge_words(WEIGHTS[0], SOURCE_WORDS, TARGET_WORDS)


def test_each_target_word_links_to_what_it_looks_at_most():
    weights = np.array([[0.2, 0.7, 0.1], [0.0, 0.0, 0.0], [0.4, 0.2, 0.4]])  # no weight in row 1, a tie in row 2
    assert extract_links(weights) == links("1-0 0-2")
    assert extract_links(torch.from_numpy(weights), threshold=0.5) == links("1-0")


def test_a_threshold_links_all_that_get_enough():
    weights = np.array([[0.2, 0.7, 0.1], [0.0, 0.0, 0.0], [0.4, 0.2, 0.4]])
    assert extract_links(weights, "threshold", 0.4) == links("1-0 0-2 2-2")
    assert extract_links(weights, "threshold") == links("0-0 1-0 0-2 1-2 2-2")  # 0.2


def test_what_links_from_refuses():
    with refused('alignment: unknown method "argmx"; did you mean "argmax"?'):
        extract_links(WEIGHTS, "argmx")
    with refused("alignment: threshold must be above 0 and at most 1, got 1.5"):
        extract_links(WEIGHTS, "threshold", 1.5)
    with refused("alignment: expected weights of shape (target words, source words), got (1, 5, 4)"):
        extract_links(WEIGHTS[None])


def test_a_shift_takes_the_row_of_the_step_that_reads_the_token():
    rows = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(shift_rows(rows, 0), rows)
    np.testing.assert_array_equal(shift_rows(rows, 1), [[2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(shift_rows(torch.stack([torch.from_numpy(rows)] * 2), 1)[1], [[2, 3], [4, 5], [0, 0]])
    with refused("alignment: shift must be 0 (the step that writes a token) or 1 (the step that reads it), got 2"):
        shift_rows(rows, 2)


def test_select_takes_a_head_or_a_mean():
    weights = torch.rand(2, 3, 5, 4, dtype=torch.float64)
    numbers = weights.numpy()
    np.testing.assert_array_equal(select_attention(weights, 1, 2), numbers[1, 2])
    np.testing.assert_allclose(select_attention(weights, 1), (numbers[1, 0] + numbers[1, 1] + numbers[1, 2]) / 3)
    np.testing.assert_allclose(select_attention(weights, None, 2), (numbers[0, 2] + numbers[1, 2]) / 2)
    np.testing.assert_allclose(select_attention(weights), sum(numbers[i, j] for i in range(2) for j in range(3)) / 6)
    with refused("alignment: layer must be from 0 to 1, got 2"):
        select_attention(weights, 2)
    with refused("alignment: head must be from 0 to 2, got -1"):
        select_attention(weights, 0, -1)
    with refused("alignment: expected weights of shape (layers, heads, target, source), got (3, 5, 4)"):
        select_attention(weights[0])


def test_an_attention_has_a_name():
    names = {"2.3": HeadSelection(2, 3), "2": HeadSelection(2, None), "mean": HeadSelection(None, None)}
    for name, index in names.items():
        assert parse_selection(name) == index
        assert str(index) == name
    assert parse_selection("0.1", shift=1) == HeadSelection(0, 1, 1)
    assert str(HeadSelection(0, 1, 1)) == "0.1, shift 1"
    with refused('alignment: unknown attention "2.x"; expected layer.head such as 2.3, a layer such as 2, or mean'):
        parse_selection("2.x")


def test_align_goes_all_the_way():
    weights = torch.zeros(1, 2, 4, 3)  # two source words and <eos>; three target tokens and <eos>
    weights[0, 0, torch.arange(4), torch.tensor([1, 0, 1, 2])] = 1
    weights[0, 1, torch.arange(4), torch.tensor([2, 1, 0, 1])] = 1
    attended = AttentionExample(weights, (0, 1, None), (0, 1, 2, None))
    assert align(attended, HeadSelection(0, 0)) == links("1-0 0-1 1-2")
    assert align(attended, HeadSelection(0, 1)) == links("1-1 0-2")  # token 0 looks at <eos>
    assert align(attended, HeadSelection(0, 1, shift=1)) == links("1-0 0-1 1-2")
    assert align(attended, method="threshold", threshold=0.5) == links("1-0 0-1 1-1 0-2 1-2")  # the mean of both heads


def test_without_eos_the_last_token_was_never_read():
    attended = AttentionExample(torch.eye(2)[None, None], (0, 1), (0, 1))
    assert align(attended, HeadSelection(0, 0, shift=1)) == links("1-0")


FORWARD, BACKWARD = "0-0 1-1 3-3", "0-0 1-2 4-3"


@pytest.mark.parametrize(
    ("method", "expected"),
    {
        "intersection": "0-0",
        "union": "0-0 1-1 1-2 3-3 4-3",
        "grow-diag": "0-0 1-1 1-2",  # 1-1 is a neighbor of 0-0, and 1-2 of 1-1
        "grow-diag-final": "0-0 1-1 1-2 3-3 4-3",  # 4-3 has a free source word
        "grow-diag-final-and": "0-0 1-1 1-2 3-3",  # but target word 3 has a link by then
    }.items(),
)
def test_symmetrize_by_hand(method, expected):
    assert symmetrize(links(FORWARD), links(BACKWARD), method) == links(expected)


def test_nothing_is_added_between_words_that_have_links():
    for method in ("grow-diag", "grow-diag-final", "grow-diag-final-and"):
        assert symmetrize(links("0-0 0-1 1-1"), links("0-0 1-1"), method) == links("0-0 1-1")


def test_of_two_final_links_forward_comes_first():
    assert symmetrize(links("5-5"), links("5-6"), "grow-diag-final-and") == links("5-5")
    assert symmetrize(links("5-6"), links("5-5"), "grow-diag-final-and") == links("5-6")


def by_the_book(forward, backward, method):
    """The loops of the textbook, over a whole table; [target, source]."""
    one, other = np.zeros((5, 6), bool), np.zeros((5, 6), bool)
    for table, given_links in ((one, forward), (other, backward)):
        for source, target in given_links:
            table[target, source] = True
    made, either = one & other, one | other
    added = True
    while added:
        added = False
        for e, f in np.ndindex(5, 6):
            for de, df in NEIGHBORS if made[e, f] else ():
                near = (e + de, f + df)
                if not (0 <= near[0] < 5 and 0 <= near[1] < 6) or not either[near] or made[near]:
                    continue
                if not made[near[0]].any() or not made[:, near[1]].any():
                    made[near] = added = True
    need = {"grow-diag-final": 1, "grow-diag-final-and": 2}.get(method, 3)
    for table in (one, other):
        for e, f in np.ndindex(5, 6):
            if table[e, f] and int(not made[e].any()) + int(not made[:, f].any()) >= need:
                made[e, f] = True
    return frozenset((int(f), int(e)) for e, f in np.argwhere(made))


@given(some_links, some_links, st.sampled_from([m for m in SYMMETRIZATIONS if m.startswith("grow")]))
def test_symmetrize_by_the_book(forward, backward, method):
    made = symmetrize(forward, backward, method)
    assert forward & backward <= made <= forward | backward
    assert made == by_the_book(forward, backward, method)


def test_an_unknown_symmetrization():
    with refused('unknown symmetrize "grow-dag"; did you mean "grow-diag"?'):
        symmetrize(frozenset(), frozenset(), "grow-dag")


def test_links_are_written_in_order():
    assert to_pharaoh(frozenset({(10, 0), (2, 1), (2, 0)})) == "2-0 2-1 10-0"
    assert to_pharaoh(frozenset({(0, 1)}), base=1) == "1-2"
    assert to_pharaoh(frozenset()) == ""


@given(some_links, st.sampled_from([0, 1]))
def test_what_is_written_is_read_again(given_links, base):
    assert parse_pharaoh(to_pharaoh(given_links, base), "here", base) == GoldLinks(given_links, given_links)


def test_sure_links_are_possible():
    gold = parse_pharaoh("1-1  2p3 4?1 1p1\n", "here", base=1)
    assert gold == GoldLinks(sure=frozenset({(0, 0)}), possible=frozenset({(0, 0), (1, 2), (3, 0)}))


@given(st.text(max_size=12) | st.text("019-p? ", max_size=12))
def test_any_text_is_read_or_refused(text):
    if all(re.fullmatch("[0-9]{1,9}[-p?][0-9]{1,9}", word) for word in text.split()):
        assert len(parse_pharaoh(text, "here").possible) <= len(text.split())
    else:
        with pytest.raises(RegardError, match=r"^here: "):
            parse_pharaoh(text, "here")


def test_what_parse_pharaoh_refuses():
    with refused('gold, line 7: expected a link such as 3-4 (sure) or 3p4 (possible), got "1:2"'):
        parse_pharaoh("0-0 1:2", "gold, line 7")
    with refused('gold, line 7: words must be counted from 1, got "0-1"'):
        parse_pharaoh("0-1", "gold, line 7", base=1)
    with refused("gold, line 7: base must be 0 or 1, got 2"):
        parse_pharaoh("0-1", "gold, line 7", base=2)
    long = "9" * 5000
    with refused(f'gold: expected a link such as 3-4 (sure) or 3p4 (possible), got "{long[:58]}…'):
        parse_pharaoh(f"{long}-0", "gold")


def test_a_file_of_links(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_bytes(b"\xef\xbb\xbf0-0 1p1\r\n\r\n2-2")
    assert read_pharaoh(path) == [GoldLinks(links("0-0"), links("1-1")), GoldLinks(links("")), GoldLinks(links("2-2"))]
    path.write_text("0-0\n1-\n")
    with refused(f'{path}, line 2: expected a link such as 3-4 (sure) or 3p4 (possible), got "1-"'):
        read_pharaoh(path)
    path.write_bytes(b"0-0 \xff")
    with refused(f"{path} is not valid UTF-8: byte 5; expected links such as 0-0 1-2"):
        read_pharaoh(path)
    with refused(f"cannot read {tmp_path / 'none'}: not found"):
        read_pharaoh(tmp_path / "none")
