from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from regard.data.label_batches import TOGETHER, LabelCorpus, TagCorpus, as_text, label_batch, last, tag_batch
from regard.data.labelled import Labelled
from regard.data.tagged import Tagged
from regard.sentences import LabelBatch, Text
from regard.text.lexicon import learn_lexicon

LEXICON = learn_lexicon([["a", "b", "c", "d"]], ["x", "y", "z"])
TAGS = learn_lexicon([["a", "b", "c", "d"]], ["O", "B-X"])


def texts_in(batch: LabelBatch) -> list[Text]:
    """The numbers of the words of each text, group after group."""
    return [
        tuple(group.words[row, : group.lengths.on_host[row]].tolist())
        for group in batch.groups
        for row in range(len(group))
    ]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(word.number for word in LEXICON.encode(text.split()))


def test_a_text_that_several_have_is_read_once():
    examples = [
        Labelled("a b", ("x",), "c", ("d", "a b")),
        Labelled("c", ("y", "z"), "a b", ()),
        Labelled("d", ("unseen",), "c", ("b", "c", "a b", "c")),
    ]
    batch = label_batch(examples, LEXICON, before=3, pairs=True, longest=9)
    texts = texts_in(batch)
    assert sorted(texts) == sorted(numbers(text) for text in ("a b", "c", "d"))  # b is too far back
    assert [texts[place] for place in batch.texts.tolist()] == [numbers(text) for text in ("a b", "c", "d")]
    assert batch.seconds is not None
    assert [texts[place] for place in batch.seconds.tolist()] == [numbers(text) for text in ("c", "a b", "c")]
    assert batch.context is not None
    found = [[None if place < 0 else texts[place] for place in row] for row in batch.context.tolist()]
    assert found == [
        [None, numbers("d"), numbers("a b")],
        [None, None, None],
        [numbers("c"), numbers("a b"), numbers("c")],  # the last three, the oldest first
    ]
    assert batch.targets is not None
    assert batch.targets.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_what_is_not_asked_for_is_not_there():
    batch = label_batch([Labelled("a", ("x",), "b", ("c",))], LEXICON, before=0, pairs=False, longest=9, targets=False)
    assert (batch.seconds, batch.context, batch.targets) == (None, None, None)
    assert texts_in(batch) == [numbers("a")]


def test_the_texts_before():
    example = Labelled("x", (), None, ("a", "b", "c"))
    assert last(example, 2) == ["b", "c"]
    assert last(example, 4) == [None, "a", "b", "c"]
    assert last(Labelled("x", ()), 2) == [None, None]


def test_of_a_long_text_the_first_words_are_read():
    assert as_text("a b c d", LEXICON, 2) == LEXICON.encode(["a", "b"])
    assert as_text("", LEXICON, 2) == LEXICON.encode([""])  # a text without words still has a place


def test_tags_lie_beside_their_words():
    batch = tag_batch([Tagged(("a", "b"), ("O", "B-X")), Tagged(("c",), ("B-X",))], TAGS)
    assert batch.tags is not None
    assert batch.tags.tolist() == [[0, 1], [1, -1]]
    assert batch.sentences.lengths.tolist() == [2, 1]
    assert tag_batch([Tagged(("a",), ("?",))], TAGS, tags=False).tags is None


def corpus(words: list[int], *, before: int = 0, tokens: int = 12, seed: int = 0, longest: int = 9) -> LabelCorpus:
    examples = [Labelled(" ".join(["a"] * count), ("x",)) for count in words]
    return LabelCorpus(examples, LEXICON, tokens, before, False, longest, seed)


@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=60), st.sampled_from([0, 1]), st.integers(0, 9), st.integers(0, 3)
)
def test_every_example_comes_once_an_epoch_within_the_budget(words, before, seed, epoch):
    plan = corpus(words, before=before, seed=seed).plan(epoch)
    assert sorted(place for batch in plan for place in batch) == list(range(len(words)))
    assert all(plan)
    for batch in plan:
        runs = 1 + sum(after != place + 1 for place, after in pairwise(batch))
        assert runs == 1 or sum(min(words[place], 9) for place in batch) <= 12


