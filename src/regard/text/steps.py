"""TextSteps: what is done to a text before it is cut into tokens, and undone afterwards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class TextSteps:
    """Steps from a text to what a tokenizer sees, in this order.

    Lower case and a normalised punctuation are lost for good; Moses' tokens are joined again by `undo`. The steps of
    Moses need the package sacremoses.
    """

    lowercase: bool = False
    normalise_punctuation: bool = False  # as Moses does: quotes, dashes and spaces in one form; for `moses`, or English
    moses: str | None = None  # the language by whose rules words and punctuation are set apart, e.g. "de"

    def __post_init__(self) -> None:
        if self.moses is not None and not re.fullmatch("[a-z]{2,3}", self.moses):
            raise RegardError(f'moses: "{self.moses}" is no language; a code of two or three letters is, such as "en"')

    def apply(self, text: str) -> str:
        """The text as the tokenizer is to see it."""
        check_characters(text)
        if self.lowercase:
            text = text.lower()
        if self.normalise_punctuation:
            text = moses_tool("MosesPunctNormalizer", self.moses or "en").normalize(text)
        if self.moses is not None:
            tokenizer = moses_tool("MosesTokenizer", self.moses)
            text = tokenizer.tokenize(text, aggressive_dash_splits=False, return_str=True, escape=True)
        return text

    def undo(self, text: str) -> str:
        """A text that a model wrote, as a reader wants to see it."""
        if self.moses is None:
            return text
        return moses_tool("MosesDetokenizer", self.moses).detokenize(text.split(), unescape=True)


NO_STEPS = TextSteps()


def check_characters(text: str) -> None:
    """Raise a `RegardError` for half of a surrogate pair, which JSON can hold but no encoding of text can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RegardError(f"text: character {error.start + 1} is U+{code:04X}, half of a surrogate pair") from None


@cache
def moses_tool(name: str, language: str) -> Any:
    """One of the tools of sacremoses, which are slow to make and keep nothing of what they read."""
    try:
        sacremoses = import_module("sacremoses")
    except ModuleNotFoundError as error:  # sacremoses, or what it needs
        raise RegardError(f"moses: {error.name} is not installed; pip install 'regard[moses]'") from None
    return getattr(sacremoses, name)(lang=language)
