"""Tagging schemes for spans of words: detect, parse, write and repair BIO, IOB1, BIOES, BILOU and IO."""

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
    "BIO": "B- begins a span, I- continues it",
    "IOB1": "I- is inside a span, B- begins one right after another of the same type",
    "BIOES": "B- begins a span, I- continues it, E- ends it, S- is a single-word span",
    "BILOU": "B- begins a span, I- continues it, L- ends it, U- is a single-word span",
    "IO": "I- is inside a span",
    "plain": "tags of single words, no spans",
}
"""Description of each scheme."""

WHOLE_SPANS = {"BIO": "BI*", "BIOES": "S|BI*E", "BILOU": "S|BI*E"}
"""Pattern of a complete span, for schemes that distinguish it from an incomplete one."""

PREFIX = re.compile(r"([BIESLU])(?:-(.+))?|O")
AS_BIOES = {"L": "E", "U": "S"}
AS_BILOU = {"E": "L", "S": "U"}
UNTYPED = "_"


class Span(NamedTuple):
    """A typed span of words; indices count from 0, and the last word is inclusive."""

    type: str
    first: int
    last: int


class ParsedTag(NamedTuple):
    """The prefix of a tag (B, I, E, S or O; L and U are read as E and S) and its type, "" for O."""

    prefix: str
    type: str


class Transitions(NamedTuple):
    """Which tags may come first, which may follow each other (row before column), and which may come last."""

    start: Bool[Tensor, " tags"]
    between: Bool[Tensor, "tags tags"]
    end: Bool[Tensor, " tags"]


OUTSIDE = ParsedTag("O", "")


