"""How tags of words mark spans of words: BIO, IOB1, BIOES, BILOU and IO, read, written and kept consistent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.errors import RegardError, unknown_name

Scheme = Literal["BIO", "IOB1", "BIOES", "BILOU", "IO", "plain"]

SCHEMES: dict[str, str] = {
    "BIO": "B- begins a span, I- goes on",
    "IOB1": "I- is in a span, B- begins one right after another of its type",
    "BIOES": "B- begins a span, I- goes on, E- ends it, S- is one of a single word",
    "BILOU": "B- begins a span, I- goes on, L- ends it, U- is one of a single word",
    "IO": "I- is in a span",
    "plain": "each stands for itself, none marks a span",
}
"""Every scheme, in words."""

WHOLE = {"BIO": "BI*", "BIOES": "S|BI*E", "BILOU": "S|BI*E"}
"""What a whole span looks like, where that can be told from a broken one."""

PREFIX = re.compile(r"([BIESLU])(?:-(.+))?|O")
AS_BIOES = {"L": "E", "U": "S"}
AS_BILOU = {"E": "L", "S": "U"}
UNTYPED = "_"


class Span(NamedTuple):
    """Some words and what they are; places of words are counted from 0, and the last belongs to the span."""

    type: str
    first: int
    last: int


class Mark(NamedTuple):
    """A tag taken apart: one of B, I, E, S and O (L and U are read as E and S), and the type; O has none."""

    prefix: str
    type: str


class Transitions(NamedTuple):
    """Which tags may come first, which may follow which (a row may be followed by a column), and which may be last."""

    start: Bool[Tensor, " tags"]
    between: Bool[Tensor, "tags tags"]
    end: Bool[Tensor, " tags"]


OUTSIDE = Mark("O", "")


def find_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme in which sentences are tagged.

    What has tags of another form, or prefixes that no scheme has together, is plain. Where
    spans begin with I- it is IO without any B-, IOB1 if B- never begins a span on its own,
    and else BIO with mistakes.
    """
    sentences = [tuple(tags) for tags in sequences]
    tags = {tag for sentence in sentences for tag in sentence}
    if not all(map(PREFIX.fullmatch, tags)):
        return "plain"
    prefixes = {tag[0] for tag in tags} - {"O"}
    if prefixes == {"I"}:
        return "IO"
    if "B" in prefixes and prefixes <= {"B", "I"}:
        return "IOB1" if is_iob1(sentences) else "BIO"
    if prefixes & {"B", "S"} and prefixes <= set("BIES"):
        return "BIOES"
    if prefixes & {"B", "U"} and prefixes <= set("BILU"):
        return "BILOU"
    return "plain"


def is_iob1(sentences: Iterable[Sequence[str]]) -> bool:
    """Whether no B- stands but where IOB1 has it: right after a word of a span of its type."""
    return all(may_follow(before, after, "IOB1") for tags in sentences for before, after in neighbours(marks_of(tags)))


def neighbours(marks: Sequence[Mark]) -> Iterator[tuple[Mark, Mark]]:
    """Each mark with that before it; the first follows the outside, which follows the last."""
    return zip((OUTSIDE, *marks), (*marks, OUTSIDE), strict=True)


def marks_of(tags: Iterable[str]) -> list[Mark]:
    """Tags taken apart."""
    return [mark_of(tag) for tag in tags]


def mark_of(tag: str) -> Mark:
    """A tag taken apart; a prefix alone is of the type "_"."""
    found = PREFIX.fullmatch(tag)
    if found is None:
        raise RegardError(f'tags: found "{tag}"; a tag that marks spans is O, or B-, I-, E-, S-, L- or U- and a type')
    prefix = found[1]
    return OUTSIDE if prefix is None else Mark(AS_BIOES.get(prefix, prefix), found[2] or UNTYPED)


def spans_of(tags: Sequence[str], strict: Scheme | None = None) -> list[Span]:
    """The spans that tags mark, in their order.

    As conlleval reads them, whatever the scheme: a span begins at B-, at S-, after E- or S-,
    and wherever the type changes, so that no tag is left out. With a strict scheme (BIO,
    BIOES or BILOU) only whole spans count: S-, or all from B- to E-.
    """
    if strict is not None and strict not in WHOLE:
        raise unknown_name("strict", strict, WHOLE)
    marks = marks_of(tags)
    spans: list[Span] = []
    for place, (before, mark) in enumerate(neighbours(marks)):
        if begins(before, mark):
            spans.append(Span(mark.type, place, place))
        elif mark != OUTSIDE:
            spans[-1] = spans[-1]._replace(last=place)
    if strict is None:
        return spans
    prefixes = "".join(mark.prefix for mark in marks)
    return [span for span in spans if re.fullmatch(WHOLE[strict], prefixes[span.first : span.last + 1])]


