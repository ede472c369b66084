import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.errors import RegardError
from regard.metrics import bleu, chrf

PREDICTIONS = ["Cats do not like dogs, do they?", "It is raining today .", "The house is small and old."]
REFERENCES = ["Cats do not like Dogs, do they?", "It rains today .", "The house is small, and it is old."]
OTHERS = ["Cats don't like dogs, do they?", "Today it is raining .", "The house is old and small."]
sentences = st.lists(st.text("aB .,é\u4e2d", max_size=12), min_size=1, max_size=4)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none", "char", "intl", "zh"])
def test_bleu_is_sacrebleus(lowercase, tokenize):
    reference = BLEU(lowercase=lowercase, tokenize=tokenize)
    score = bleu(PREDICTIONS, REFERENCES, lowercase=lowercase, tokenize=tokenize)
    assert score.value == reference.corpus_score(PREDICTIONS, [REFERENCES]).score
    assert 20 < score.value < 100
    assert score.signature == str(reference.get_signature())
    assert str(score) == f"BLEU {score.value:.2f} ({reference.get_signature()})"


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("word_order", "name"), [(0, "chrF"), (2, "chrF++")])
def test_chrf_is_sacrebleus(lowercase, word_order, name):
    reference = CHRF(lowercase=lowercase, word_order=word_order)
    score = chrf(PREDICTIONS, REFERENCES, lowercase=lowercase, word_order=word_order)
    assert score.value == reference.corpus_score(PREDICTIONS, [REFERENCES]).score
    assert (score.name, score.signature) == (name, str(reference.get_signature()))


def test_several_references():
    both = [list(pair) for pair in zip(REFERENCES, OTHERS, strict=True)]
    assert bleu(PREDICTIONS, both).value == BLEU().corpus_score(PREDICTIONS, [REFERENCES, OTHERS]).score
    assert bleu(PREDICTIONS, both).signature.startswith("nrefs:2|")
    ragged = [both[0], REFERENCES[1], both[2]]
    reference = BLEU().corpus_score(PREDICTIONS, [REFERENCES, [OTHERS[0], None, OTHERS[2]]])
    assert bleu(PREDICTIONS, ragged).value == reference.score
    assert bleu(PREDICTIONS, ragged).signature.startswith("nrefs:var|")


def test_by_hand():  # three of four words are right, two of three pairs, one of two triples, and none of one: 1/2 of it
    score = bleu(["a b c x"], ["a b c d"], tokenize="none")
    assert score.value == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)


@given(sentences, st.randoms(use_true_random=False))
def test_any_text_has_a_score(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert bleu(texts, shuffled).value == BLEU().corpus_score(texts, [shuffled]).score
    assert chrf(texts, shuffled).value == CHRF().corpus_score(texts, [shuffled]).score


def test_tokenized_text_that_was_announced_is_not_warned_of(caplog):
    bleu(["a b ."] * 100, ["a b ."] * 100, tokenize="none")
    assert not caplog.records
    bleu(["a b ."] * 100, ["a b ."] * 100)
    assert "forgot to detokenize" in caplog.text


def test_what_is_refused():
    with pytest.raises(RegardError, match=r'^BLEU: unknown tokenize "13b"; did you mean "13a"\?$'):
        bleu(["a"], ["a"], tokenize="13b")
    with pytest.raises(RegardError, match=r"^chrF: word_order must be at least 0, got -1$"):
        chrf(["a"], ["a"], word_order=-1)


def test_sacrebleu_is_imported_when_needed():
    program = "import sys, regard.metrics; assert 'sacrebleu' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
