"""Decode a stream of tokens to text, each part as soon as it is complete."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from regard.text.tokenizer import Tokenizer


def decode_stream(tokenizer: Tokenizer, tokens: Iterable[int], prompt: str = "") -> Iterator[str]:
    """Yield the text that each token adds after `prompt`, and finally what is left over.

    The bytes of an incomplete character are held back until the rest arrives; bytes that never
    form a character become U+FFFD. No second space is added if `prompt` ends in one.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    words = tokenizer.kind == "words"
    spaced = not prompt or (words and prompt[-1].isspace())  # True if no leading space is needed
    for token in tokens:
        piece = tokenizer.id_to_piece(token)
        yield decoder.decode(piece.removeprefix(b" ") if spaced and tokenizer.starts_with_space else piece)
        spaced = (spaced and not piece) or (words and piece == b"\n")
    yield decoder.decode(b"", final=True)
