"""Learn a tokenizer from texts; the same texts always give the same one."""

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
from regard.text.choose import TEXT_WORDS, vocabulary_size
from regard.text.pieces import WHITESPACE, byte_characters
from regard.text.steps import NO_STEPS, TextSteps
from regard.text.tokenizer import KINDS, RESERVED, WORDS, Kind, Tokenizer

UNKNOWN_ENTRY = RESERVED[1]
LEAST_SIZE = {"bpe": 260, "bytes": 260, "characters": 5, "unigram": 260, "words": 5}

SAMPLE = 2**25
"""Characters of running text, at most, from which subwords are learnt."""

MOST_COUNTED = 2**21
"""Different words of running text that are counted; when there are more, the rarer half of them is forgotten."""

CHUNKS = "|".join(
    (
        r"[ '\u2019]?[\p{L}\p{M}]{1,64}",  # letters, with the space or apostrophe before them
        r" ?\p{N}{1,64}",
        rf" ?[^{WHITESPACE}\p{{L}}\p{{M}}\p{{N}}]{{1,64}}",  # punctuation and the like
        rf"[{WHITESPACE}]{{1,64}}(?![^{WHITESPACE}])",  # further spaces, but for the one before a word
        rf"[{WHITESPACE}]",
    )
)
"""What no subword reaches across: one word or less. None is longer than 64, so that no text is slow to merge."""


def learn(
    kind: str,
    texts: Sequence[str],
    *,
    size: int | None = None,
    least_count: int = 1,
    steps: TextSteps = NO_STEPS,
) -> Tokenizer:
    """Learn a tokenizer from texts.

    Args:
        kind: `characters`, `words` (parted by whitespace alone), `bpe` (of bytes), `unigram` (of bytes) or `bytes`.
        texts: As they are; the steps are applied here.
        size: The most numbers there may be, with the first four; `vocabulary_size` unless told otherwise.
        least_count: How often a character or word must be seen to be known, and a pair to be merged by bpe, which
            never merges what it sees once. Nothing is unknown to the other kinds.
        steps: What is done to every text before.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    return Tokenizer(kind, learn_model(kind, [steps.apply(text) for text in texts], size, least_count), steps)


def learn_model(kind: Kind, texts: Sequence[str], size: int | None, least_count: int) -> tokenizers.Tokenizer:
    """Learn from texts to which the steps have been applied."""
    check_settings(kind, size, least_count)
    if kind == "bytes":
        return byte_model()
    if not any(texts):
        raise RegardError(f"{kind}: there is no text to learn from")
    if size is None:
        size = vocabulary_size(kind, texts)
    if kind in ("bpe", "unigram"):
        return learn_subwords(kind, texts, size, least_count, spaced=True)
    split: Callable[[str], Sequence[str]] = str.split if kind == "words" else list
    counts = Counter(entry for text in texts for entry in split(text))
    vocabulary = numbered(most_frequent(counts, size - len(RESERVED), least_count))
    return word_model(vocabulary) if kind == "words" else character_model(vocabulary)


def learn_text(
    kind: str,
    texts: Iterable[str],
    *,
    size: int | None = None,
    least_count: int = 1,
    steps: TextSteps = NO_STEPS,
) -> Tokenizer:
    r"""Learn a tokenizer of running text, as language models read it.

    Other than with `learn` no space goes before a text, and in `words` the end of a line, \n, is a word that is
    always known. The texts can be more than fits into memory: `bpe` and `unigram` learn from a sample of 32 million
    characters, spread evenly over them; `characters` and `words` are counted in all of them (when two million
    different words are counted, the rarer half is forgotten, which the frequent ones never notice).

    Args:
        kind: As in `learn`.
        texts: Parts of documents, such as the chunks of `read_documents`; no word reaches from one into the next.
        size: The most numbers there may be, with the first four; `vocabulary_size` unless told otherwise, and
            50,000 for `words`.
        least_count: As in `learn`.
        steps: As in `learn`.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    check_settings(kind, size, least_count)
    if kind == "bytes":
        return Tokenizer(kind, byte_model(), steps)
    if kind in ("characters", "words"):
        entries = count_entries(kind, (steps.apply(text) for text in texts))
        return Tokenizer(kind, entry_model(kind, entries, size, least_count), steps)
    sample = [steps.apply(text) for text in spread_sample(texts)]
    if not any(sample):
        raise RegardError(f"{kind}: there is no text to learn from")
    size = vocabulary_size(kind, sample) if size is None else size
    return Tokenizer(kind, learn_subwords(kind, sample, size, least_count, spaced=False), steps)


def spread_sample(texts: Iterable[str], most: int = SAMPLE) -> list[str]:
    """Texts of no more than `most` characters together, or one alone: when they are too many, every second one goes."""
    kept: list[str] = []
    size, every = 0, 1
    for number, text in enumerate(texts):
        if number % every == 0:
            kept.append(text)
            size += len(text)
            while size > most and len(kept) > 1:
                kept, every = kept[::2], 2 * every
                size = sum(map(len, kept))
    return kept