def find_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """Detect the scheme of tagged sentences.

    Tags of another form, or with prefixes that no scheme combines, are plain. If spans begin
    with I-, the scheme is IO without any B-, IOB1 if B- only separates adjacent spans, and
    otherwise BIO with mistakes.
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
    """Return whether every B- follows a word of a span of the same type, as in IOB1."""
    return all(
        may_follow(before, after, "IOB1") for tags in sentences for before, after in iter_neighbors(parse_tags(tags))
    )


def iter_neighbors(marks: Sequence[ParsedTag]) -> Iterator[tuple[ParsedTag, ParsedTag]]:
    """Yield each tag with its predecessor; `OUTSIDE` precedes the first and follows the last."""
    return zip((OUTSIDE, *marks), (*marks, OUTSIDE), strict=True)


def parse_tags(tags: Iterable[str]) -> list[ParsedTag]:
    """Parse tags into prefix and type."""
    return [parse_tag(tag) for tag in tags]


def parse_tag(tag: str) -> ParsedTag:
    """Parse a tag into prefix and type; a prefix alone has the type "_"."""
    match = PREFIX.fullmatch(tag)
    if match is None:
        raise RegardError(f'tags: expected O, or B-, I-, E-, S-, L- or U- with a type, got "{tag}"')
    prefix = match[1]
    return OUTSIDE if prefix is None else ParsedTag(AS_BIOES.get(prefix, prefix), match[2] or UNTYPED)


def tags_to_spans(tags: Sequence[str], strict: Scheme | None = None) -> list[Span]:
    """Return the spans of a tagged sentence, in order.

    Tags are read like conlleval does, for any scheme: a span begins at B-, at S-, after E- or S-,
    and wherever the type changes, so every tag belongs to a span.

    Args:
        tags: Tags of one sentence.
        strict: Scheme (BIO, BIOES or BILOU) in which only complete spans count: S-, or B- to E-.

    Raises:
        RegardError: A tag does not mark spans, or `strict` is unknown.
    """
    if strict is not None and strict not in WHOLE_SPANS:
        raise unknown_name("strict", strict, WHOLE_SPANS)
    marks = parse_tags(tags)
    spans: list[Span] = []
    for index, (before, mark) in enumerate(iter_neighbors(marks)):
        if begins_span(before, mark):
            spans.append(Span(mark.type, index, index))
        elif mark != OUTSIDE:
            spans[-1] = spans[-1]._replace(last=index)
    if strict is None:
        return spans
    prefixes = "".join(mark.prefix for mark in marks)
    return [span for span in spans if re.fullmatch(WHOLE_SPANS[strict], prefixes[span.first : span.last + 1])]


def begins_span(before: ParsedTag, mark: ParsedTag) -> bool:
    """Return whether a span begins with a tag, given the tag before it."""
    return mark != OUTSIDE and (mark.prefix in "BS" or before.prefix in "OES" or before.type != mark.type)


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme) -> tuple[str, ...]:
    """Return the tags of a sentence of `length` words with these spans; in IO, adjacent spans of one type merge."""
    if scheme == "plain":
        raise RegardError("spans_to_tags: scheme must be BIO, IOB1, BIOES, BILOU or IO, got plain")
    tags = ["O"] * length
    before: Span | None = None
    for span in sorted(spans, key=lambda span: span.first):
        first_free = 0 if before is None else before.last + 1
        if not first_free <= span.first <= span.last < length:
            raise RegardError(
                f"spans_to_tags: expected a span within words {first_free} to {length - 1}, "
                f"got {span.type} at {span.first} to {span.last}"
            )
        adjacent = before is not None and before.type == span.type and span.first == first_free
        for index, prefix in enumerate(build_prefixes(span.last - span.first + 1, scheme, adjacent), span.first):
            tags[index] = prefix if span.type == UNTYPED else f"{prefix}-{span.type}"
        before = span
    return tuple(tags)


def build_prefixes(length: int, scheme: Scheme, adjacent: bool) -> str:
    """Return the prefixes of a span of `length` words; `adjacent` if it directly follows one of the same type."""
    if scheme == "IO" or (scheme == "IOB1" and not adjacent):
        return "I" * length
    if scheme in ("BIO", "IOB1"):
        return "B" + "I" * (length - 1)
    bioes = "S" if length == 1 else "B" + "I" * (length - 2) + "E"
    return bioes if scheme == "BIOES" else "".join(AS_BILOU.get(prefix, prefix) for prefix in bioes)


def repair_tags(sequences: Iterable[Sequence[str]], scheme: Scheme) -> tuple[list[tuple[str, ...]], int]:
    """Make tags consistent with their scheme; return them and the number of changed tags.

    An I- without a span to continue begins a span, so in BIO it becomes B-.
    """
    original = [tuple(tags) for tags in sequences]
    if scheme == "plain":
        return original, 0
    repaired = [spans_to_tags(tags_to_spans(tags), len(tags), scheme) for tags in original]
    changed = sum(old != new for pair in zip(original, repaired, strict=True) for old, new in zip(*pair, strict=True))
    return repaired, changed


def format_scheme(scheme: Scheme, changed: int) -> Iterator[str]:
    """Yield a description of the scheme, and a note if tags were changed to match it."""
    yield f"tags: {scheme} ({SCHEMES[scheme]})"
    if changed:
        yield (
            f"note: tags: corrected {changed} that did not match {scheme}, such as I- without a span to continue; "
            "the spans are unchanged"
        )


def find_odd_tags(tags: Iterable[str]) -> list[str]:
    """Return tags that do not match the span format of most others; empty if most tags mark no spans."""
    all_tags = list(tags)
    odd = [tag for tag in all_tags if not PREFIX.fullmatch(tag)]
    return sorted(set(odd)) if 0 < 2 * len(odd) < len(all_tags) and any(tag[1:2] == "-" for tag in all_tags) else []


def build_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """Return the transitions between tags that the scheme allows, with O before the first and after the last word."""
    marks = [OUTSIDE for _ in tags] if scheme == "plain" else parse_tags(tags)
    return Transitions(
        start=torch.tensor([may_follow(OUTSIDE, mark, scheme) for mark in marks]),
        between=torch.tensor([[may_follow(before, after, scheme) for after in marks] for before in marks]),
        end=torch.tensor([may_follow(mark, OUTSIDE, scheme) for mark in marks]),
    )


def may_follow(before: ParsedTag, after: ParsedTag, scheme: Scheme) -> bool:
    """Return whether one tag may directly follow another."""
    continues = before.prefix in "BI" and before.type == after.type  # whether `after` can continue the span
    if scheme == "BIO":
        return after.prefix != "I" or continues
    if scheme == "IOB1":
        return after.prefix != "B" or continues
    if scheme in ("BIOES", "BILOU"):
        return continues if after.prefix in "IE" else before.prefix in "OES"
    return True
