from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from regard.data.label_batches import (
    RUN_LENGTH,
    LabelCorpus,
    TagCorpus,
    build_label_batch,
    build_tag_batch,
    encode_text,
    get_context,
)
from regard.data.labeled import LabeledText
from regard.data.tagged import TaggedSentence
from regard.sentences import LabelBatch, WordSequence
from regard.text.word_vocabulary import learn_word_vocabulary

VOCABULARY = learn_word_vocabulary([["a", "b", "c", "d"]], ["x", "y", "z"])
TAGS = learn_word_vocabulary([["a", "b", "c", "d"]], ["O", "B-X"])


def texts_in(batch: LabelBatch) -> list[WordSequence]:
    """The numbers of the words of each text, group after group."""
    return [
        tuple(group.word_ids[row, : group.lengths.on_host[row]].tolist())
        for group in batch.groups
        for row in range(len(group))
    ]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(word.word_id for word in VOCABULARY.encode(text.split()))


def test_a_text_that_several_have_is_read_once():
    examples = [
        LabeledText("a b", ("x",), "c", ("d", "a b")),
        LabeledText("c", ("y", "z"), "a b", ()),
        LabeledText("d", ("unseen",), "c", ("b", "c", "a b", "c")),
    ]
    batch = build_label_batch(examples, VOCABULARY, context_size=3, text_pairs=True, max_length=9)
    texts = texts_in(batch)
    assert sorted(texts) == sorted(numbers(text) for text in ("a b", "c", "d"))  # b is too far back
    assert [texts[index] for index in batch.texts.tolist()] == [numbers(text) for text in ("a b", "c", "d")]
    assert batch.second_texts is not None
    assert [texts[index] for index in batch.second_texts.tolist()] == [numbers(text) for text in ("c", "a b", "c")]
    assert batch.context is not None
    contexts = [[None if index < 0 else texts[index] for index in row] for row in batch.context.tolist()]
    assert contexts == [
        [None, numbers("d"), numbers("a b")],
        [None, None, None],
        [numbers("c"), numbers("a b"), numbers("c")],  # the last three, the oldest first
    ]
    assert batch.targets is not None
    assert batch.targets.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_what_is_not_asked_for_is_not_there():
    batch = build_label_batch(
        [LabeledText("a", ("x",), "b", ("c",))],
        VOCABULARY,
        context_size=0,
        text_pairs=False,
        max_length=9,
        with_targets=False,
    )
    assert (batch.second_texts, batch.context, batch.targets) == (None, None, None)
    assert texts_in(batch) == [numbers("a")]


def test_the_texts_before():
    example = LabeledText("x", (), None, ("a", "b", "c"))
    assert get_context(example, 2) == ["b", "c"]
    assert get_context(example, 4) == [None, "a", "b", "c"]
    assert get_context(LabeledText("x", ()), 2) == [None, None]


def test_of_a_long_text_the_first_words_are_read():
    assert encode_text("a b c d", VOCABULARY, 2) == VOCABULARY.encode(["a", "b"])
    assert encode_text("", VOCABULARY, 2) == VOCABULARY.encode([""])  # a text without words still has a place


def test_tags_lie_beside_their_words():
    batch = build_tag_batch([TaggedSentence(("a", "b"), ("O", "B-X")), TaggedSentence(("c",), ("B-X",))], TAGS)
    assert batch.tags is not None
    assert batch.tags.tolist() == [[0, 1], [1, -1]]
    assert batch.sentences.lengths.tolist() == [2, 1]
    assert build_tag_batch([TaggedSentence(("a",), ("?",))], TAGS, with_tags=False).tags is None


def corpus(words: list[int], *, context_size: int = 0, tokens: int = 12, seed: int = 0) -> LabelCorpus:
    examples = [LabeledText(" ".join(["a"] * count), ("x",)) for count in words]
    return LabelCorpus(examples, VOCABULARY, tokens, context_size, False, 9, seed)


