"""TextSteps: preprocessing of a text before tokenization, and its inverse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from regard.errors import RegardError
from regard.text.normal_forms import NormalForm, apply_form, compose, is_decomposed


@dataclass(frozen=True, kw_only=True)
class TextSteps:
    """Preprocessing steps, applied in the order of the fields.

    Lowercasing, punctuation normalization and the replacement of compatibility characters cannot be undone; `undo`
    composes characters and joins Moses tokens and separated words again. The other steps work on composed text: `nfd`
    and `nfkd` take characters apart at the end. The Moses steps require the package sacremoses.
    """

    separator: str | None = None  # what separates the words, as in N;DAT;PL; spaces inside a word become "_"
    normal_form: NormalForm = "none"  # Unicode normal form of the tokens; people always see composed text
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
        """Return the preprocessed text, in its normal form."""
        return apply_form(self.prepare(text), self.normal_form)

    def prepare(self, text: str) -> str:
        """Return the preprocessed text as people read it: composed."""
        check_characters(text)
        if self.separator is not None:
            text = " ".join("_".join(word.split()) for word in text.split(self.separator) if word.strip())
        text = compose(text, self.normal_form)
        if self.lowercase:
            text = text.lower()
        if self.normalize_punctuation:
            text = load_moses_tool("MosesPunctNormalizer", self.moses or "en").normalize(text)
        if self.moses is not None:
            tokenizer = load_moses_tool("MosesTokenizer", self.moses)
            text = tokenizer.tokenize(text, aggressive_dash_splits=False, return_str=True, escape=True)
        return compose(text, self.normal_form)

    def compose(self, text: str) -> str:
        """Return a text of the model, or a reference that it is compared with, as people read it: composed."""
        return compose(text, self.normal_form)

    @property
    def takes_apart(self) -> bool:
        """Whether tokens can be parts of characters."""
        return is_decomposed(self.normal_form)

    @property
    def rewrites(self) -> bool:
        """Whether prepared text differs from the original in more than its normal form."""
        return self.lowercase or self.normalize_punctuation or self.moses is not None

    def undo(self, text: str) -> str:
        """Compose, detokenize and separate a text that a model produced."""
        text = compose(text, self.normal_form)
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
