"""BLEU and chrF, exactly as sacrebleu computes them (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.metrics.score import Answers, Score, right_answers

TOKENIZERS = ("13a", "char", "intl", "none", "zh")  # those that need no download and no other package


def bleu(predictions: Sequence[str], references: Answers, *, lowercase: bool = False, tokenize: str = "13a") -> Score:
    """How many n-grams of the predictions are right, up to four words (Papineni et al. 2002); 0 to 100.

    Args:
        predictions: As a reader would see them, not in tokens.
        references: The right answer to each, or several.
        lowercase: Whether upper and lower case count as the same.
        tokenize: How sacrebleu cuts words; `none` for text whose words stand apart already.
    """
    from sacrebleu.metrics.bleu import BLEU

    announced = tokenize == "none"  # else sacrebleu warns of text that looks cut into words
    metric = BLEU(lowercase=lowercase, tokenize=known_tokenizer(tokenize), force=announced)
    return measure(metric, "BLEU", predictions, references)


def known_tokenizer(tokenize: str) -> str:
    """The name of a way to cut words, or a `RegardError`."""
    if tokenize not in TOKENIZERS:
        raise unknown_name("BLEU: tokenize", tokenize, TOKENIZERS)
    return tokenize


def has_four_words(references: Answers, tokenize: str = "13a") -> bool:
    """Whether any right answer is long enough for BLEU, which is 0 without four words in a row, to say anything."""
    from sacrebleu.metrics.bleu import BLEU

    cut = BLEU(tokenize=known_tokenizer(tokenize), force=True).tokenizer
    answers = (answer for each in references for answer in ([each] if isinstance(each, str) else each))
    return any(len(cut(answer).split()) >= 4 for answer in answers)


def chrf(predictions: Sequence[str], references: Answers, *, lowercase: bool = False, word_order: int = 0) -> Score:
    """The F-score of character n-grams up to six (Popović 2015); 0 to 100.

    Args:
        predictions: As a reader would see them.
        references: The right answer to each, or several.
        lowercase: Whether upper and lower case count as the same.
        word_order: The longest n-gram of words that counts as well; 2 is chrF++.
    """
    from sacrebleu.metrics.chrf import CHRF

    if word_order < 0:
        raise RegardError(f"chrF: a word order of {word_order}; 0 is the least")
    name = f"chrF{'+' * word_order}" if word_order <= 2 else f"chrF with words up to {word_order}"
    return measure(CHRF(lowercase=lowercase, word_order=word_order), name, predictions, references)


def measure(metric: Any, name: str, predictions: Sequence[str], references: Answers) -> Score:
    """The score of a whole corpus, with sacrebleu's signature; `metric` is an object of its own."""
    streams = list(zip_longest(*right_answers(name, predictions, references)))
    value = metric.corpus_score(list(predictions), streams).score
    return Score(name, float(value), metric.get_signature().format(), decimals=2)
