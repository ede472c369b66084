"""Messages to the terminal and to log files, without characters that control a terminal.

A message can contain anything that a file name, a setting or a line of data contains: an escape
sequence that clears the screen, or a mark that reverses the text after it.
"""

from __future__ import annotations

import re
import sys

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks of text direction, and surrogates, which UTF-8 cannot encode."""


def escape_controls(text: str) -> str:
    r"""Escape characters that control a terminal, as in Python: `\x1b`, `\u202e`. The result is one line."""
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def escape_lines(text: str) -> str:
    """Escape characters that control a terminal, except line breaks."""
    return "\n".join(map(escape_controls, text.split("\n")))


def print_message(text: str) -> None:
    """Print one line to stderr."""
    print(escape_controls(text), file=sys.stderr, flush=True)
