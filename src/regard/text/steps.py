"""TextSteps: preprocessing of a text before tokenization, and its inverse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class TextSteps:
    """Preprocessing steps, applied in the order of the fields.

    Lowercasing and punctuation normalization cannot be undone; `undo` joins Moses tokens and separated words again.
    The Moses steps require the package sacremoses.
    """

    separator: str | None = None  # what separates the words, as in N;DAT;PL; spaces inside a word become "_"
    lowercase: bool = False  # convert text to lower case
    normalize_punctuation: bool = (
        False  # unify quotes, dashes and spaces as Moses does, by the rules of `moses` or English
    )
    moses: str | None = None  # language whose Moses rules separate words and punctuation, e.g. "de"

    def __post_init__(self) -> None:
        if self.moses is not None and not re.fullmatch("[a-z]{2,3}", self.moses):
            raise RegardError(
                f'moses: expected a language code of two or three letters, such as "en", got "{self.moses}"'
            )
        if self.separator is not None and (len(self.separator) != 1 or self.separator.isspace()):
            raise RegardError(f'separator: expected one character that is not a space, got "{self.separator}"')

    def apply(self, text: str) -> str:
        """Return the preprocessed text."""
        check_characters(text)
        if self.separator is not None:
            text = " ".join("_".join(word.split()) for word in text.split(self.separator) if word.strip())
        if self.lowercase:
            text = text.lower()
        if self.normalize_punctuation:
            text = load_moses_tool("MosesPunctNormalizer", self.moses or "en").normalize(text)
        if self.moses is not None:
            tokenizer = load_moses_tool("MosesTokenizer", self.moses)
            text = tokenizer.tokenize(text, aggressive_dash_splits=False, return_str=True, escape=True)
        return text

    def undo(self, text: str) -> str:
        """Detokenize a text that a model produced."""
        if self.moses is not None:
            text = load_moses_tool("MosesDetokenizer", self.moses).detokenize(text.split(), unescape=True)
        return text if self.separator is None else text.replace(" ", self.separator)


NO_STEPS = TextSteps()


def check_characters(text: str) -> None:
    """Raise a `RegardError` for an unpaired surrogate, which JSON can contain but text encodings cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RegardError(f"text: character {error.start + 1} is U+{code:04X}, an unpaired surrogate") from None


@cache
def load_moses_tool(name: str, language: str) -> Any:
    """Return a cached sacremoses tool; tools are slow to create and stateless."""
    try:
        sacremoses = import_module("sacremoses")
    except ModuleNotFoundError as error:  # sacremoses or one of its dependencies
        raise RegardError(f"moses: {error.name} is not installed; pip install sacremoses") from None
    return getattr(sacremoses, name)(lang=language)