def begins(before: Mark, mark: Mark) -> bool:
    """Whether a span begins with a mark, of which the one before is known."""
    return mark != OUTSIDE and (mark.prefix in "BS" or before.prefix in "OES" or before.type != mark.type)


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme) -> tuple[str, ...]:
    """The tags that mark spans among so many words; in IO neighbours of one type become one span."""
    if scheme == "plain":
        raise RegardError("tags_of: the scheme plain marks no spans; BIO, IOB1, BIOES, BILOU and IO do")
    tags = ["O"] * length
    before: Span | None = None
    for span in sorted(spans, key=lambda span: span.first):
        least = 0 if before is None else before.last + 1
        if not least <= span.first <= span.last < length:
            raise RegardError(
                f"tags_of: found {span.type} at words {span.first} to {span.last}; "
                f"of {length} words those from {least} on are free"
            )
        beside = before is not None and before.type == span.type and span.first == least
        for place, prefix in enumerate(prefixes_of(span.last - span.first + 1, scheme, beside), span.first):
            tags[place] = prefix if span.type == UNTYPED else f"{prefix}-{span.type}"
        before = span
    return tuple(tags)


def prefixes_of(length: int, scheme: Scheme, beside: bool) -> str:
    """The prefixes of a span of so many words, which may stand right beside one of its type."""
    if scheme == "IO" or (scheme == "IOB1" and not beside):
        return "I" * length
    if scheme in ("BIO", "IOB1"):
        return "B" + "I" * (length - 1)
    bioes = "S" if length == 1 else "B" + "I" * (length - 2) + "E"
    return bioes if scheme == "BIOES" else "".join(AS_BILOU.get(prefix, prefix) for prefix in bioes)


def repair(sequences: Iterable[Sequence[str]], scheme: Scheme) -> tuple[list[tuple[str, ...]], int]:
    """Tags made consistent with their scheme, and how many had to change.

    An I- that follows nothing to go on with begins a span, so in BIO it becomes B-.
    """
    given = [tuple(tags) for tags in sequences]
    if scheme == "plain":
        return given, 0
    mended = [tags_of(spans_of(tags), len(tags), scheme) for tags in given]
    changed = sum(old != new for pair in zip(given, mended, strict=True) for old, new in zip(*pair, strict=True))
    return mended, changed


def scheme_lines(scheme: Scheme, changed: int) -> Iterator[str]:
    """The scheme in words, and a note on the tags that were changed to keep to it."""
    yield f"tags: {scheme} ({SCHEMES[scheme]})"
    if changed:
        yield (
            f"note: tags: {changed} did not keep to {scheme}, such as an I- with no span to go on with; "
            "changed so that the same spans are marked"
        )


def odd_tags(tags: Iterable[str]) -> list[str]:
    """Tags of another form than most, which would mark spans without them; none where most mark no spans."""
    all_tags = list(tags)
    odd = [tag for tag in all_tags if not PREFIX.fullmatch(tag)]
    return sorted(set(odd)) if 0 < 2 * len(odd) < len(all_tags) and any(tag[1:2] == "-" for tag in all_tags) else []


def allowed_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """What a tagger may answer if its tags are to keep to the scheme; O before the first and after the last word."""
    marks = [OUTSIDE for _ in tags] if scheme == "plain" else marks_of(tags)
    return Transitions(
        start=torch.tensor([may_follow(OUTSIDE, mark, scheme) for mark in marks]),
        between=torch.tensor([[may_follow(before, after, scheme) for after in marks] for before in marks]),
        end=torch.tensor([may_follow(mark, OUTSIDE, scheme) for mark in marks]),
    )


def may_follow(before: Mark, after: Mark, scheme: Scheme) -> bool:
    """Whether one mark may come right after another."""
    goes_on = before.prefix in "BI" and before.type == after.type  # if the second mark is in the span of the first
    if scheme == "BIO":
        return after.prefix != "I" or goes_on
    if scheme == "IOB1":
        return after.prefix != "B" or goes_on
    if scheme in ("BIOES", "BILOU"):
        return goes_on if after.prefix in "IE" else before.prefix in "OES"
    return True
