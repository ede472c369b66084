"""What tagged sentences look like before a model learns from them, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from regard.data.check import counted, first_of
from regard.data.tagged import Tagged
from regard.errors import RegardError


def tag_lines(train: Sequence[Tagged], valid: Sequence[Tagged]) -> Iterator[str]:
    """A line for each finding; what cannot be right is a `RegardError`."""
    counts = {name: Counter(chain.from_iterable(s.tags for s in part)) for name, part in (("t", train), ("v", valid))}
    if len(counts["t"]) < 2:
        only = next(iter(counts["t"]), "")
        raise RegardError(f'training data: every tag is "{only}"; two that differ are the least to learn from')
    yield part_line("training", train, counts["t"])
    yield part_line("validation", valid, counts["v"])
    if len(counts["v"]) == 1:
        only = next(iter(counts["v"]))
        yield f"note: validation: every tag is {only}, so its scores say little; give --valid, or a larger --held-out"
    known = {sentence.words for sentence in train}
    seen = sum(sentence.words in known for sentence in valid)
    if seen:
        yield f"note: validation: {counted(seen, 'sentence')} ({seen / len(valid):.1%}) also in training"
    unseen = {tag: n for tag, n in counts["v"].most_common() if tag not in counts["t"]}
    if unseen:
        each = ", ".join(f"{tag} {n}" for tag, n in unseen.items())
        yield f"note: validation: {counted(len(unseen), 'tag')} never seen in training, so never predicted: {each}"


def part_line(name: str, sentences: Sequence[Tagged], counts: Counter[str]) -> str:
    """How much there is, and how much of each tag."""
    words = counts.total()
    each = [f"{tag} {n} ({n / words:.1%})" for tag, n in counts.most_common()]
    repeated = len(sentences) - len({(sentence.words, sentence.tags) for sentence in sentences})
    twice = f", {repeated} of them repeat an earlier one" if repeated else ""
    return (
        f"{name}: {counted(len(sentences), 'sentence')}{twice}, {words:,} words, "
        f"{counted(len(counts), 'tag')}: {first_of(each)}"
    )
