"""Learn a tokenizer from texts; the result is deterministic."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from regard.errors import RegardError, unknown_name
from regard.text.choose import TEXT_WORDS, choose_vocabulary_size
from regard.text.pieces import WHITESPACE, list_byte_characters
from regard.text.steps import NO_STEPS, TextSteps
from regard.text.tokenizer import KINDS, RESERVED, WORDS, Kind, Tokenizer

UNKNOWN_ENTRY = RESERVED[1]
MIN_VOCAB_SIZE = {"bpe": 260, "bytes": 260, "characters": 5, "unigram": 260, "words": 5}

MAX_SAMPLE_CHARACTERS = 2**25
"""Maximum number of characters of running text from which subwords are learned."""

MAX_COUNTED = 2**21
"""Maximum number of distinct words counted in running text; beyond it, the rarer half is dropped."""

CHUNKS = "|".join(
    (
        r"[ '\u2019]?[\p{L}\p{M}]{1,64}",  # letters, with a leading space or apostrophe
        r" ?\p{N}{1,64}",
        rf" ?[^{WHITESPACE}\p{{L}}\p{{M}}\p{{N}}]{{1,64}}",  # punctuation and symbols
        rf"[{WHITESPACE}]{{1,64}}(?![^{WHITESPACE}])",  # whitespace, except the space before a word
        rf"[{WHITESPACE}]",
    )
)
"""Pattern of chunks that subwords never cross: at most one word and 64 characters, which keeps merging fast."""


def learn_tokenizer(
    kind: str,
    texts: Sequence[str],
    *,
    vocab_size: int | None = None,
    min_frequency: int = 1,
    steps: TextSteps = NO_STEPS,
) -> Tokenizer:
    """Learn a tokenizer from texts.

    Args:
        kind: `characters`, `words` (split at whitespace), `bpe` (byte-level), `unigram` (byte-level) or `bytes`.
        texts: Raw texts; `steps` are applied to them.
        vocab_size: Maximum vocabulary size, including the four special tokens. By default chosen by
            `choose_vocabulary_size`.
        min_frequency: Minimum count of a character or word to be in the vocabulary, and of a pair to be merged by
            `bpe` (at least 2). Other kinds ignore it.
        steps: Preprocessing of every text.

    Returns:
        The tokenizer.

    Raises:
        RegardError: An argument is invalid, or there is no text.

    Example:
        >>> tokenizer = learn_tokenizer("words", ["a small cat", "a small dog"])
        >>> tokenizer.encode("a dog")
        [4, 7]
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    return Tokenizer(kind, learn_model(kind, [steps.apply(text) for text in texts], vocab_size, min_frequency), steps)


def learn_model(kind: Kind, texts: Sequence[str], vocab_size: int | None, min_frequency: int) -> tokenizers.Tokenizer:
    """Learn a model from preprocessed texts."""
    check_vocabulary_settings(kind, vocab_size, min_frequency)
    if kind == "bytes":
        return build_byte_model()
    if not any(texts):
        raise RegardError(f"{kind}: no text to learn from")
    if vocab_size is None:
        vocab_size = choose_vocabulary_size(kind, texts)
    if kind in ("bpe", "unigram"):
        return learn_subwords(kind, texts, vocab_size, min_frequency, spaced=True)
    split: Callable[[str], Sequence[str]] = str.split if kind == "words" else list
    counts = Counter(entry for text in texts for entry in split(text))
    vocabulary = build_vocabulary(select_most_frequent(counts, vocab_size - len(RESERVED), min_frequency))
    return build_word_model(vocabulary) if kind == "words" else build_character_model(vocabulary)


