import itertools
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import UNKNOWN
from regard.errors import RegardError
from regard.text import KINDS, TextSteps, learn_tokenizer
from regard.text.learn import count_entries, learn_lm_tokenizer, sample_evenly

TEXTS = ["b a c a", "a b", "d <unk> <unk>"]


def test_the_most_frequent_words_come_first():
    tokenizer = learn_tokenizer("words", TEXTS)  # a: 3, <unk> and b: 2, c and d: 1
    assert tokenizer.ids_to_tokens(range(tokenizer.size)) == [
        "<pad>",
        "<unk>",
        "<bos>",
        "<eos>",
        "a",
        "<unk>",
        "b",
        "c",
        "d",
    ]
    assert tokenizer.encode("d c <unk> e") == [8, 7, 5, 1]


def test_the_most_frequent_characters_come_first():
    tokenizer = learn_tokenizer("characters", ["aab\n", "ba"])
    assert tokenizer.ids_to_tokens(range(tokenizer.size)) == ["<pad>", "<unk>", "<bos>", "<eos>", "a", "b", r"\n"]


def test_size_and_least_count_keep_the_rare_out():
    assert learn_tokenizer("words", TEXTS, min_frequency=2).encode("a b c d <unk>") == [4, 6, 1, 1, 5]
    assert learn_tokenizer("words", TEXTS, vocab_size=6).encode("a b c d <unk>") == [4, 1, 1, 1, 5]
    assert learn_tokenizer("characters", ["aab", "bca"], min_frequency=2).encode("abc") == [4, 5, 1]


def test_bpe_merges_the_most_frequent_pair_first():  # "ow" is seen 6 times, " l" and " n" 3 times each
    tokenizer = learn_tokenizer("bpe", ["low now", "low now", "low now"], vocab_size=263)
    assert tokenizer.ids_to_tokens(range(260, 263))[0] == "ow"
    assert set(tokenizer.ids_to_tokens(range(260, 263))[1:]) <= {"▁l", "▁n", "low", "now", "▁low", "▁now"}


def test_bpe_merges_nothing_seen_once():
    tokenizer = learn_tokenizer("bpe", ["once"])
    assert tokenizer.size == 260
    assert tokenizer.decode(tokenizer.encode(" once ")) == " once "


def test_no_subword_reaches_over_two_words():
    for kind in ("bpe", "unigram"):
        tokenizer = learn_tokenizer(kind, ["of the of the\x1cof\u3000the"] * 50, vocab_size=400)
        for token in tokenizer.ids_to_tokens(range(4, tokenizer.size)):
            assert len(token.replace("▁", " ").split()) <= 1


def segmentations(word):
    """Every way to cut a word into pieces."""
    for cuts in itertools.product((False, True), repeat=len(word) - 1):
        indices = [0, *(index for index, cut in enumerate(cuts, 1) if cut), len(word)]
        yield [word[start:stop] for start, stop in itertools.pairwise(indices)]


def test_unigram_takes_the_most_probable_pieces():
    texts = [f"{stem}{ending}" for stem in ("walk", "talk", "jump", "call") for ending in ("s", "ed", "ing", "er")] * 5
    tokenizer = learn_tokenizer("unigram", texts, vocab_size=300)
    scores = {
        piece.replace("Ġ", "▁"): score for piece, score in json.loads(tokenizer.model.to_str())["model"]["vocab"][4:]
    }
    for word in ("walking", "jumped", "stalker"):
        known = [pieces for pieces in segmentations(f"▁{word}") if all(piece in scores for piece in pieces)]
        best = max(sum(scores[piece] for piece in pieces) for pieces in known)
        assert sum(scores[token] for token in tokenizer.encode_with_words(word).tokens) == pytest.approx(best)
    assert tokenizer.encode_with_words("walking").tokens[0] == "▁walk"
    assert 260 < tokenizer.size <= 300


def test_steps_come_before_learning():
    tokenizer = learn_tokenizer("words", ["A a"], steps=TextSteps(lowercase=True))
    assert tokenizer.size == 5
    assert tokenizer.encode("A") == [4]


@pytest.mark.parametrize("kind", KINDS)
def test_learning_repeats(kind):
    texts = [f"{a}{b} {b}{a}ung {a}lich" for a in "rstlnmdk" for b in ("ei", "a", "o", "ü", "ie")]
    files = {learn_tokenizer(kind, texts, vocab_size=350).model.to_str() for _ in range(4)}
    assert len(files) == 1


def test_learning_repeats_in_another_process():
    texts = [f"{a}{b} {b}{a}ung" for a in "rstlnmdk" for b in ("ei", "a", "o", "ie")]
    program = (
        "import sys, json; from regard.text import learn_tokenizer; texts = json.load(sys.stdin);"
        "json.dump([learn_tokenizer(kind, texts, vocab_size=300).model.to_str() for kind in "
        "('bpe', 'unigram')], sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(texts), check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [
        learn_tokenizer(kind, texts, vocab_size=300).model.to_str() for kind in ("bpe", "unigram")
    ]


@pytest.mark.parametrize("before", [None, "true"])
def test_learning_leaves_no_trace(monkeypatch, before):
    if before is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    else:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    learn_tokenizer("bpe", TEXTS)
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


