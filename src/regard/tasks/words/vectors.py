"""Pretrained word vectors for classifiers and taggers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint import list_checkpoints
from regard.data.formats.vectors import UNKNOWN_WORDS, WordVectors, read_vectors
from regard.errors import RegardError
from regard.recipe import Recipe, build_model
from regard.run import Run
from regard.tasks.words.settings import WordRecipe
from regard.text import TokenizerPair, WordVocabulary
from regard.text.tokenizer import RESERVED
from regard.training.reporter import Reporter


def add_vectors(
    vocabulary: WordVocabulary,
    recipe: WordRecipe,
    existing_run: Run | None,
    texts: Sequence[Sequence[str]],
    reporter: Reporter,
) -> tuple[WordVocabulary, Tensor | None]:
    """Add pretrained vectors to a vocabulary, if the recipe has any.

    A resumed run has them already, unless it was stopped before its first checkpoint.

    Returns:
        The vocabulary, and the vectors to initialize the model with, or None.
    """
    path = recipe.data.vectors
    if path is None or (existing_run is not None and list_checkpoints(existing_run)):
        return vocabulary, None
    vectors = load_vectors(path, reporter)
    if existing_run is None:
        vocabulary = replace(vocabulary, vectors=vectors.words, vectors_width=vectors.width)
    elif (vocabulary.vectors, vocabulary.vectors_width) != (vectors.words, vectors.width):
        raise RegardError(
            f"{path} differs from the vectors that {existing_run.path} was started with; choose another --out"
        )
    report_vectors(path, vectors, vocabulary, texts, reporter)
    return vocabulary, vectors.table


def report_vectors(
    path: str, vectors: WordVectors, vocabulary: WordVocabulary, texts: Sequence[Sequence[str]], reporter: Reporter
) -> None:
    """Report the number of vectors, and how many training words have one."""
    counts = Counter(chain.from_iterable(texts))
    covered_words = {word for word in counts if vocabulary.encode([word])[0].vector_id}
    share = 100 * sum(counts[word] for word in covered_words) / max(1, counts.total())
    reporter.info(
        f"vectors: {len(vectors.words):,} of width {vectors.width}, from {path}; they cover {len(covered_words):,} of "
        f"{len(counts):,} different training words, {share:.1f}% of all training words"
    )
    if vectors.announced is not None:
        reporter.info(
            f"note: vectors: {path}: the first line announces {vectors.announced:,} vectors, got {len(vectors.words):,}"
        )


def load_vectors(path: str, reporter: Reporter) -> WordVectors:
    """Load vectors from a file, or from the run of a language model."""
    if os.path.isdir(path):
        return load_run_vectors(Run(Path(path)))
    with reporter.show_count("vectors read") as show:
        return read_vectors(path, show)


def load_run_vectors(run: Run) -> WordVectors:
    """Load the word embeddings of a language model, without special tokens and line ends."""
    from regard.tasks.loading import get_run_task, read_run_recipe

    task, recipe = get_run_task(run.path), read_run_recipe(run)
    if task.name != "text":
        raise RegardError(f"{run.path}: expected the run of a language model, got {recipe.model['name']}")
    tokenizers = task.load_tokenizers(run)
    tokenizer = tokenizers.target
    if tokenizer.kind != "words":
        raise RegardError(f"{run.path}: expected a model with --tokenizer words, got {tokenizer.kind}")
    texts = {
        token_id: tokenizer.id_to_piece(token_id).decode().strip() for token_id in range(len(RESERVED), tokenizer.size)
    }
    words = {token_id: text for token_id, text in texts.items() if text and text not in UNKNOWN_WORDS}
    if not words:
        raise RegardError(f"{run.path}: the vocabulary has no words")
    rows = read_input_embedding(run, recipe, tokenizers)[list(words)].float()
    if not rows.isfinite().all():
        raise RegardError(f"{run.path}: the word embeddings contain NaN or infinity; train it again")
    return WordVectors(tuple(words.values()), torch.cat([torch.zeros(1, rows.shape[1]), rows]))


def read_input_embedding(run: Run, recipe: Recipe, tokenizers: TokenizerPair) -> Float[Tensor, "tokens width"]:
    """Read only the input embedding of a run's model."""
    with torch.device("meta"):  # allocates nothing
        model = build_model(recipe, tokenizers)
    path = next(path for path, module in model.named_modules() if module is model.input_embedding)
    name = f"{path}.weight"
    parameters = run.read_parameters(only={name})
    if name not in parameters or parameters[name].shape != model.get_parameter(name).shape:
        raise RegardError(f"{run.model_file} does not match recipe.toml: parameters differ")
    return parameters[name]
