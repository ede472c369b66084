"""Score a language model item by item: windows of a text, and the loss by length of context."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from textwrap import shorten

import numpy as np
import torch

from regard.batch import UNKNOWN
from regard.data.documents import read_documents
from regard.data.example import LinkedText
from regard.data.segments import Spans, get_document_spans, split_validation_spans
from regard.data.token_file import TokenFile, write_tokens
from regard.metrics.items import ItemCounts
from regard.metrics.language import build_distance_bands
from regard.tasks.built_in import describe_new_examples, is_built_in, sample_new_examples
from regard.tasks.item_scores import ItemScores
from regard.tasks.settings import get_split_seed
from regard.tasks.text.evaluation import compute_token_nats, get_max_distance, iter_nats_by_distance, resolve_window
from regard.tasks.text.gold_attention import score_contrasts, score_text_attention
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.prepare import compute_validation_share, to_chunks

SHOWN_CHARACTERS, SHOWN_LINES = 40, 1000
"""Maximum number of characters of a text to look at, and of lines to choose such texts from."""

BLOCK = 256
"""Tokens per item. All models are scored on the same blocks, however much context each of them reads."""


def score_text_items(predictor: TextPredictor, test: str | None) -> ItemScores:
    """Score every token of a test text, of new texts of a built-in corpus or of the validation part, in blocks."""
    corpus = test or predictor.recipe.data.train
    texts = sample_new_examples(predictor.recipe, corpus) if is_built_in(corpus, "text") else []
    context_length, stride = resolve_window(predictor, None, None)
    with tempfile.TemporaryDirectory() as folder:
        file, spans, part = load_test_text(predictor, test, texts, Path(folder))
        nats, is_scored = compute_token_nats(predictor, file, spans, (context_length, stride))
        positions = np.flatnonzero(is_scored)
        _, first, owner = np.unique(positions // BLOCK, return_index=True, return_inverse=True)
        tokens = np.bincount(owner)
        decode, blocks = predictor.tokenizer.decode, np.split(file.tokens[positions], first[1:])
        characters = [len(decode(block.tolist())) for block in blocks]
        items = ItemCounts(
            metric="perplexity",
            signature=f"context:{context_length}|stride:{stride}|tokens:{len(positions)}",
            counts=np.stack([np.bincount(owner, nats[positions]), tokens, characters], axis=1),
            lengths=tokens,
            length_unit="tokens",
            unknown=np.bincount(owner, file.tokens[positions] == UNKNOWN) > 0,
        )
        return ItemScores(
            part=part,
            items=items,
            curve=score_distances(predictor, file, spans),
            inputs=[cut_line(line) for line in islice(iter_lines(predictor, test, texts, file, spans), SHOWN_LINES)],
            outputs=[""] * len(tokens),
            output_tokens=len(positions),
            scores=score_links(predictor, texts),
        )


def iter_lines(
    predictor: TextPredictor, test: str | None, texts: Sequence[LinkedText], file: TokenFile, spans: Spans
) -> Iterator[str]:
    """Yield the lines of what is scored: as they were written, or decoded where that is part of the training text."""
    data = predictor.recipe.data
    path = test or data.validation
    documents: Iterator[str]
    if texts:
        documents = (text.text for text in texts)
    elif path is not None:
        documents = (chunk.text for chunk in read_documents(path, data.document_unit))
    else:
        documents = (predictor.tokenizer.decode(file.tokens[start:stop].tolist()) for start, stop in spans)
    return (line for document in documents for line in document.splitlines() if line.strip())


def cut_line(line: str) -> str:
    """Return the beginning of a line, up to the end of a word if there is one."""
    return shorten(line, SHOWN_CHARACTERS, placeholder="") or line.strip()[:SHOWN_CHARACTERS]


def score_links(predictor: TextPredictor, texts: Sequence[LinkedText]) -> dict[str, float]:
    """Return the share of contrasts decided correctly and the attention on gold words, where they are defined."""
    contrasts, attention = score_contrasts(predictor, texts), score_text_attention(predictor, texts)
    scores = {} if contrasts is None else {"right_word": contrasts.share}
    return scores if attention is None else {**scores, "gold_attention": attention.weight}


def load_test_text(
    predictor: TextPredictor, test: str | None, texts: Sequence[LinkedText], folder: Path
) -> tuple[TokenFile, Spans, str]:
    """Tokenize new texts of a built-in corpus, the test text, or the training text.

    The spans of the training text are those of its validation part.
    """
    data = predictor.recipe.data
    path = test or data.validation or data.train
    if texts:
        file = write_tokens(folder / "text", to_chunks(texts), predictor.tokenizer)
        return file, get_document_spans(file), describe_new_examples(test or data.train, texts)
    file = write_tokens(folder / "text", read_documents(path, data.document_unit), predictor.tokenizer)
    if test is not None or data.validation is not None:
        return file, get_document_spans(file), f"{path}" if test is not None else f"the validation text {path}"
    _, spans = split_validation_spans(file, compute_validation_share(data, file), get_split_seed(predictor.recipe))
    return file, spans, "the validation part of the text"


def score_distances(predictor: TextPredictor, file: TokenFile, spans: Spans) -> ItemCounts:
    """Return one item per window and band of context lengths; its length is the longest context of the band."""
    rows, lengths, windows = [], [], 0
    for nats, has_target in iter_nats_by_distance(predictor, file, spans):
        windows += len(nats)
        for first, last in build_distance_bands(get_max_distance(predictor)):
            counts = has_target[:, first - 1 : last].sum(1).double()
            band = torch.stack([nats[:, first - 1 : last].sum(1), counts], dim=1)[counts > 0]
            rows.append(band.numpy())
            lengths += [last] * len(band)
    band_counts = np.concatenate(rows)
    return ItemCounts(
        metric="loss",
        signature=f"windows:{windows}|without earlier context",
        counts=band_counts,
        lengths=np.array(lengths),
        length_unit="tokens of context",
        unknown=np.zeros(len(band_counts), dtype=bool),
    )
