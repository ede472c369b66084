from random import Random

import pytest

from regard.batch import BOS, EOS, PAD, UNKNOWN, Pair
from regard.data.example import Example
from regard.tasks.pairs.batches import PairBatches, encode_examples, hide_tokens
from regard.text import learn_tokenizer_pair

EXAMPLES = [Example("a b c", "c b a"), Example("a", "a"), Example("b c", "c b"), Example("c", "c")]
A, B, C = 4, 5, 6


@pytest.fixture(scope="module")
def tokenizers():
    return learn_tokenizer_pair([e.source for e in EXAMPLES] + ["a"] * 9 + ["b"] * 3, ["a b c"], kind="words")[0]


def corpus(tokenizers, examples=EXAMPLES, **options):
    return PairBatches(
        examples, encode_examples(examples, tokenizers), tokenizers, **{"tokens": 8, "seed": 0, **options}
    )


def test_examples_become_numbers(tokenizers):
    pairs = encode_examples(EXAMPLES[:2], tokenizers)
    assert [pair.source for pair in pairs] == [[A, B, C], [A]]
    assert [pair.target for pair in pairs] == [[C, B, A], [A]]


def test_lengths_count_the_end(tokenizers):
    assert corpus(tokenizers).lengths == [(4, 4), (2, 2), (3, 3), (2, 2)]


def test_an_epoch_has_every_pair_once_and_no_batch_too_many_tokens(tokenizers):
    batches = corpus(tokenizers)
    for epoch in range(3):
        plan = batches.plan(epoch)
        assert sorted(index for indices in plan for index in indices) == [0, 1, 2, 3]
        assert all(len(indices) * max(batches.lengths[index][0] for index in indices) <= 8 for indices in plan)
    assert 0 <= batches.build_plan(0).padding < 1


def test_a_batch_holds_the_pairs_asked_for(tokenizers):
    batch = corpus(tokenizers).batch([0, 1], epoch=0)
    assert batch.source.tolist() == [[A, B, C, EOS], [A, EOS, PAD, PAD]]
    assert batch.target_in.tolist() == [[BOS, C, B, A], [BOS, A, PAD, PAD]]
    assert batch.target_out.tolist() == [[C, B, A, EOS], [A, EOS, PAD, PAD]]


def test_a_batch_has_a_name_by_which_it_is_found(tokenizers):
    batches = corpus(tokenizers)
    assert batches.name([2, 1]) == 'of examples 2, 3, starting with "a"'
    many = corpus(tokenizers, EXAMPLES * 3)
    assert many.name(range(10)) == 'of examples 1, 2, 3, 4, 5, 6, 7, 8 and 2 more, starting with "a b c"'


def test_with_dropout_texts_are_cut_anew_in_each_epoch_and_the_same_when_it_comes_again():
    examples = [Example(f"reading writing number {n}", f"numbers written {n}") for n in range(8)]
    texts = [example.source for example in examples] * 5, [example.target for example in examples] * 5
    tokenizers = learn_tokenizer_pair(*texts, kind="bpe", vocab_size=300)[0]
    batches = corpus(tokenizers, examples, dropout=0.5)
    first, again, second = (batches.batch([0, 3], epoch) for epoch in (0, 0, 1))
    assert first.source.tolist() == again.source.tolist()
    assert first.source.tolist() != second.source.tolist()
    for batch in (first, second):
        for row, index in zip(batch.source.tolist(), (0, 3), strict=True):
            assert tokenizers.source.decode(row) == examples[index].source  # the same text, however it is cut
    other = corpus(tokenizers, examples, dropout=0.5, seed=1)
    assert other.batch([0, 3], 0).source.tolist() != first.source.tolist()


def test_with_dropout_unknown_target_tokens_are_copies_of_the_new_source_tokens():
    examples = [Example("bad zig zag", "zag bad"), Example("bad zig zag", "bad")] * 4
    known = ["bad"] * 9
    tokenizers = learn_tokenizer_pair(
        [e.source for e in examples], known, source_kind="bpe", target_kind="words", vocab_size=290
    )[0]
    pairs = encode_examples(examples, tokenizers, copy=True)
    assert tokenizers.source.encode_to_pieces("bad zig zag")[1] == [b" bad", b" zig", b" zag"]
    batches = PairBatches(examples, pairs, tokenizers, tokens=80, seed=0, dropout=0.5)
    lost = set()
    for epoch in range(20):
        batch = batches.batch([0], epoch)
        ids, first = batch.copy_ids[0].tolist(), int(batch.target_out[0, 0])
        whole = [index for index, token in enumerate(batch.source[0].tolist()) if token == pairs[0].source[2]]
        lost.add(not whole)
        assert first == (ids[whole[0]] if whole else UNKNOWN)
    assert lost == {True, False}


def test_pairs_that_copy_know_what_their_sources_copy(tokenizers):
    pairs = encode_examples(EXAMPLES, tokenizers, copy=True)
    batch = PairBatches(EXAMPLES, pairs, tokenizers, tokens=8, seed=0).batch([0, 1], 0)
    assert batch.copy_ids.tolist() == [[A, B, C, EOS], [A, EOS, PAD, PAD]]
    assert batch.copy_size == C + 1


def test_hidden_tokens_are_unknown_on_both_sides_and_can_still_be_copied():
    pair = Pair([4, 5, 6, 4, 7], [5, 9, 12, 4], [5, 12, 4, 5, 8])  # 12 is no token of the target vocabulary
    hidden = hide_tokens(pair, 1.0, 10, Random(0))
    assert hidden == Pair([UNKNOWN] * 4 + [7], [13, 9, 14, 15], [13, 14, 15, 13, 8])  # the target has no 8
    assert hide_tokens(pair, 0.0, 10, Random(0)) == pair


def test_tokens_are_hidden_anew_in_each_epoch_and_the_same_when_it_comes_again(tokenizers):
    pairs = encode_examples(EXAMPLES, tokenizers, copy=True)
    batches = PairBatches(EXAMPLES, pairs, tokenizers, tokens=8, seed=0, hide=0.5)
    epochs = [batches.batch([0, 1, 2, 3], epoch).source.tolist() for epoch in (0, 1, 2, 3, 0)]
    assert epochs[0] == epochs[4]
    assert len({str(epoch) for epoch in epochs}) > 1
    assert any(UNKNOWN in row for epoch in epochs for row in epoch)
