"""Where examples come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where examples come from."""

    task: Literal["pairs", "text", "label", "tag"] | None = None  # to answer, to write on, to label texts, to tag words
    train: str | None = None  # a file of pairs, a built-in corpus, or text: a file or a folder of files
    source: str | None = None  # or two files, line by line: the sources
    target: str | None = None  # and the targets
    valid: str | None = None  # pairs or text to validate with; without any, a part of train is held out
    valid_source: str | None = None  # or two files: the sources
    valid_target: str | None = None  # and the targets
    format: str | None = None  # tsv, csv, jsonl, tmx, po, mo; by the name of the file unless set
    columns: tuple[
        str, ...
    ] = ()  # which columns, keys or languages are source and target; text and label; word and tag
    vectors: str | None = None  # of words, learnt elsewhere: a word2vec or GloVe file, or a run of a language model
    unlabelled: str | None = None  # text that is read before labels or tags are learnt: a file, or a folder of files
    separator: str = "|"  # between several labels of a text; "" takes all of it for one
    dialogue: str | None = None  # the column that names the dialogue of an utterance; a blank line ends one, too
    context: int = 0  # utterances before, of its dialogue, that a text to label is read with
    empty: Literal["error", "skip"] = "error"  # what to do with a pair or example of which a part is empty
    documents: Literal["file", "line", "blank"] = "file"  # what a document of a text is: a file, a line, a paragraph
    most_tokens: int = 256  # of a side; longer pairs are left out; of longer texts to label so many words are read
    held_out: float = 0.05  # the share of train to validate with, where no valid is given
    count: int = 20_000  # examples to make of a built-in corpus
    corpus: dict[str, Any] = field(default_factory=dict)  # settings of a built-in corpus
