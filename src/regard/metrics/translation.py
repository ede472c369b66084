"""BLEU and chrF as computed by sacrebleu (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.metrics.score import MetricScore, References, collect_references

TOKENIZERS = ("13a", "char", "intl", "none", "zh")  # those that require no download and no other package


def bleu(
    predictions: Sequence[str], references: References, *, lowercase: bool = False, tokenize: str = "13a"
) -> MetricScore:
    """Return BLEU, the precision of n-grams up to four words (Papineni et al. 2002); 0 to 100.

    Args:
        predictions: Detokenized predictions.
        references: Reference, or several references, for each prediction.
        lowercase: Whether to ignore case.
        tokenize: Tokenizer of sacrebleu; `none` for text that is already tokenized.

    Raises:
        RegardError: The tokenizer is unknown, or the numbers of texts differ.

    Example:
        >>> f"{bleu(['the cat sees a dog'], ['the cat sees a dog']).value:.2f}"
        '100.00'
    """
    from sacrebleu.metrics.bleu import BLEU

    is_pretokenized = tokenize == "none"  # otherwise sacrebleu warns about text that looks tokenized
    metric = BLEU(lowercase=lowercase, tokenize=check_bleu_tokenizer(tokenize), force=is_pretokenized)
    return compute_corpus_score(metric, "BLEU", predictions, references)


def check_bleu_tokenizer(tokenize: str) -> str:
    """Return the name of a BLEU tokenizer, or raise a `RegardError`."""
    if tokenize not in TOKENIZERS:
        raise unknown_name("BLEU: tokenize", tokenize, TOKENIZERS)
    return tokenize


def has_four_words(references: References, tokenize: str = "13a") -> bool:
    """Return whether any reference has four words; otherwise BLEU is 0 and not meaningful."""
    from sacrebleu.metrics.bleu import BLEU

    split = BLEU(tokenize=check_bleu_tokenizer(tokenize), force=True).tokenizer
    answers = (
        answer for reference in references for answer in ([reference] if isinstance(reference, str) else reference)
    )
    return any(len(split(answer).split()) >= 4 for answer in answers)


def chrf(
    predictions: Sequence[str], references: References, *, lowercase: bool = False, word_order: int = 0
) -> MetricScore:
    """Return chrF, the F-score of character n-grams up to six (Popović 2015); 0 to 100.

    Args:
        predictions: Detokenized predictions.
        references: Reference, or several references, for each prediction.
        lowercase: Whether to ignore case.
        word_order: Maximum length of word n-grams to include; 2 is chrF++.
    """
    from sacrebleu.metrics.chrf import CHRF

    if word_order < 0:
        raise RegardError(f"chrF: word_order must be at least 0, got {word_order}")
    name = f"chrF{'+' * word_order}" if word_order <= 2 else f"chrF with words up to {word_order}"
    return compute_corpus_score(CHRF(lowercase=lowercase, word_order=word_order), name, predictions, references)


def compute_corpus_score(metric: Any, name: str, predictions: Sequence[str], references: References) -> MetricScore:
    """Return the corpus score of a sacrebleu metric object, with its signature."""
    streams = list(zip_longest(*collect_references(name, predictions, references)))
    value = metric.corpus_score(list(predictions), streams).score
    return MetricScore(name, float(value), metric.get_signature().format(), decimals=2)