def learn_lm_tokenizer(
    kind: str,
    texts: Iterable[str],
    *,
    vocab_size: int | None = None,
    min_frequency: int = 1,
    steps: TextSteps = NO_STEPS,
) -> Tokenizer:
    r"""Learn a tokenizer of running text for language models.

    Unlike `learn_tokenizer`, no space is added before a text, and for `words` the line ending \n is a word that is
    always in the vocabulary. The texts do not need to fit into memory: `bpe` and `unigram` learn from a sample of 32
    million characters, spread evenly; `characters` and `words` are counted in all texts. Beyond two million distinct
    words, the rarer half is dropped, which does not affect the frequent ones.

    Args:
        kind: As in `learn_tokenizer`.
        texts: Parts of documents, such as the chunks of `read_documents`; no word crosses from one into the next.
        vocab_size: Maximum vocabulary size, including the four special tokens. By default 50,000 for `words`, otherwise
            chosen by `choose_vocabulary_size`.
        min_frequency: As in `learn_tokenizer`.
        steps: As in `learn_tokenizer`.

    Returns:
        The tokenizer.

    Raises:
        RegardError: An argument is invalid, or there is no text.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    check_vocabulary_settings(kind, vocab_size, min_frequency)
    if kind == "bytes":
        return Tokenizer(kind, build_byte_model(), steps)
    if kind in ("characters", "words"):
        entries = count_entries(kind, (steps.apply(text) for text in texts))
        return Tokenizer(kind, build_entry_model(kind, entries, vocab_size, min_frequency), steps)
    sample = [steps.apply(text) for text in sample_evenly(texts)]
    if not any(sample):
        raise RegardError(f"{kind}: no text to learn from")
    vocab_size = choose_vocabulary_size(kind, sample) if vocab_size is None else vocab_size
    return Tokenizer(kind, learn_subwords(kind, sample, vocab_size, min_frequency, spaced=False), steps)


def sample_evenly(texts: Iterable[str], max_characters: int = MAX_SAMPLE_CHARACTERS) -> list[str]:
    """Return an even sample of texts with at most `max_characters` in total, or a single text."""
    sample: list[str] = []
    size, every = 0, 1
    for index, text in enumerate(texts):
        if index % every == 0:
            sample.append(text)
            size += len(text)
            while size > max_characters and len(sample) > 1:
                sample, every = sample[::2], 2 * every
                size = sum(map(len, sample))
    return sample


def count_entries(kind: Kind, texts: Iterable[str], max_entries: int = MAX_COUNTED) -> Counter[str]:
    """Count the characters or words of texts."""
    counts = Counter[str]()
    for text in texts:
        counts.update(WORDS.findall(text) if kind == "words" else text)
        if len(counts) > max_entries:
            counts = Counter({entry: counts[entry] for entry in select_most_frequent(counts, max_entries // 2, 1)})
    if not counts:
        raise RegardError(f"{kind}: no text to learn from")
    return counts


def build_entry_model(
    kind: Kind, counts: Counter[str], vocab_size: int | None, min_frequency: int
) -> tokenizers.Tokenizer:
    """Build a model of characters, or of words including line endings, for running text."""
    if kind == "characters":
        vocab_size = vocab_size or choose_vocabulary_size(kind, ())
        return build_character_model(
            build_vocabulary(select_most_frequent(counts, vocab_size - len(RESERVED), min_frequency))
        )
    del counts["\n"]
    words = select_most_frequent(counts, (vocab_size or TEXT_WORDS) - len(RESERVED) - 1, min_frequency)
    return split_at_line_ends(build_word_model(build_vocabulary(["\n", *words])))


def check_vocabulary_settings(kind: Kind, vocab_size: int | None, min_frequency: int) -> None:
    """Check `vocab_size` and `min_frequency`."""
    if vocab_size is not None and vocab_size < MIN_VOCAB_SIZE[kind]:
        raise RegardError(f"vocab_size must be at least {MIN_VOCAB_SIZE[kind]} for {kind}, got {vocab_size}")
    if min_frequency < 1:
        raise RegardError(f"min_frequency must be at least 1, got {min_frequency}")


def build_vocabulary(entries: Sequence[str]) -> dict[str, int]:
    """Build a vocabulary: the four special tokens, then the entries."""
    return {entry: entry_id for entry_id, entry in enumerate([*RESERVED, *entries])}


def select_most_frequent(counts: Counter[str], max_entries: int, min_frequency: int) -> list[str]:
    """Return the most frequent entries, ties in code point order."""
    frequent = [entry for entry, count in counts.items() if count >= min_frequency]
    return sorted(frequent, key=lambda entry: (-counts[entry], entry))[:max_entries]


def build_word_model(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """Build a model that splits at whitespace like `str.split`."""
    model = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_ENTRY))
    model.pre_tokenizer = pre_tokenizers.Split(Regex(f"[{WHITESPACE}]+"), "removed")
    return model


def split_at_line_ends(model: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Make a model of words keep line endings as words."""
    model.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS.pattern), "removed", invert=True)
    return model