def test_the_order_is_decided_by_seed_and_epoch():
    words = [1 + place % 5 for place in range(60)]
    assert corpus(words).plan(3) == corpus(words).plan(3)
    assert corpus(words).plan(3) != corpus(words).plan(4)
    assert corpus(words, seed=1).plan(3) != corpus(words).plan(3)


def test_where_the_texts_before_are_read_runs_stay_together():
    plan = corpus([1] * 100, before=2, tokens=20).plan(0)
    order = [place for batch in plan for place in batch]
    together = sum(after == place + 1 for place, after in pairwise(order))
    assert together >= 100 * (1 - 1 / TOGETHER) - TOGETHER
    assert order != list(range(100))
    assert corpus([1] * 100, before=2, tokens=20).plan(1)[0] != plan[0]
    starts = {place % TOGETHER for before, place in pairwise([-9, *order]) if place != before + 1 and place}
    others = corpus([1] * 100, before=2, tokens=20)
    every = [place for epoch in range(8) for batch in others.plan(epoch) for place in batch[:1]]
    assert len(starts) == 1
    assert len({place % TOGETHER for place in every}) > 3  # runs begin elsewhere in every epoch


def test_signs_of_a_text_without_spaces_count_as_words():
    chinese = [Labelled("我爱你们" * 2, ("x",)) for _ in range(30)]
    plan = LabelCorpus(chinese, LEXICON, 24, 0, False, 99, 0).plan(0)
    assert [len(batch) for batch in plan] == [3] * 10


def test_both_texts_of_a_pair_count():
    pairs = [Labelled("a a a", ("x",), "b b b b b") for _ in range(12)]
    plan = LabelCorpus(pairs, LEXICON, 16, 0, True, 99, 0).plan(0)
    assert [len(batch) for batch in plan] == [2] * 6


def test_a_batch_is_made_of_its_places_and_named_by_its_first():
    examples = [Labelled(text, ("y",)) for text in ("a", "b b", "c c c", "d")]
    found = LabelCorpus(examples, LEXICON, 12, 0, False, 9, 0)
    batch = found.batch((2, 0), 0)
    assert [texts_in(batch)[place] for place in batch.texts.tolist()] == [numbers("c c c"), numbers("a")]
    assert batch.targets is not None
    assert batch.targets.tolist() == [[0, 1, 0]] * 2
    assert found.name((2, 0)) == 'of "c c c", "a"'
    assert found.name((0, 1, 2, 3)) == 'of "a", "b b", "c c c" and 1 more'


@given(st.lists(st.integers(1, 14), min_size=1, max_size=60), st.integers(0, 9), st.integers(0, 3))
def test_every_sentence_comes_once_an_epoch_with_others_of_like_length(words, seed, epoch):
    sentences = [Tagged(("a",) * count, ("O",) * count) for count in words]
    found = TagCorpus(sentences, TAGS, 20, seed)
    plan = found.plan(epoch)
    assert sorted(place for batch in plan for place in batch) == list(range(len(words)))
    assert plan == TagCorpus(sentences, TAGS, 20, seed).plan(epoch)
    for batch in plan:
        assert len(batch) == 1 or max(words[place] for place in batch) * len(batch) <= 20


def test_a_batch_of_sentences():
    sentences = [Tagged(("a", "b"), ("O", "B-X")), Tagged(("c", "d"), ("O", "O"))]
    found = TagCorpus(sentences, TAGS, 20, 0)
    batch = found.batch((1, 0), 0)
    assert batch.tags is not None
    assert batch.tags.tolist() == [[0, 0], [0, 1]]
    assert found.name((1, 0)) == 'of "c d", "a b"'
