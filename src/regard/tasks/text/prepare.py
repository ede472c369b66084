"""Prepare training on text: tokens, settings and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from regard.data.documents import Chunk, read_documents
from regard.data.example import LinkedText
from regard.data.labeled import is_table
from regard.data.pair_check import pluralize
from regard.data.segments import (
    SCORED_TOKENS,
    WARMUP_TOKENS,
    SegmentBatches,
    Spans,
    build_evaluation_windows,
    count_targets,
    get_document_spans,
    iter_window_batches,
    split_validation_spans,
)
from regard.data.token_file import TokenFile, compute_text_checksum, write_tokens
from regard.errors import RegardError
from regard.models import MODELS, LanguageModel
from regard.run import Run
from regard.tasks.built_in import (
    check_corpus_settings,
    choose_corpus_settings,
    describe_origin,
    generate_split,
    is_built_in,
)
from regard.tasks.settings import get_split_seed
from regard.tasks.text.defaults import TextFacts, choose_text_model, choose_text_settings
from regard.tasks.text.settings import TextData, TextRecipe
from regard.tasks.text.validation import TextValidation
from regard.text import TextSteps, Tokenizer, TokenizerPair, choose_text_kind, learn_lm_tokenizer
from regard.text.tokenizer import is_character_level
from regard.training.defaults import count_bits
from regard.training.loss import TextStep
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter
from regard.training.resume import load_tokenizers

ENTROPY_TOKENS = 1_000_000
"""Number of tokens of which the entropy is measured."""

MAX_VALIDATION_TOKENS = 500_000
"""Maximum number of tokens to split off for validation; more would only take longer."""


@dataclass(frozen=True)
class TextSplit:
    """Training and validation text, as spans of token files; both may be in the same file."""

    train: TokenFile
    train_spans: Spans
    valid: TokenFile
    valid_spans: Spans
    origin: str

    @property
    def sha256(self) -> str:
        """The checksums of both files."""
        return f"{self.train.totals.sha256} {self.valid.totals.sha256}"


def prepare_text(recipe: TextRecipe, run: Run, existing_run: Run | None, device: str, reporter: Reporter) -> Prepared:
    """Tokenize the text, with a new tokenizer or that of an existing run, and choose open settings."""
    recipe.data.check_train_given("a text file or a folder of text files")
    check_corpus_settings(recipe.data, "text")
    if existing_run is None and is_built_in(recipe.data.train, "text"):
        kind = "words" if recipe.text.tokenizer == "auto" else recipe.text.tokenizer
        recipe = choose_corpus_settings(replace(recipe, text=replace(recipe.text, tokenizer=kind)))
    if "-" in (recipe.data.train, recipe.data.validation):
        raise RegardError("data: text cannot be read from stdin (-); save it to a file")
    if is_table(str(recipe.data.train)):
        note = "is read as plain text, tabs or commas included; for pairs, choose another --model"
        reporter.info(f"note: {recipe.data.train} {note}")
    if existing_run is None:
        tokenizer, reason = choose_text_tokenizer(recipe)
        tokenizers = TokenizerPair(tokenizer, tokenizer)
    else:
        tokenizers, reason = load_tokenizers(existing_run), f"loaded from {existing_run.path}"
    reporter.info(f"tokens: {reason}")
    parts = load_text_split(recipe, run, tokenizers.target, reporter)
    name = recipe.model.get("name") or choose_text_model(device != "cpu", recipe.model)
    recipe = replace(recipe, model={**recipe.model, "name": name})
    tokens = int(count_targets(parts.train_spans).sum())
    bits = count_bits(np.bincount(parts.train.tokens[:ENTROPY_TOKENS]), tokens)
    facts = TextFacts(tokens, bits, is_character_level(tokenizers.target), on_gpu=device != "cpu")
    return build_prepared_text(choose_text_settings(recipe, facts), parts, tokenizers, device)


def read_parts(recipe: TextRecipe) -> tuple[Iterable[Chunk], Iterable[Chunk] | None]:
    """Return the documents of the training text and those of the validation text, if it is not a part of the former."""
    data = recipe.data
    assert data.train is not None
    valid = None if data.validation is None else read_documents(data.validation, data.document_unit)
    if not is_built_in(data.train, "text"):
        return read_documents(data.train, data.document_unit), valid
    train, generated = generate_split(data, get_split_seed(recipe))
    return to_chunks(train), to_chunks(generated) if valid is None else valid


def to_chunks(texts: Sequence[LinkedText]) -> list[Chunk]:
    """Return generated texts as documents."""
    return [Chunk(text.text, True) for text in texts]


def choose_text_tokenizer(recipe: TextRecipe) -> tuple[Tokenizer, str]:
    """Learn a tokenizer from the training text; return it with the reason for its kind."""
    text = recipe.text

    def texts() -> Iterator[str]:
        return (chunk.text for chunk in read_parts(recipe)[0])

    if text.tokenizer == "auto":
        kind, reason = choose_text_kind(sum(map(len, texts())))
    else:
        kind, reason = text.tokenizer, f"{text.tokenizer} (--tokenizer)"
    steps = TextSteps(normal_form=text.normal_form, lowercase=text.lowercase)
    return learn_lm_tokenizer(
        kind, texts(), vocab_size=text.vocab_size, min_frequency=text.min_frequency, steps=steps
    ), reason


def load_text_split(recipe: TextRecipe, run: Run, tokenizer: Tokenizer, reporter: Reporter) -> TextSplit:
    """Load the training and validation text; split the latter off the former unless it is given."""
    data, origin = recipe.data, describe_origin(recipe)
    train_documents, valid_documents = read_parts(recipe)
    train = load_tokens(origin, train_documents, run, "train", tokenizer)
    report_size("text", train, reporter)
    if valid_documents is not None:
        valid = load_tokens(data.validation or origin, valid_documents, run, "valid", tokenizer)
        report_size("validation", valid, reporter)
        return TextSplit(train, get_document_spans(train), valid, get_document_spans(valid), origin)
    share = compute_validation_share(data, train)
    train_spans, valid_spans = split_validation_spans(train, share, get_split_seed(recipe))
    count = int(count_targets(valid_spans).sum())
    reporter.info(f"validation: {count:,} tokens, split off the text")
    return TextSplit(train, train_spans, train, valid_spans, origin)


def compute_validation_share(data: TextData, file: TokenFile) -> float:
    """Return the share of a text to split off for validation."""
    return min(data.validation_share, MAX_VALIDATION_TOKENS / file.totals.tokens)


def load_tokens(text: str, documents: Iterable[Chunk], run: Run, name: str, tokenizer: Tokenizer) -> TokenFile:
    """Tokenize a text, or load the tokens of a resumed run, which must be of the same text; `text` is its name."""
    path = run.checkpoints / f"{name}.tokens"
    if run.card_file.exists() and path.with_suffix(".json").exists():
        tokens = TokenFile.open(path, tokenizer.size)
        if tokens.totals.sha256 != compute_text_checksum(documents):
            raise RegardError(f"{text} is not the text that {run.path} was started with; choose another --out")
        return tokens
    return write_tokens(path, documents, tokenizer)


def report_size(name: str, file: TokenFile, reporter: Reporter) -> None:
    """Report the size of a text and its share of unknown tokens."""
    totals = file.totals
    unknown = f" ({100 * totals.unknown / totals.tokens:.1f} % unknown)" if totals.unknown else ""
    reporter.info(
        f"{name}: {pluralize(totals.documents, 'document')}, {totals.characters:,} characters, {totals.words:,} words, "
        f"{totals.tokens:,} tokens{unknown}"
    )


def build_prepared_text(recipe: TextRecipe, parts: TextSplit, tokenizers: TokenizerPair, device: str) -> Prepared:
    """Build the batches and the validation from the final recipe."""
    training, model_class = recipe.training, MODELS[recipe.model["name"]].model
    assert (
        training.batch_tokens is not None
        and training.segment_length is not None
        and issubclass(model_class, LanguageModel)
    )
    batches = SegmentBatches(
        parts.train,
        parts.train_spans,
        tokenizers.target,
        training.batch_tokens,
        training.segment_length,
        model_class.stateful,
        training.seed,
    )
    first_plan = batches.plan(0)
    stride, warmup = (SCORED_TOKENS, WARMUP_TOKENS) if model_class.stateful else (training.segment_length, 0)
    windows = build_evaluation_windows(parts.valid_spans, stride=stride, warmup=warmup)
    groups = partial(
        iter_window_batches,
        windows,
        parts.valid,
        batch_tokens=training.batch_tokens,
        segment_length=training.segment_length,
    )
    train, valid = (int(count_targets(spans).sum()) for spans in (parts.train_spans, parts.valid_spans))
    return Prepared(
        recipe=recipe,
        tokenizers=tokenizers,
        batches=batches,
        validate=TextValidation(groups, device),
        step=TextStep,
        first_batch=batches.batch(first_plan[0], 0).tokens,
        max_length=0 if model_class.stateful else training.segment_length,
        data={"origin": parts.origin, "train": train, "validation": valid, "sha256": parts.sha256},
        batch_unit="tokens",
        summary=f"{len(first_plan)} per epoch, {100 * first_plan.padding:.1f} % padding",
    )