def count_entries(kind: Kind, texts: Iterable[str], most: int = MOST_COUNTED) -> Counter[str]:
    """How often each character, or each word, is seen."""
    counts = Counter[str]()
    for text in texts:
        counts.update(WORDS.findall(text) if kind == "words" else text)
        if len(counts) > most:
            counts = Counter({entry: counts[entry] for entry in most_frequent(counts, most // 2, 1)})
    if not counts:
        raise RegardError(f"{kind}: there is no text to learn from")
    return counts


def entry_model(kind: Kind, counts: Counter[str], size: int | None, least_count: int) -> tokenizers.Tokenizer:
    """Characters, or words with the end of a line among them, of running text."""
    if kind == "characters":
        size = size or vocabulary_size(kind, ())
        return character_model(numbered(most_frequent(counts, size - len(RESERVED), least_count)))
    del counts["\n"]
    words = most_frequent(counts, (size or TEXT_WORDS) - len(RESERVED) - 1, least_count)
    model = word_model(numbered(["\n", *words]))
    model.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS.pattern), "removed", invert=True)
    return model


def check_settings(kind: Kind, size: int | None, least_count: int) -> None:
    """Raise a `RegardError` for what no vocabulary can have."""
    if size is not None and size < LEAST_SIZE[kind]:
        raise RegardError(f"size: {size} is too small for {kind}; {LEAST_SIZE[kind]} is the least")
    if least_count < 1:
        raise RegardError(f"least_count: {least_count} is too small; 1 is the least")


def numbered(entries: Sequence[str]) -> dict[str, int]:
    """A vocabulary: the reserved four, then these."""
    return {entry: number for number, entry in enumerate([*RESERVED, *entries])}


def most_frequent(counts: Counter[str], most: int, least_count: int) -> list[str]:
    """The most frequent first, and those seen equally often in the order of their code points."""
    kept = [entry for entry, count in counts.items() if count >= least_count]
    return sorted(kept, key=lambda entry: (-counts[entry], entry))[:most]


def word_model(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """Words parted by whitespace, as `str.split` has it."""
    model = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_ENTRY))
    model.pre_tokenizer = pre_tokenizers.Split(Regex(f"[{WHITESPACE}]+"), "removed")
    return model


def character_model(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """Characters: a bpe that merges nothing."""
    return tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=UNKNOWN_ENTRY))


def byte_model(merges: Sequence[tuple[str, str]] = ()) -> tokenizers.Tokenizer:
    """Bytes and what is merged of them; the number of a byte is its value and 4."""
    entries = dict.fromkeys([*byte_characters(), *(left + right for left, right in merges)])
    model = tokenizers.Tokenizer(models.BPE(numbered(list(entries)), list(merges)))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return model


def in_chunks(model: tokenizers.Tokenizer, spaced: bool) -> tokenizers.Tokenizer:
    """Let a model see the chunks of a text as bytes and, if `spaced`, put a space before every text."""
    if spaced:
        model.normalizer = normalizers.Prepend(" ")
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CHUNKS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return model


def learn_subwords(kind: Kind, texts: Sequence[str], size: int, least_count: int, spaced: bool) -> tokenizers.Tokenizer:
    """A model of subwords, `bpe` or `unigram`."""
    if kind == "unigram":
        return learn_unigram(texts, size, spaced)
    return in_chunks(byte_model(learn_merges(texts, size, max(least_count, 2), spaced)), spaced)


def learn_merges(texts: Sequence[str], size: int, least_count: int, spaced: bool) -> list[tuple[str, str]]:
    """The merges of byte-level bpe (Sennrich et al. 2016), the first the most frequent."""
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(RESERVED),
        min_frequency=least_count,
        initial_alphabet=byte_characters(),
        show_progress=False,
    )
    trained = train(in_chunks(tokenizers.Tokenizer(models.BPE()), spaced), texts, trainer)
    return [(left, right) for left, right in trained["merges"]]


def learn_unigram(texts: Sequence[str], size: int, spaced: bool) -> tokenizers.Tokenizer:
    """A unigram model of bytes (Kudo 2018).

    The trainer adds up in an order that differs from run to run, and so do the last digits of its scores, and all
    of the scores it makes up for bytes it has not seen: up to 0.0256 above the lowest. Here both are made equal.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=size - len(RESERVED),
        initial_alphabet=byte_characters(),
        show_progress=False,
    )
    scores = dict(train(in_chunks(tokenizers.Tokenizer(models.Unigram()), spaced), texts, trainer)["vocab"])
    scores = {entry: round(score, 4) for entry, score in scores.items()}
    lowest = min(scores.values())
    for byte in byte_characters():
        scores[byte] = scores[byte] if scores[byte] > lowest + 0.0256 else lowest
    longer = sorted((entry for entry in scores if len(entry) > 1), key=lambda entry: (-scores[entry], entry))
    vocabulary = [(entry, 0.0) for entry in RESERVED] + [(e, scores[e]) for e in [*byte_characters(), *longer]]
    model = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=RESERVED.index(UNKNOWN_ENTRY)))
    return in_chunks(model, spaced)


def train(model: tokenizers.Tokenizer, texts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """What a trainer makes of texts, as its file would hold it."""
    with one_thread():
        model.train_from_iterator(texts, trainer)
    return json.loads(model.to_str())["model"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the trainers from starting threads, after which every process that is forked would print a warning."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before
