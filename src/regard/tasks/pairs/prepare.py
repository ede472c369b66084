"""Prepare training on pairs: data, tokenizers, settings and batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from regard.batch import Pair, collate
from regard.data.example import Example
from regard.data.pair_check import compute_unknown_share, pluralize, summarize_pair_data
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.pairs.batches import PairBatches, encode_examples
from regard.tasks.pairs.choose_model import choose_copy, choose_pair_model, supports_copy
from regard.tasks.pairs.defaults import PairFacts, choose_pair_settings
from regard.tasks.pairs.load import PairSplit, load_pair_split, name_columns, resolve_columns
from regard.tasks.pairs.settings import PairRecipe, PairText
from regard.tasks.pairs.validation import PairValidation
from regard.tasks.settings import get_split_seed
from regard.text import TextSteps, TokenizerPair, learn_tokenizer_pair
from regard.text.choose_form import FormChoice, SideCharacters, choose_forms
from regard.text.column_units import UNITS
from regard.text.learn_columns import Column, learn_column_tokenizer
from regard.text.normal_forms import NormalForm
from regard.text.tokenizer_pair import resolve_kind
from regard.training.loss import PairStep
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter
from regard.training.resume import load_tokenizers


def prepare_pairs(recipe: PairRecipe, existing_run: Run | None, device: str, reporter: Reporter) -> Prepared:
    """Load the data, learn the tokenizers or load those of an existing run, and choose open settings."""
    data, labels = resolve_columns(recipe.data)
    detected, recipe = data.columns != recipe.data.columns, replace(recipe, data=data)
    corpus = load_pair_split(data, get_split_seed(recipe))
    reporter.info(f"data: {corpus.origin}")
    for line in summarize_pair_data(corpus.train, corpus.valid).lines():
        reporter.info(f"  {line}")
    if existing_run is None and (columns := name_columns(data, labels)) is not None:
        tokenizers, described, reasons = learn_column_tokenizers(recipe, columns, corpus.train)
        hint = f"; to say otherwise: --columns {','.join(data.columns)}" if detected else ""
        reporter.info(f"columns: {described}{hint}")
    elif existing_run is None:
        tokenizers, reasons = learn_tokenizers(recipe, corpus.train)
    else:
        tokenizers, reasons = load_tokenizers(existing_run), [f"loaded from {existing_run.path}"]
        if recipe.ties_vocabularies and not tokenizers.shared_vocab:
            raise RegardError(f"model.tied requires a shared vocabulary, but {existing_run.path} has one per side")
    for reason in reasons:
        reporter.info(f"tokens: {reason}")
    corpus, train, valid = encode_split(corpus, tokenizers, recipe.data.max_tokens, reporter)
    if recipe.text.bpe_dropout and "bpe" not in (tokenizers.source.kind, tokenizers.target.kind):
        raise RegardError(
            "text.bpe_dropout requires a bpe tokenizer; set --source-tokenizer or --target-tokenizer to bpe"
        )
    if "name" not in recipe.model:
        name, because = choose_pair_model(train, tokenizers, recipe.model)
        recipe = replace(recipe, model={**recipe.model, "name": name})
        if because is not None:
            reporter.info(f"model: {name}: {because}")
    if supports_copy(recipe.model):
        copy, reason = choose_copy(recipe.model, corpus.train, tokenizers, is_new=existing_run is None)
        reporter.info(f"copy: {reason}")
        recipe = replace(recipe, model={**recipe.model, "copy": copy})
        if copy:
            train, valid = (encode_examples(part, tokenizers, copy=True) for part in (corpus.train, corpus.valid))
    facts = PairFacts.of(train, tokenizers.target, on_gpu=device != "cpu")
    return build_prepared_pairs(choose_pair_settings(recipe, facts), corpus, tokenizers, train, valid, device)


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


def learn_column_tokenizers(
    recipe: PairRecipe, columns: tuple[Sequence[Column], Sequence[Column]], examples: Sequence[Example]
) -> tuple[TokenizerPair, str, list[str]]:
    """Learn the tokenizers of sides of table columns; return them with a description, and reasons for normal forms."""
    text = recipe.text
    if recipe.ties_vocabularies or text.shared_vocab is True:
        setting = "model.tied" if recipe.ties_vocabularies else "text.shared_vocab"
        raise RegardError(f"{setting} requires one vocabulary for both sides, but every column has its own")
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    source_kind, target_kind = (
        next((UNITS[column.unit] for column in side if column.unit is not None), kind)
        for side, kind in zip(columns, text.tokenizers, strict=True)
    )
    forms = choose_normal_forms(text, (source_kind, target_kind), sources, targets)
    source, target = (
        learn_column_tokenizer(
            side_columns,
            texts,
            beside,
            kind=kind,
            vocab_size=text.vocab_size,
            min_frequency=text.min_frequency,
            steps=get_steps(recipe, form.form, moses),
        )
        for side_columns, texts, beside, kind, form, moses in (
            (columns[0], sources, targets, text.tokenizers[0], forms[0], text.moses_source),
            (columns[1], targets, sources, text.tokenizers[1], forms[1], text.moses_target),
        )
    )
    reasons = [*forms[0].reasons, *forms[1].reasons]
    return TokenizerPair(source.tokenizer, target.tokenizer), f"{source.description} -> {target.description}", reasons


def get_steps(recipe: PairRecipe, form: NormalForm, moses: str | None) -> TextSteps:
    """Return the preprocessing of a side in a normal form and in the language `moses`, if it is given."""
    return TextSteps(
        normal_form=form, lowercase=recipe.text.lowercase, normalize_punctuation=moses is not None, moses=moses
    )


def learn_tokenizers(recipe: PairRecipe, examples: Sequence[Example]) -> tuple[TokenizerPair, list[str]]:
    """Learn the tokenizers of both sides; return them with the reasons for their kinds and normal forms."""
    text, tied = recipe.text, recipe.ties_vocabularies
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    source_kind, target_kind = text.tokenizers
    source_form, target_form = choose_normal_forms(text, text.tokenizers, sources, targets)
    tokenizers, reasons = learn_tokenizer_pair(
        sources,
        targets,
        source_kind=source_kind,
        target_kind=target_kind,
        vocab_size=text.vocab_size,
        min_frequency=text.min_frequency,
        shared_vocab=True if tied else text.shared_vocab,
        source_steps=get_steps(recipe, source_form.form, text.moses_source),
        target_steps=get_steps(recipe, target_form.form, text.moses_target),
    )
    if tied and text.shared_vocab == "auto":
        reasons.append("shared vocabulary: model.tied uses one embedding for both sides")
    return tokenizers, [*source_form.reasons, *target_form.reasons, *reasons]


def choose_normal_forms(
    text: PairText, kinds: tuple[str, str], sources: Sequence[str], targets: Sequence[str]
) -> tuple[FormChoice, FormChoice]:
    """Return the normal form of each side: as set or, for auto, chosen from the texts."""
    source, target = text.normal_forms
    if source != "auto" and target != "auto":
        return FormChoice(source), FormChoice(target)
    source_kind, target_kind = (
        resolve_kind(kind, texts)[0] for kind, texts in zip(kinds, (sources, targets), strict=True)
    )
    source_choice, target_choice = choose_forms(
        SideCharacters("source", sources, source_kind), SideCharacters("target", targets, target_kind)
    )
    return (
        source_choice if source == "auto" else FormChoice(source),
        target_choice if target == "auto" else FormChoice(target),
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
