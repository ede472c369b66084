"""Vectors of words that were learnt elsewhere, for models that label and tag."""

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

from regard.data.formats.vectors import NO_WORDS, Vectors, read_vectors
from regard.errors import RegardError
from regard.recipe import Recipe, build_model
from regard.run import Run, checkpoints_of
from regard.tasks.words.settings import WordRecipe
from regard.text import Lexicon, Tokenizers
from regard.text.tokenizer import RESERVED
from regard.training.talk import Talk


def with_vectors(
    lexicon: Lexicon, recipe: WordRecipe, home: Run | None, texts: Sequence[Sequence[str]], talk: Talk
) -> tuple[Lexicon, Tensor | None]:
    """A lexicon that also knows the words of the vectors, and these, if the recipe has any.

    A run that goes on has both already; only one that was stopped before its first checkpoint needs the vectors again.
    """
    path = recipe.data.vectors
    if path is None or (home is not None and checkpoints_of(home)):
        return lexicon, None
    found = vectors_of(path, talk)
    if home is None:
        lexicon = replace(lexicon, vectors=found.words, vectors_width=found.width)
    elif (lexicon.vectors, lexicon.vectors_width) != (found.words, found.width):
        raise RegardError(f"{path}: has not the vectors that {home.path} was begun with; choose another --out")
    say_vectors(path, found, lexicon, texts, talk)
    return lexicon, found.table


def say_vectors(path: str, found: Vectors, lexicon: Lexicon, texts: Sequence[Sequence[str]], talk: Talk) -> None:
    """How many vectors there are, and how many of the words to train on have one."""
    counts = Counter(chain.from_iterable(texts))
    have = {word for word in counts if lexicon.encode([word])[0].vector}
    share = 100 * sum(counts[word] for word in have) / max(1, counts.total())
    talk.say(
        f"vectors: {len(found.words):,} of width {found.width}, from {path}; {len(have):,} of {len(counts):,} "
        f"different words of the training data have one, {share:.1f} % of all its words"
    )
    if found.announced is not None:
        talk.say(f"note: vectors: {path} says in its first line that it has {found.announced:,}; they are not as many")


def vectors_of(path: str, talk: Talk) -> Vectors:
    """The vectors of a file, or of the words of a run."""
    if os.path.isdir(path):
        return vectors_of_run(Run(Path(path)))
    with talk.counting("vectors read") as show:
        return read_vectors(path, show)


def vectors_of_run(run: Run) -> Vectors:
    """The embedding of a language model whose tokens are words; its special tokens and ends of lines are left out."""
    from regard.tasks.loading import read_recipe, task_of_run

    task, recipe = task_of_run(run.path), read_recipe(run)
    if task.name != "text":
        raise RegardError(
            f"{run.path}: is no language model but {recipe.model['name']}; "
            "vectors of words come from one, or from a file"
        )
    tokenizers = task.load_tokenizers(run)
    tokens = tokenizers.target
    if tokens.kind != "words":
        raise RegardError(f"{run.path}: its tokens are {tokens.kind}, not words; train it with --kind words")
    texts = {number: tokens.piece(number).decode().strip() for number in range(len(RESERVED), tokens.size)}
    words = {number: text for number, text in texts.items() if text and text not in NO_WORDS}
    if not words:
        raise RegardError(f"{run.path}: knows no words; vectors of some are needed")
    rows = input_vectors(run, recipe, tokenizers)[list(words)].float()
    if not rows.isfinite().all():
        raise RegardError(f"{run.path}: has vectors that are no finite numbers; train it anew")
    return Vectors(tuple(words.values()), torch.cat([torch.zeros(1, rows.shape[1]), rows]))


def input_vectors(run: Run, recipe: Recipe, tokenizers: Tokenizers) -> Float[Tensor, "tokens width"]:
    """The vectors of the tokens that a run's model reads; nothing else of the model is read."""
    with torch.device("meta"):  # without memory for what is not needed
        model = build_model(recipe, tokenizers)
    path = next(path for path, module in model.named_modules() if module is model.input_embedding)
    name = f"{path}.weight"
    found = run.read_parameters(only={name})
    if name not in found or found[name].shape != model.get_parameter(name).shape:
        raise RegardError(f"{run.model_file}: does not hold the parameters that recipe.toml describes")
    return found[name]
