import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.errors import RegardError
from regard.text import KINDS, learn_tokenizer

TEXTS = [
    "the little dog sees the little cat",
    "the cat doesn't see the dog",
    "<eos> <pad> <unk> <bos> <eos><eos>",
    "l'été, naïve Zoë, 12 + 345 = 357",
    "सीता ने देखा  两只 猫 ☃☃",
] * 4
TOKENIZERS = {kind: learn_tokenizer(kind, TEXTS, vocab_size=None if kind == "bytes" else 400) for kind in KINDS}
OF_BYTES = ("bpe", "bytes", "unigram")

PARTS = [
    *TEXTS[0].split(),
    "<eos>",
    " ",
    "  ",
    "\t",
    "\x1c",
    "\u3000",
    "☃",
    "é",
    "e\u0301",
    "👩\u200d🚀",
    "\0",
    "▁",
    "Ġ",
]

any_text = st.text(max_size=40) | st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@pytest.mark.parametrize("kind", OF_BYTES)
@given(text=any_text)
def test_what_is_made_of_bytes_gives_every_text_back(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(4 <= number < tokenizer.size for number in ids)


@given(any_text)
def test_bytes_are_their_values(text):
    assert TOKENIZERS["bytes"].encode(text) == [4 + byte for byte in text.encode()]


@given(st.text(alphabet=sorted(set("".join(TEXTS))), max_size=40))
def test_characters_give_back_what_they_know(text):
    ids = TOKENIZERS["characters"].encode(text)
    assert len(ids) == len(text)
    assert min(ids, default=4) >= 4
    assert TOKENIZERS["characters"].decode(ids) == text


@given(any_text)
def test_words_are_those_of_split(text):
    tokenizer = TOKENIZERS["words"]
    known = {word for each in TEXTS for word in each.split()}
    ids = tokenizer.encode(text)
    assert [number != UNKNOWN for number in ids] == [word in known for word in text.split()]
    assert tokenizer.decode(ids) == " ".join(word if word in known else "<unk>" for word in text.split())


@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
def test_words_of_tokens_agree_with_split(kind, text):
    tokenizer = TOKENIZERS[kind]
    encoded = tokenizer.encode_with_words(text)
    assert encoded.ids == tokenizer.encode(text)
    assert len(encoded.ids) == len(encoded.tokens) == len(encoded.word_indices)
    assert sorted({word for word in encoded.word_indices if word is not None}) == list(range(len(text.split())))
    assert all(token.isprintable() for token in encoded.tokens)
    if kind in OF_BYTES:  # no token reaches over two words: what is left without the others is the word itself
        for index, word in enumerate(text.split()):
            own = [number for number, at in zip(encoded.ids, encoded.word_indices, strict=True) if at == index]
            assert tokenizer.decode(own).strip() == word


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_whatever_a_model_writes_has_tokens_and_words(kind, data):
    tokenizer = TOKENIZERS[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    words = tokenizer.ids_to_word_indices(ids)
    assert len(words) == len(tokenizer.ids_to_tokens(ids)) == len(ids)
    assert sorted({word for word in words if word is not None}) == list(range(len(tokenizer.decode(ids).split())))


def test_encoded_by_hand():
    characters = TOKENIZERS["characters"].encode_with_words(" the Xog")
    assert characters.tokens == ["▁", "t", "h", "e", "▁", "X", "o", "g"]
    assert characters.word_indices == [None, 0, 0, 0, None, 1, 1, 1]
    assert characters.ids[5] == UNKNOWN
    words = TOKENIZERS["words"].encode_with_words(" the  Xog")
    assert words.tokens == ["the", "Xog"]
    assert words.word_indices == [0, 1]
    of_bytes = TOKENIZERS["bytes"].encode_with_words("a é")
    assert of_bytes.tokens == ["a", "▁", r"\xc3", r"\xa9"]
    assert of_bytes.word_indices == [0, None, 1, 1]
    bpe = TOKENIZERS["bpe"].encode_with_words("the dog")
    assert bpe.tokens == ["▁the", "▁dog"]
    assert bpe.word_indices == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_taken_for_a_special_token(kind):
    ids = TOKENIZERS[kind].encode("<pad> <unk> <bos> <eos> <eos><eos>  <eos>")
    assert min(ids) > EOS


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "the cat"
    assert tokenizer.ids_to_tokens([BOS, UNKNOWN, EOS, PAD]) == ["<bos>", "<unk>", "<eos>", "<pad>"]
    assert tokenizer.ids_to_word_indices([BOS, UNKNOWN, EOS, PAD]) == [None, 0, None, None]
    assert tokenizer.decode([BOS, UNKNOWN, EOS, PAD]) == "<unk>"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_all_at_once_is_one_by_one(kind):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode_all(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    copied = pickle.loads(pickle.dumps(tokenizer))
    assert copied.encode_all(TEXTS) == tokenizer.encode_all(TEXTS)


@given(any_text, st.integers(0, 2**40), st.sampled_from([0.1, 0.5, 1.0]))
def test_dropout_gives_the_text_back_and_repeats(text, seed, dropout):
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode(text, dropout, seed)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, dropout, seed) == ids
    if dropout == 1.0:  # single bytes, after the space that goes before every text
        assert ids == ([4 + byte for byte in b" " + text.encode()] if text else [])


@given(any_text)
def test_almost_no_dropout_merges_as_the_library_does(text):
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.encode(text, 1e-300) == tokenizer.encode(text)


def test_dropout_depends_on_seed_and_text_alone():
    tokenizer = TOKENIZERS["bpe"]
    random.seed(1)
    first = tokenizer.encode_all(TEXTS[:3], 0.3, seed=7)
    random.seed(2)
    assert tokenizer.encode_all(TEXTS[2::-1], 0.3, seed=7) == first[::-1]
    assert len({tuple(tokenizer.encode(TEXTS[0], 0.3, seed=seed)) for seed in range(20)}) > 10


def test_dropout_drops_as_often_as_it_says():
    tokenizer = learn_tokenizer("bpe", ["a"] * 2, vocab_size=261)  # one merge, of " a"
    joined = sum(len(tokenizer.encode("a", 0.25, seed=seed)) == 1 for seed in range(4000))
    assert abs(joined / 4000 - 0.75) < 0.03  # more than four standard deviations


@pytest.mark.parametrize(
    ("kind", "dropout", "message"),
    [
        ("words", 0.1, 'dropout requires a bpe tokenizer, got "words"'),
        ("bpe", 1.5, "dropout must be at least 0 and at most 1, got 1.5"),
        ("bpe", -0.5, "dropout must be at least 0 and at most 1, got -0.5"),
    ],
)
def test_where_nothing_can_be_dropped(kind, dropout, message):
    with pytest.raises(RegardError) as caught:
        TOKENIZERS[kind].encode("a", dropout)
    assert str(caught.value) == message


def test_a_text_without_any_space_is_cut_quickly():
    text = "x" * 20_000
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(text, 0.1)) == text