def build_character_model(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """Build a character model: a BPE without merges."""
    return tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=UNKNOWN_ENTRY))


def build_byte_model(merges: Sequence[tuple[str, str]] = ()) -> tokenizers.Tokenizer:
    """Build a model of bytes and merged bytes; the id of a byte is its value plus 4."""
    entries = dict.fromkeys([*list_byte_characters(), *(left + right for left, right in merges)])
    model = tokenizers.Tokenizer(models.BPE(build_vocabulary(list(entries)), list(merges)))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return model


def add_chunking(model: tokenizers.Tokenizer, spaced: bool) -> tokenizers.Tokenizer:
    """Make a model split texts into chunks of bytes and, if `spaced`, add a space before every text."""
    if spaced:
        model.normalizer = normalizers.Prepend(" ")
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CHUNKS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return model


def learn_subwords(
    kind: Kind, texts: Sequence[str], vocab_size: int, min_frequency: int, spaced: bool
) -> tokenizers.Tokenizer:
    """Learn a subword model, `bpe` or `unigram`."""
    if kind == "unigram":
        return learn_unigram(texts, vocab_size, spaced)
    return add_chunking(build_byte_model(learn_merges(texts, vocab_size, max(min_frequency, 2), spaced)), spaced)


def learn_merges(texts: Sequence[str], vocab_size: int, min_frequency: int, spaced: bool) -> list[tuple[str, str]]:
    """Learn the merges of byte-level BPE (Sennrich et al. 2016), most frequent first."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(RESERVED),
        min_frequency=min_frequency,
        initial_alphabet=list_byte_characters(),
        show_progress=False,
    )
    trained = run_trainer(add_chunking(tokenizers.Tokenizer(models.BPE()), spaced), texts, trainer)
    return [(left, right) for left, right in trained["merges"]]


def learn_unigram(texts: Sequence[str], vocab_size: int, spaced: bool) -> tokenizers.Tokenizer:
    """Learn a unigram model of bytes (Kudo 2018).

    The trainer sums in an order that varies between runs. This changes the last digits of its scores, and the scores
    it assigns to unseen bytes (up to 0.0256 above the lowest). Both are normalized here.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size - len(RESERVED),
        initial_alphabet=list_byte_characters(),
        show_progress=False,
    )
    scores = dict(run_trainer(add_chunking(tokenizers.Tokenizer(models.Unigram()), spaced), texts, trainer)["vocab"])
    scores = {entry: round(score, 4) for entry, score in scores.items()}
    lowest = min(scores.values())
    for byte in list_byte_characters():
        scores[byte] = scores[byte] if scores[byte] > lowest + 0.0256 else lowest
    longer = sorted((entry for entry in scores if len(entry) > 1), key=lambda entry: (-scores[entry], entry))
    vocabulary = [(entry, 0.0) for entry in RESERVED] + [(e, scores[e]) for e in [*list_byte_characters(), *longer]]
    model = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=RESERVED.index(UNKNOWN_ENTRY)))
    return add_chunking(model, spaced)


def run_trainer(model: tokenizers.Tokenizer, texts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """Run a trainer and return the model as it would be saved."""
    with use_one_thread():
        model.train_from_iterator(texts, trainer)
    return json.loads(model.to_str())["model"]


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Keep trainers from starting threads; otherwise every process forked later prints a warning."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before
