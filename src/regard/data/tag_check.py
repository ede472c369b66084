"""Check tagged sentences before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from regard.data.pair_check import format_duplicates, join_first, pluralize
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError


def summarize_tag_data(train: Sequence[TaggedSentence], valid: Sequence[TaggedSentence]) -> Iterator[str]:
    """Yield one line per finding; raise a `RegardError` if nothing can be learned from the training data."""
    counts = {name: Counter(chain.from_iterable(s.tags for s in part)) for name, part in (("t", train), ("v", valid))}
    if len(counts["t"]) < 2:
        only = next(iter(counts["t"]), "")
        others = ", ".join(f'"{tag}"' for tag in counts["v"] if tag not in counts["t"])
        data = "training data without the validation data" if others else "training data"
        elsewhere = f" (the validation data, {pluralize(len(valid), 'sentence')}, also has {others})" if others else ""
        raise RegardError(f'{data}: every tag is "{only}"{elsewhere}; expected at least two different tags')
    yield format_part("training", train, counts["t"])
    yield format_part("validation", valid, counts["v"])
    if len(counts["v"]) == 1:
        only = next(iter(counts["v"]))
        yield (
            f"note: validation: every tag is {only}, so the scores mean little; "
            "pass --validation FILE or a larger --validation-share"
        )
    train_sentences = {sentence.words for sentence in train}
    overlapping = sum(sentence.words in train_sentences for sentence in valid)
    if overlapping:
        share = overlapping / len(valid)
        yield f"note: validation: {pluralize(overlapping, 'sentence')} ({share:.1%}) also in the training data"
    unseen = {tag: n for tag, n in counts["v"].most_common() if tag not in counts["t"]}
    if unseen:
        tag_counts = ", ".join(f"{tag} {n}" for tag, n in unseen.items())
        yield (
            f"note: validation: {pluralize(len(unseen), 'tag')} missing from the training data, so never predicted: "
            f"{tag_counts}"
        )


def format_part(name: str, sentences: Sequence[TaggedSentence], counts: Counter[str]) -> str:
    """Return the number of sentences, words and duplicates, and the frequency of each tag."""
    words = counts.total()
    tag_counts = [f"{tag} {n} ({n / words:.1%})" for tag, n in counts.most_common()]
    repeated = len(sentences) - len({(sentence.words, sentence.tags) for sentence in sentences})
    duplicates = f", {format_duplicates(repeated)}" if repeated else ""
    return (
        f"{name}: {pluralize(len(sentences), 'sentence')}{duplicates}, {words:,} words, "
        f"{pluralize(len(counts), 'tag')}: {join_first(tag_counts)}"
    )
