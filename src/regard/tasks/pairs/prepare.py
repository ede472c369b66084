"""Prepare training on pairs: data, tokenizers, settings and batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from regard.batch import Pair, collate
from regard.data.pair_check import compute_unknown_share, pluralize, summarize_pair_data
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.pairs.batches import PairBatches, encode_examples
from regard.tasks.pairs.choose_model import choose_copy, choose_pair_model, measure_unknown_words, supports_copy
from regard.tasks.pairs.defaults import PairFacts, choose_pair_settings
from regard.tasks.pairs.load import PairSplit, load_pair_split, name_columns, resolve_columns
from regard.tasks.pairs.settings import PairRecipe
from regard.tasks.pairs.tokenizers import check_bpe_dropout, learn_tokenizers, load_same_tokenizers
from regard.tasks.pairs.validation import PairValidation
from regard.tasks.settings import get_split_seed
from regard.text import TokenizerPair
from regard.training.loss import PairStep
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter


def prepare_pairs(recipe: PairRecipe, existing_run: Run | None, device: str, reporter: Reporter) -> Prepared:
    """Load the data, learn the tokenizers or load those of an existing run, and choose open settings."""
    data, labels = resolve_columns(recipe.data)
    detected, recipe = data.columns != recipe.data.columns, replace(recipe, data=data)
    corpus = load_pair_split(data, get_split_seed(recipe))
    reporter.info(f"data: {corpus.origin}")
    for line in summarize_pair_data(corpus.train, corpus.valid).lines():
        reporter.info(f"  {line}")
    if existing_run is None:
        columns = name_columns(data, labels)
        tokenizers = learn_tokenizers(recipe, columns, corpus.train, reporter, detected=detected)
    else:
        tokenizers = load_same_tokenizers(recipe, existing_run, reporter)
    check_bpe_dropout(recipe.text, tokenizers)
    corpus, train, valid = encode_split(corpus, tokenizers, data.max_tokens, reporter)
    recipe = choose_model(recipe, corpus, train, tokenizers, reporter, is_new=existing_run is None)
    if recipe.model.get("copy") is True:
        train, valid = (encode_examples(part, tokenizers, copy=True) for part in (corpus.train, corpus.valid))
    facts = PairFacts.of(train, tokenizers.target, on_gpu=device != "cpu")
    return build_prepared_pairs(choose_pair_settings(recipe, facts), corpus, tokenizers, train, valid, device)


def choose_model(
    recipe: PairRecipe,
    corpus: PairSplit,
    train: Sequence[Pair],
    tokenizers: TokenizerPair,
    reporter: Reporter,
    *,
    is_new: bool,
) -> PairRecipe:
    """Choose the model and whether it copies, where the recipe does not say, and report why."""
    unknown = measure_unknown_words(corpus.valid, tokenizers)
    if "name" not in recipe.model:
        name, because = choose_pair_model(train, tokenizers, recipe.model, must_copy=unknown.need_copying)
        recipe = replace(recipe, model={**recipe.model, "name": name})
        if because is not None:
            reporter.info(f"model: {name}: {because}")
    if not supports_copy(recipe.model):
        return recipe
    copy, reason = choose_copy(recipe.model, corpus.train, tokenizers, unknown=unknown, is_new=is_new)
    if is_new:
        reporter.info(f"copy: {reason}")
    return replace(recipe, model={**recipe.model, "copy": copy})


def build_prepared_pairs(
    recipe: PairRecipe,
    corpus: PairSplit,
    tokenizers: TokenizerPair,
    train: Sequence[Pair],
    valid: Sequence[Pair],
    device: str,
) -> Prepared:
    """Build the batches and the validation from the final recipe."""
    training = recipe.training
    assert training.batch_tokens is not None
    batches = PairBatches(
        corpus.train,
        train,
        tokenizers,
        training.batch_tokens,
        training.seed,
        recipe.text.bpe_dropout,
        recipe.text.hide,
    )
    first_plan = batches.build_plan(0)
    metrics = ["exact"] if training.metric in ("exact", "loss") else ["exact", training.metric]
    validation = PairValidation(
        corpus.valid, valid, tokenizers, training.batch_tokens, training.max_validation, metrics, device
    )
    return Prepared(
        recipe=recipe,
        tokenizers=tokenizers,
        batches=batches,
        validate=validation,
        step=PairStep,
        first_batch=collate(train[:64]),
        max_length=max(max(len(pair.source), len(pair.target or ())) + 1 for pair in [*train, *valid]),
        data={
            "origin": corpus.origin,
            "train": len(train),
            "validation": len(valid),
            "sha256": compute_fingerprint(corpus),
        },
        batch_unit="tokens per side",
        summary=f"{len(first_plan)} per epoch, {100 * first_plan.padding:.1f} % padding",
    )


def encode_split(
    corpus: PairSplit, tokenizers: TokenizerPair, max_tokens: int, reporter: Reporter
) -> tuple[PairSplit, Sequence[Pair], Sequence[Pair]]:
    """Encode both parts, skipping pairs that are too long."""
    parts = []
    for name, examples in (("training", corpus.train), ("validation", corpus.valid)):
        pairs = encode_examples(examples, tokenizers)
        fits = [max(len(pair.source), len(pair.target or ())) <= max_tokens for pair in pairs]
        if not any(fits):
            raise RegardError(f"data: every {name} pair has more than {max_tokens} tokens; raise --data.max-tokens")
        if not all(fits):
            skipped = pluralize(fits.count(False), "pair")
            reporter.info(f"{name}: skipped {skipped} with more than {max_tokens} tokens (--data.max-tokens)")
        parts.append((list(compress(examples, fits)), list(compress(pairs, fits))))
    (train_examples, train_pairs), (valid_examples, valid_pairs) = parts
    for side, side_index in (("source", 0), ("target", 1)):
        share = compute_unknown_share(pair[side_index] or () for pair in valid_pairs)
        reporter.info(f"validation, {side}: {100 * share:.1f} % of the tokens are unknown")
    return PairSplit(train_examples, valid_examples, corpus.origin), train_pairs, valid_pairs


def compute_fingerprint(corpus: PairSplit) -> str:
    """Return a checksum of all examples, in order."""
    digest = hashlib.sha256()
    for part in (corpus.train, corpus.valid):
        digest.update(f"{len(part)}\n".encode())
        for example in part:
            digest.update(f"{example.source}\t{example.target}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
