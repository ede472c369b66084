"""Text as it is written: each token's part of it as soon as it is whole."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from regard.text.tokenizer import Tokenizer


def written_parts(tokenizer: Tokenizer, tokens: Iterable[int], before: str = "") -> Iterator[str]:
    """What each token adds to a text that begins with `before`, joined the text of all tokens.

    A character of which only some bytes are there yet waits for the rest; what never
    becomes one is shown as U+FFFD. There is nothing for a token that adds nothing.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at_start = not before or (tokenizer.kind == "words" and before.endswith("\n"))
    for token in tokens:
        piece = tokenizer.piece(token)
        if at_start and tokenizer.starts_with_space:
            piece = piece.removeprefix(b" ")
        at_start = (at_start and not piece) or (tokenizer.kind == "words" and piece.endswith(b"\n"))
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
