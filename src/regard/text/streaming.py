"""Text as it is written: each token's part of it as soon as it is whole."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from regard.text.tokenizer import Tokenizer


def written_parts(tokenizer: Tokenizer, tokens: Iterable[int], before: str = "") -> Iterator[str]:
    """What each token adds to a text that begins with `before`, "" if that is nothing, and at last what is left over.

    A character of which only some bytes are there yet waits for the rest; what never
    becomes one is shown as U+FFFD. A word gets no second space behind one of `before`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    words = tokenizer.kind == "words"
    spaced = not before or (words and before[-1].isspace())  # so that no space is needed
    for token in tokens:
        piece = tokenizer.piece(token)
        yield decoder.decode(piece.removeprefix(b" ") if spaced and tokenizer.starts_with_space else piece)
        spaced = (spaced and not piece) or (words and piece == b"\n")
    yield decoder.decode(b"", final=True)