def test_a_process_forked_later_says_nothing():
    program = (
        "import os; from regard.text import learn_tokenizer;"
        "[learn_tokenizer(kind, ['a b a b'] * 9).encode_all(['a'] * 9) for kind in ('bpe', 'unigram')];"
        "child = os.fork(); child or os._exit(0); os.waitpid(child, 0)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("word", {}, 'unknown kind "word"; did you mean "words"?'),
        ("bpe", {"vocab_size": 100}, "vocab_size must be at least 260 for bpe, got 100"),
        ("words", {"vocab_size": 4}, "vocab_size must be at least 5 for words, got 4"),
        ("words", {"min_frequency": 0}, "min_frequency must be at least 1, got 0"),
    ],
)
def test_impossible_settings(kind, settings, message):
    with pytest.raises(RegardError) as caught:
        learn_tokenizer(kind, TEXTS, **settings)
    assert str(caught.value) == message


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_there_must_be_text(texts):
    with pytest.raises(RegardError) as caught:
        learn_tokenizer("bpe", texts)
    assert str(caught.value) == "bpe: no text to learn from"
    assert learn_tokenizer("bytes", texts).size == 260


POEM = "Tyger Tyger, burning bright,\nIn the forests of the night;\n\n" * 4
TEXT_TOKENIZERS = {
    kind: learn_lm_tokenizer(kind, [POEM], vocab_size=None if kind == "bytes" else 300) for kind in KINDS
}


@pytest.mark.parametrize("kind", ["bpe", "bytes", "unigram"])
@given(text=st.text(max_size=40) | st.lists(st.sampled_from([*POEM.split(), " ", "\n"]), max_size=12).map("".join))
def test_running_text_comes_back_as_it_was(kind, text):
    tokenizer = TEXT_TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_space_goes_before_running_text():
    for kind in ("bpe", "unigram"):
        tokenizer = TEXT_TOKENIZERS[kind]
        assert tokenizer.encode_with_words("Tyger").tokens[0].startswith("T")
        assert tokenizer.encode_with_words(" Tyger").tokens[0].startswith("▁")
    bpe = TEXT_TOKENIZERS["bpe"]
    assert bpe.decode(bpe.encode("Tyger burning", dropout=0.5)) == "Tyger burning"


def test_the_end_of_a_line_is_a_word():
    tokenizer = learn_lm_tokenizer("words", ["b a\n\na", " a\tb\n"])  # a: 3, b: 2
    assert tokenizer.ids_to_tokens(range(tokenizer.size)) == ["<pad>", "<unk>", "<bos>", "<eos>", r"\n", "a", "b"]
    assert tokenizer.encode("\nb  a \n\n\ta\x1cc\n") == [4, 6, 5, 4, 4, 5, UNKNOWN, 4]
    assert tokenizer.decode([4, 6, 5, 4, 4, 5, UNKNOWN, 4]) == "\nb a\n\na <unk>\n"
    encoded = tokenizer.encode_with_words("b\n\nc")
    assert encoded.tokens == ["b", r"\n", r"\n", "c"]
    assert encoded.word_indices == [0, None, None, 1]
    assert tokenizer.ids_to_word_indices(encoded.ids) == [0, None, None, 1]
    assert learn_lm_tokenizer("words", ["a b"]).encode("a\nb") == [5, 4, 6]


@given(st.lists(st.sampled_from([*POEM.split(), "\n"]), max_size=20))
def test_known_words_and_lines_come_back(words):
    text = " ".join(words).replace(" \n", "\n").replace("\n ", "\n")
    tokenizer = TEXT_TOKENIZERS["words"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(words)


@given(st.lists(st.text("ab \n", max_size=8), min_size=1, max_size=8).filter(lambda texts: "".join(texts).split()))
def test_counting_text_is_counting_all_of_it(texts):
    words, characters = learn_lm_tokenizer("words", texts), learn_lm_tokenizer("characters", texts)
    known = [word for text in texts for word in text.split()]
    assert words.ids_to_tokens(range(5, words.size)) == sorted(set(known), key=lambda word: (-known.count(word), word))
    assert characters.size == 4 + len(set("".join(texts)))


def test_sizes_of_words_of_text():
    texts = [" ".join(f"w{number}" for number in range(60_000))]
    assert learn_lm_tokenizer("words", texts).size == 50_000
    assert learn_lm_tokenizer("words", texts, vocab_size=100).size == 100
    assert learn_lm_tokenizer("words", ["a a b"], min_frequency=2).size == 6
    assert learn_lm_tokenizer("words", ["A a"], steps=TextSteps(lowercase=True)).size == 6


def test_rare_words_are_forgotten_when_there_are_too_many():
    texts = ["often often", "a b c", "often a", "d e f"]
    assert count_entries("words", texts, max_entries=4) == {"often": 3, "a": 2}
    assert count_entries("words", texts, max_entries=7) == {"often": 3, "a": 2, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}


def test_a_sample_is_spread_over_all():
    texts = [f"{number:02}" for number in range(100)]
    assert sample_evenly(iter(texts), max_characters=200) == texts
    assert sample_evenly(iter(texts), max_characters=199) == texts[::2]
    assert sample_evenly(iter(texts), max_characters=40) == texts[::8]
    assert sample_evenly(["a long one"], max_characters=1) == ["a long one"]


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_there_must_be_running_text(kind):
    with pytest.raises(RegardError) as caught:
        learn_lm_tokenizer(kind, iter([""]))
    assert str(caught.value) == f"{kind}: no text to learn from"
    with pytest.raises(RegardError) as caught:
        learn_lm_tokenizer("word", [])
    assert str(caught.value) == 'unknown kind "word"; did you mean "words"?'
    with pytest.raises(RegardError) as caught:
        learn_lm_tokenizer("bpe", [], vocab_size=100)
    assert str(caught.value) == "vocab_size must be at least 260 for bpe, got 100"