@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=60), st.sampled_from([0, 1]), st.integers(0, 9), st.integers(0, 3)
)
def test_every_example_comes_once_an_epoch_within_the_budget(words, context_size, seed, epoch):
    plan = corpus(words, context_size=context_size, seed=seed).plan(epoch)
    assert sorted(index for batch in plan for index in batch) == list(range(len(words)))
    assert all(plan)
    for batch in plan:
        runs = 1 + sum(after != index + 1 for index, after in pairwise(batch))
        assert runs == 1 or sum(min(words[index], 9) for index in batch) <= 12


def test_the_order_is_decided_by_seed_and_epoch():
    words = [1 + index % 5 for index in range(60)]
    assert corpus(words).plan(3) == corpus(words).plan(3)
    assert corpus(words).plan(3) != corpus(words).plan(4)
    assert corpus(words, seed=1).plan(3) != corpus(words).plan(3)


def test_where_the_texts_before_are_read_runs_stay_together():
    plan = corpus([1] * 100, context_size=2, tokens=20).plan(0)
    order = [index for batch in plan for index in batch]
    together = sum(after == index + 1 for index, after in pairwise(order))
    assert together >= 100 * (1 - 1 / RUN_LENGTH) - RUN_LENGTH
    assert order != list(range(100))
    assert corpus([1] * 100, context_size=2, tokens=20).plan(1)[0] != plan[0]
    starts = {index % RUN_LENGTH for before, index in pairwise([-9, *order]) if index != before + 1 and index}
    others = corpus([1] * 100, context_size=2, tokens=20)
    every = [index for epoch in range(8) for batch in others.plan(epoch) for index in batch[:1]]
    assert len(starts) == 1
    assert len({index % RUN_LENGTH for index in every}) > 3  # runs begin elsewhere in every epoch


def test_signs_of_a_text_without_spaces_count_as_words():
    chinese = [LabeledText("我爱你们" * 2, ("x",)) for _ in range(30)]
    plan = LabelCorpus(chinese, VOCABULARY, 24, 0, False, 99, 0).plan(0)
    assert [len(batch) for batch in plan] == [3] * 10


def test_both_texts_of_a_pair_count():
    pairs = [LabeledText("a a a", ("x",), "b b b b b") for _ in range(12)]
    plan = LabelCorpus(pairs, VOCABULARY, 16, 0, True, 99, 0).plan(0)
    assert [len(batch) for batch in plan] == [2] * 6


def test_a_batch_is_made_of_its_places_and_named_by_its_first():
    examples = [LabeledText(text, ("y",)) for text in ("a", "b b", "c c c", "d")]
    label_corpus = LabelCorpus(examples, VOCABULARY, 12, 0, False, 9, 0)
    batch = label_corpus.batch((2, 0), 0)
    assert [texts_in(batch)[index] for index in batch.texts.tolist()] == [numbers("c c c"), numbers("a")]
    assert batch.targets is not None
    assert batch.targets.tolist() == [[0, 1, 0]] * 2
    assert label_corpus.name((2, 0)) == 'of "c c c", "a"'
    assert label_corpus.name((0, 1, 2, 3)) == 'of "a", "b b", "c c c" and 1 more'


@given(st.lists(st.integers(1, 14), min_size=1, max_size=60), st.integers(0, 9), st.integers(0, 3))
def test_every_sentence_comes_once_an_epoch_with_others_of_like_length(words, seed, epoch):
    sentences = [TaggedSentence(("a",) * count, ("O",) * count) for count in words]
    tag_corpus = TagCorpus(sentences, TAGS, 20, seed)
    plan = tag_corpus.plan(epoch)
    assert sorted(index for batch in plan for index in batch) == list(range(len(words)))
    assert plan == TagCorpus(sentences, TAGS, 20, seed).plan(epoch)
    for batch in plan:
        assert len(batch) == 1 or max(words[index] for index in batch) * len(batch) <= 20


def test_a_batch_of_sentences():
    sentences = [TaggedSentence(("a", "b"), ("O", "B-X")), TaggedSentence(("c", "d"), ("O", "O"))]
    tag_corpus = TagCorpus(sentences, TAGS, 20, 0)
    batch = tag_corpus.batch((1, 0), 0)
    assert batch.tags is not None
    assert batch.tags.tolist() == [[0, 0], [0, 1]]
    assert tag_corpus.name((1, 0)) == 'of "c d", "a b"'
